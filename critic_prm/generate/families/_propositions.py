"""Propositional literals and premises, their wordings, and their truth tables as bit masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from critic_prm.generate.families._words import sentence

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

PREDICATES = (
    ("plays chess", "does not play chess"),
    ("speaks Danish", "does not speak Danish"),
    ("owns a bike", "does not own a bike"),
    ("likes tea", "does not like tea"),
    ("is left-handed", "is not left-handed"),
    ("wears glasses", "does not wear glasses"),
    ("sings in the choir", "does not sing in the choir"),
    ("is a member", "is not a member"),
    ("works on Sundays", "does not work on Sundays"),
    ("has a garden", "does not have a garden"),
    ("knows the code", "does not know the code"),
    ("lives downtown", "does not live downtown"),
    ("keeps bees", "does not keep bees"),
    ("is on the list", "is not on the list"),
    ("paints", "does not paint"),
    ("was at the party", "was not at the party"),
    ("reads the paper", "does not read the paper"),
    ("can swim", "cannot swim"),
)
"""Predicates of a person and their negations."""


class Literal(NamedTuple):
    """An atom, given by its number, or its negation."""

    atom: int
    true: bool = True

    def __invert__(self) -> Literal:
        return Literal(self.atom, not self.true)


class Premise(NamedTuple):
    """A premise. `kind` is "fact" (the last literal), "if" (all others together imply the last) or "or" (at least one of both
    holds).
    """

    kind: str
    literals: tuple[Literal, ...]


class Wording(Protocol):
    """How literals and premises are written."""

    def literal(self, literal: Literal) -> str: ...
    def premise(self, premise: Premise) -> str: ...


@dataclass(frozen=True, slots=True)
class Symbols:
    """Writes each atom as a letter."""

    letters: str

    def literal(self, literal: Literal) -> str:
        return ("" if literal.true else "¬") + self.letters[literal.atom]

    def premise(self, premise: Premise) -> str:
        *before, last = [self.literal(literal) for literal in premise.literals]
        if premise.kind == "if":
            return f"{before[0] if len(before) == 1 else '(' + ' ∧ '.join(before) + ')'} → {last}"
        return f"{before[0]} ∨ {last}" if before else last


@dataclass(frozen=True, slots=True)
class Sentences:
    """Writes each atom as a sentence; holds the index into ATOMS per atom."""

    atoms: Sequence[int]

    def literal(self, literal: Literal) -> str:
        return ATOMS[self.atoms[literal.atom]][0 if literal.true else 1]

    def premise(self, premise: Premise) -> str:
        *before, last = [self.literal(literal) for literal in premise.literals]
        if premise.kind == "if":
            return f"If {' and '.join(before)}, then {last}."
        return sentence(f"{before[0]}, or {last}, or both." if before else f"{last}.")


@dataclass(frozen=True, slots=True)
class Everyone:
    """Writes atoms as predicates (indices into PREDICATES): facts are about one person, the other premises about everyone."""

    person: str
    atoms: Sequence[int]

    def _predicate(self, literal: Literal) -> str:
        return PREDICATES[self.atoms[literal.atom]][0 if literal.true else 1]

    def literal(self, literal: Literal) -> str:
        return f"{self.person} {self._predicate(literal)}"

    def premise(self, premise: Premise) -> str:
        *before, last = premise.literals
        said = [self._predicate(literal) for literal in before]
        if premise.kind == "if" and not last.true and last.atom % 2:
            return f"No one who {' and '.join(said)} {self._predicate(~last)}."
        if premise.kind == "if":
            return f"Everyone who {' and '.join(said)} {self._predicate(last)}."
        return f"Everyone {said[0]}, or {self._predicate(last)}, or both." if before else f"{self.literal(last)}."


class Table:
    """Truth table over `atoms` atoms. A proposition is an integer with one bit per row, set where the proposition is true."""

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
        """Return the rows in which all premises hold."""
        rows = self.all
        for premise in premises:
            rows &= self.premise(premise)
        return rows
