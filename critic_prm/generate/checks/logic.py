"""Find the first unsound step of a propositional derivation in English, decided by z3 within a deterministic effort limit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import ConfigError, InputError
from critic_prm.generate.families._common import PREDICATES
from critic_prm.generate.families.logic import ATOMS
from critic_prm.generate.family import Finding
from critic_prm.registry import install

EFFORT = 2_000_000
"""z3's resource limit (rlimit), about one second. Unlike a time limit it gives the same outcome on every machine."""
FEW = 6


@cache
def z3() -> Any:
    """Return the z3 module. Raises ConfigError if it is not installed."""
    try:
        import z3 as module
    except ImportError as error:
        raise ConfigError(f"checking with a solver needs z3 and networkx: {install('formal')}") from error
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


SAID = {text: (pair[0], text == pair[0]) for pair in (*ATOMS, *PREDICATES) for text in pair}
LITERAL = re.compile("|".join([*(re.escape(text) for text in sorted(SAID, key=len, reverse=True)), r"¬?\b[A-Z]\b"]))


@cache  # unbounded: z3 identifies terms by id, so they must stay alive
def _atom(name: str, true: bool) -> Any:
    atom = z3().Bool(name)
    return atom if true else z3().Not(atom)


def literals(text: str) -> list[Any]:
    """Return the literals that a text mentions, in order."""
    found = LITERAL.findall(text[:1].lower() + text[1:] if text[1:2].islower() else text)
    return [_atom(*SAID[word]) if word in SAID else _atom(word.lstrip("¬"), word[0] != "¬") for word in found]


def premise(text: str) -> Any:
    """Parse a premise. A premise about everyone is applied to the one person in question."""
    *before, last = literals(text)
    if text.startswith("No one who "):
        return z3().Implies(z3().And(before), z3().Not(last))
    if "→" in text or text.startswith(("If ", "Everyone who ")):
        return z3().Implies(z3().And(before), last)
    return z3().Or(*before, last) if before else last


def examine(trajectory: Trajectory) -> Finding:
    """Return the first step that does not follow from the premise and the literals that it cites."""
    _, *lines, question = trajectory.problem.split("\n")
    premises = [premise(line.split(") ", 1)[1]) for line in lines]
    if not satisfiable(premises):
        return Finding(None, "the premises contradict each other")
    known = {formula.get_id() for formula in premises}
    *derivation, verdict = map(unnumbered, trajectory.texts)
    for index, text in enumerate(derivation):
        number = re.search(r"\((\d+)\)", text)
        if number is None:
            raise InputError(f"{trajectory.id}, step {index}", f"{text!r} cites no premise by its number")
        *have, new = literals(re.sub(r"^(Since|By|Premise|We know that) ", "", text))
        outcome = entails([premises[int(number.group(1)) - 1], *have], new)
        if outcome is None:
            return Finding(None, f"the solver gave up on step {index}")
        if not outcome or not known.issuperset(formula.get_id() for formula in have):
            return Finding(index)
        known.add(new.get_id())
    (goal,) = literals(re.sub(r"^.* that ", "", question))
    outcome = entails(premises, goal)
    if outcome is None:
        return Finding(None, "the solver gave up on the statement")
    return Finding(-1 if outcome == ("not follow" not in verdict) else len(derivation))
