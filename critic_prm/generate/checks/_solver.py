"""Check satisfiability and entailment of z3 formulas within a deterministic effort limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from critic_prm.errors import ConfigError

EFFORT = 2_000_000
"""z3's resource limit (rlimit), about one second. Unlike a time limit it gives the same outcome on every machine."""
FEW = 6


@cache
def z3() -> Any:
    """Return the z3 module. Raises ConfigError if it is not installed."""
    try:
        import z3 as module
    except ImportError as error:
        raise ConfigError("checking with a solver needs z3 and networkx: pip install 'critic-prm[formal]'") from error
    return module


def satisfiable(formulas: Sequence[Any], effort: int = EFFORT) -> bool | None:
    """Return whether all formulas can be true at once; None if the solver gave up.

    A statement such as "each has one it is related to" can make the search introduce new individuals forever. The solver then
    tries models with at most FEW individuals: what holds in a small model is possible.
    """
    found = _checked(formulas, effort // 20)
    if found is None and (sort := _sort(formulas)) is not None:
        x, *some = z3().Consts(" ".join(["x", *(f"somebody{i}" for i in range(FEW))]), sort)
        found = _checked([*formulas, z3().ForAll([x], z3().Or([x == one for one in some]))], effort) or None
    return _checked(formulas, effort) if found is None else found


def _checked(formulas: Sequence[Any], effort: int) -> bool | None:
    solver = z3().SimpleSolver()
    solver.set("rlimit", max(effort, 1))
    solver.add(*formulas)
    return {"sat": True, "unsat": False}.get(str(solver.check()))


def _sort(formulas: Sequence[Any]) -> Any:
    """Return the sort that the first quantifier ranges over, or None without a quantifier."""
    waiting = list(formulas)
    while waiting:
        formula = waiting.pop()
        if z3().is_quantifier(formula):
            return formula.var_sort(0)
        waiting += formula.children()
    return None


def entails(assumptions: Sequence[Any], conclusion: Any, effort: int = EFFORT) -> bool | None:
    """Return whether assumptions and negated conclusion are unsatisfiable, which is how FoVer labels steps (arXiv 2505.15960).

    None if the solver gave up: undecided is not wrong. Contradictory assumptions entail everything; check them with
    `satisfiable`.
    """
    denied = satisfiable([*assumptions, z3().Not(conclusion)], effort)
    return None if denied is None else not denied


def unnumbered(text: str) -> str:
    """Return the step without its leading number."""
    return re.sub(r"^(\*\*Step \d+\.\*\*|Step \d+:|\d+\.|\(\d+\)) ", "", text)
