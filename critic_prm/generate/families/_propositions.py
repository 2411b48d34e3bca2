"""Propositions: literals and the premises made of them, as sentences or as symbols, and their truth tables as bit masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

ATOMS = (
    ("the pump runs", "the pump does not run"),
    ("the tank is full", "the tank is not full"),
    ("the alarm rings", "the alarm does not ring"),
    ("the door is locked", "the door is not locked"),
    ("the light is on", "the light is not on"),
    ("the window is open", "the window is not open"),
    ("the train is late", "the train is not late"),
    ("the shop is closed", "the shop is not closed"),
    ("the road is wet", "the road is not wet"),
    ("the dog barks", "the dog does not bark"),
    ("the mail has come", "the mail has not come"),
    ("the fire is lit", "the fire is not lit"),
    ("the bridge is up", "the bridge is not up"),
    ("the lake is frozen", "the lake is not frozen"),
    ("the heater works", "the heater does not work"),
    ("the guests have left", "the guests have not left"),
    ("the test passes", "the test does not pass"),
    ("the server is down", "the server is not down"),
    ("the battery is charged", "the battery is not charged"),
    ("the flag is raised", "the flag is not raised"),
    ("the cake is ready", "the cake is not ready"),
    ("the meeting is over", "the meeting is not over"),
    ("the printer hums", "the printer does not hum"),
    ("the garden is in bloom", "the garden is not in bloom"),
)
"""Statements and their negations."""


class Literal(NamedTuple):
    """An atom by its number, or its negation."""

    atom: int
    true: bool = True

    def __invert__(self) -> Literal:
        return Literal(self.atom, not self.true)


class Premise(NamedTuple):
    """`kind` is "fact" (the last literal), "if" (the last follows from the others together) or "or" (one of both holds)."""

    kind: str
    literals: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Wording:
    """How atoms are written: by symbols, or by the sentences at these places of ATOMS."""

    symbols: str
    sentences: Sequence[int] = ()

    def literal(self, literal: Literal) -> str:
        if self.sentences:
            return ATOMS[self.sentences[literal.atom]][0 if literal.true else 1]
        return ("" if literal.true else "¬") + self.symbols[literal.atom]

    def premise(self, premise: Premise) -> str:
        *before, last = [self.literal(literal) for literal in premise.literals]
        if premise.kind == "fact":
            return last
        if premise.kind == "or":
            return f"{before[0]}, or {last}, or both" if self.sentences else f"{before[0]} ∨ {last}"
        if self.sentences:
            return f"if {' and '.join(before)}, then {last}"
        return f"{before[0] if len(before) == 1 else '(' + ' ∧ '.join(before) + ')'} → {last}"


class Table:
    """The truth table over `atoms` atoms: a proposition is an integer with one bit for every row, set where it is true."""

    def __init__(self, atoms: int) -> None:
        self.all = (1 << (1 << atoms)) - 1
        self._atoms = [sum(1 << row for row in range(1 << atoms) if row >> atom & 1) for atom in range(atoms)]

    def literal(self, literal: Literal) -> int:
        rows = self._atoms[literal.atom]
        return rows if literal.true else self.all & ~rows

    def premise(self, premise: Premise) -> int:
        *before, last = [self.literal(literal) for literal in premise.literals]
        if premise.kind == "or":
            return before[0] | last
        rows = self.all
        for one in before:
            rows &= one
        return (self.all & ~rows) | last

    def models(self, premises: Sequence[Premise]) -> int:
        """The rows in which all premises hold."""
        rows = self.all
        for premise in premises:
            rows &= self.premise(premise)
        return rows
