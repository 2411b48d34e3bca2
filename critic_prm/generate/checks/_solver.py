"""From assumptions and a conclusion, as z3 formulas, to whether the one gives the other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from critic_prm.errors import ConfigError

EFFORT = 2_000_000
"""z3's own count of its work (rlimit), about a second: unlike a time limit it gives the same outcome on every machine."""
FEW = 6


@cache
def z3() -> Any:
    """The module z3. Raises ConfigError where it is not installed."""
    try:
        import z3 as module
    except ImportError as error:
        raise ConfigError("checking with a solver needs z3 and networkx: pip install 'critic-prm[formal]'") from error
    return module


def satisfiable(formulas: Sequence[Any], effort: int = EFFORT) -> bool | None:
    """Whether all can be true at once; None when the solver gave up.

    Where "each has one it is related to" leads the search on and on to new individuals, models with a few are tried: what is
    true of a few individuals is possible.
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
    """The sort that the first quantifier found ranges over, None where there is no quantifier."""
    waiting = list(formulas)
    while waiting:
        formula = waiting.pop()
        if z3().is_quantifier(formula):
            return formula.var_sort(0)
        waiting += formula.children()
    return None


def entails(assumptions: Sequence[Any], conclusion: Any, effort: int = EFFORT) -> bool | None:
    """Whether assumptions and the denied conclusion cannot all be true, as FoVer labels its steps (arXiv 2505.15960).

    None when the solver gave up: not known is not wrong. Assumptions that contradict each other entail everything; ask
    `satisfiable` whether they do.
    """
    denied = satisfiable([*assumptions, z3().Not(conclusion)], effort)
    return None if denied is None else not denied


def unnumbered(text: str) -> str:
    """A step without the number that stands before it."""
    return re.sub(r"^(\*\*Step \d+\.\*\*|Step \d+:|\d+\.|\(\d+\)) ", "", text)
