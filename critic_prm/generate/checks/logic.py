"""Find the first unsound step of a propositional derivation in English, decided by z3 from what it cites."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError
from critic_prm.generate.check import Finding
from critic_prm.generate.checks._solver import entails, satisfiable, unnumbered, z3
from critic_prm.generate.families._propositions import ATOMS, PREDICATES

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
