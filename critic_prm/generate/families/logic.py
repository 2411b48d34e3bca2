"""Propositional entailment: derive from premises whether a statement follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from random import Random
from typing import NamedTuple, Protocol

from critic_prm.generate.families._common import (
    NAMES,
    PREDICATES,
    WORDS,
    draw_numbering,
    entailment_ends,
    listed,
    numbered,
    say,
    sentence,
)  # fmt: skip
from critic_prm.generate.family import FamilyTask, Solution

ATOMS: Sequence[tuple[str, str]] = [tuple(pair) for pair in WORDS["entailment"]["atoms"]]
"""Statements and their negations."""

KINDS = {
    "converse": 4.0,  # from "if A then B" and B to A
    "inverse": 4.0,  # from "if A then B" and not A to not B
    "disjunct": 4.0,  # from "A or B" and A to not B
    "missing": 3.0,  # from "if A and B then C" and A alone to C
    "sign": 1.0,  # the correct rule with the opposite conclusion
    "verdict": 3.0,  # a correct derivation with the wrong conclusion about the statement
}
STEPS = {1: (1, 2), 2: (2, 3), 3: (3, 4), 4: (4, 5), 5: (5, 7)}
SPARE = {1: 2, 2: 2, 3: 3, 4: 3, 5: 3}
TRIES = 10


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
    """Writes each atom as a sentence; holds the sentence and its negation per atom."""

    atoms: Sequence[tuple[str, str]]

    def literal(self, literal: Literal) -> str:
        return self.atoms[literal.atom][not literal.true]

    def premise(self, premise: Premise) -> str:
        *before, last = [self.literal(literal) for literal in premise.literals]
        if premise.kind == "if":
            return f"If {' and '.join(before)}, then {last}."
        return sentence(f"{before[0]}, or {last}, or both." if before else f"{last}.")


@dataclass(frozen=True, slots=True)
class Everyone:
    """Writes atoms as predicates: facts are about one person, the other premises about everyone."""

    person: str
    predicates: Sequence[tuple[str, str]]

    def _predicate(self, literal: Literal) -> str:
        return self.predicates[literal.atom][not literal.true]

    def literal(self, literal: Literal) -> str:
        return f"{self.person} {self._predicate(literal)}"

    def premise(self, premise: Premise) -> str:
        *before, last = premise.literals
        conditions = [self._predicate(literal) for literal in before]
        if premise.kind == "if" and not last.true and last.atom % 2:
            return f"No one who {' and '.join(conditions)} {self._predicate(~last)}."
        if premise.kind == "if":
            return f"Everyone who {' and '.join(conditions)} {self._predicate(last)}."
        return f"Everyone {conditions[0]}, or {self._predicate(last)}, or both." if before else f"{self.literal(last)}."


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


table = cache(Table)


class Move(NamedTuple):
    """A conclusion drawn from known literals and a premise."""

    have: tuple[Literal, ...]
    premise: int
    new: Literal


def moves(premises: Sequence[Premise], known: Sequence[Literal]) -> list[Move]:
    """Return all conclusions of one sound inference about atoms that are still undecided."""
    facts, closed, found = set(known), {literal.atom for literal in known}, []
    for number, premise in enumerate(premises):
        *before, last = premise.literals
        if premise.kind == "if":
            if last.atom not in closed and facts.issuperset(before):
                found.append(Move(tuple(before), number, last))
            if ~last in facts and len(before) == 1 and before[0].atom not in closed:
                found.append(Move((~last,), number, ~before[0]))
        elif premise.kind == "or":
            for one, other in ((before[0], last), (last, before[0])):
                if ~one in facts and other.atom not in closed:
                    found.append(Move((~one,), number, other))
    return found


def fallacies(premises: Sequence[Premise], known: Sequence[Literal], kind: str) -> list[Move]:
    """Return the unsound inferences of a kind about atoms that are still undecided."""
    facts, closed, found = set(known), {literal.atom for literal in known}, []
    if kind == "sign":
        return [move._replace(new=~move.new) for move in moves(premises, known)]
    for number, premise in enumerate(premises):
        *before, last = premise.literals
        if premise.kind == "if" and len(before) == 1:
            if kind == "converse" and last in facts and before[0].atom not in closed:
                found.append(Move((last,), number, before[0]))
            if kind == "inverse" and ~before[0] in facts and last.atom not in closed:
                found.append(Move((~before[0],), number, ~last))
        elif premise.kind == "if" and kind == "missing" and last.atom not in closed:
            held = tuple(literal for literal in before if literal in facts)
            if held and all(literal.atom not in closed for literal in before if literal not in held):
                found.append(Move(held, number, last))
        elif premise.kind == "or" and kind == "disjunct":
            for one, other in ((before[0], last), (last, before[0])):
                if one in facts and other.atom not in closed:
                    found.append(Move((one,), number, ~other))
    return found


@dataclass(frozen=True)
class EntailmentTask:
    """Premises, a statement, and the derivation of the correct solution. `phrases` holds the templates of its steps."""

    premises: tuple[Premise, ...]
    goal: Literal
    derivation: tuple[Move, ...]
    atoms: int
    wording: Wording
    form: str
    ask: str
    given: str
    phrases: tuple[str, ...]
    ends: Mapping[bool | None, str]
    numbering: str

    @property
    def problem(self) -> str:
        lines = [f"({n}) {self.wording.premise(premise)}" for n, premise in enumerate(self.premises, 1)]
        return "\n".join([self.given, *lines, self.ask.format(self.wording.literal(self.goal))])

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": self.form}

    @cached_property
    def right(self) -> Solution:
        return self._write(self.derivation, self._status(self.derivation))

    @property
    def _given(self) -> list[Literal]:
        return [premise.literals[0] for premise in self.premises if premise.kind == "fact"]

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        found, known = [], self._given
        for move in self.derivation:
            found.append(tuple(kind for kind in KINDS if kind != "verdict" and fallacies(self.premises, known, kind)))
            known = [*known, move.new]
        return (*found, ("verdict",))

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        if kind == "verdict":
            return self._write(self.derivation, rng.choice([False, None] if self._status(self.derivation) else [True]))
        models = table(self.atoms).models(self.premises)
        before = self.derivation[:at]
        known = [*self._given, *(move.new for move in before)]
        wrong = [
            move for move in fallacies(self.premises, known, kind) if models & ~table(self.atoms).literal(move.new)
        ]  # an unsound inference may happen to give something that does follow
        for _ in range(TRIES if wrong else 0):
            derivation = [*before, rng.choice(wrong)]
            if self._carry_on(derivation, known, rng):
                return self._write(derivation, self._status(derivation))
        return None

    def _carry_on(self, derivation: list[Move], known: Sequence[Literal], rng: Random) -> bool:
        """Continue from the wrong conclusion to the length of the correct solution."""
        while len(derivation) < len(self.derivation):
            facts = [*known, *(move.new for move in derivation)]
            open_moves = moves(self.premises, facts)
            later = [move for move in open_moves if derivation[-1].new in move.have] or open_moves
            later = [move for move in later if move.new.atom != self.goal.atom or len(derivation) == len(self.derivation) - 1]
            if not later:
                return False
            derivation.append(rng.choice(later))
        return True

    def _status(self, derivation: Sequence[Move]) -> bool | None:
        """Return whether the statement (True), its negation (False) or neither (None) has been derived."""
        known = {*self._given, *(move.new for move in derivation)}
        return True if self.goal in known else False if ~self.goal in known else None

    def _write(self, derivation: Sequence[Move], status: bool | None) -> Solution:
        texts = []
        for phrase, move in zip(self.phrases, derivation, strict=False):
            have = listed([self.wording.literal(literal) for literal in move.have])
            texts.append(sentence(phrase.format(have=have, n=move.premise + 1, new=self.wording.literal(move.new))))
        texts.append(self.ends[status])
        return Solution(numbered(texts, self.numbering), "yes" if status else "no")


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw premises, a derivation of the level's length, unused premises, and a statement that follows, is refuted or open."""
    while True:
        found = _grow(rng, rng.randint(*STEPS[level]), SPARE[level])
        if found is None:
            continue
        premises, derivation, atoms = found
        last = derivation[-1].new
        models = table(atoms).models(premises)
        open_atoms = [
            a for a in range(atoms) if models & table(atoms).literal(Literal(a)) and models & ~table(atoms).literal(Literal(a))
        ]
        aim = rng.choice(("follows", "follows", "refuted", "open"))
        if aim == "open" and not open_atoms:
            continue
        goal = last if aim == "follows" else ~last if aim == "refuted" else Literal(rng.choice(open_atoms), rng.random() < 0.7)
        break
    form = rng.choice(("symbols", "sentences", "everyone"))
    wording: Wording
    if form == "symbols":
        wording = Symbols("".join(rng.sample("ABCDEFGHKLMNPQRSTUVW", atoms)))
    elif form == "sentences":
        wording = Sentences(rng.sample(ATOMS, atoms))
    else:
        wording = Everyone(rng.choice(NAMES), rng.sample(PREDICATES, atoms))
    ends = entailment_ends(rng, "logic")
    phrases = tuple(say(rng, "logic", "step") for _ in range(10))
    ask, given, numbering = rng.choice(WORDS["entailment"]["ask"]), say(rng, "logic", "given"), draw_numbering(rng)
    return EntailmentTask(
        tuple(premises), goal, tuple(derivation), atoms, wording, form, ask, given, phrases, ends, numbering
    )  # fmt: skip


def _grow(rng: Random, steps: int, spare: int) -> tuple[list[Premise], list[Move], int] | None:
    """Draw premises and a chain of `steps` inferences, each using the previous one; None if contradictory."""

    def literal(atom: int) -> Literal:
        return Literal(atom, rng.random() < 0.7)

    atoms = 1
    chain = [literal(0)]
    premises = [Premise("fact", (chain[0],))]
    for _ in range(steps):
        have, new = chain[-1], literal(atoms)
        atoms += 1
        rule = rng.choice(("modus ponens", "modus ponens", "modus tollens", "or", "and"))
        if rule == "and" and len(chain) < 2:
            premises.append(Premise("fact", (other := literal(atoms),)))
            premises.append(Premise("if", (have, other, new)))
            atoms += 1
        elif rule == "and":
            premises.append(Premise("if", (have, rng.choice(chain[:-1]), new)))
        elif rule == "or":
            premises.append(Premise("or", (~have, new) if rng.random() < 0.5 else (new, ~have)))
        else:
            premises.append(Premise("if", (have, new) if rule == "modus ponens" else (~new, ~have)))
        chain.append(new)
    for _ in range(spare):  # distracting premises
        have, new = rng.choice(chain), literal(atoms)
        atoms += 1
        shape = rng.choice(("converse", "converse", "inverse", "inverse", "or", "or", "missing", "idle"))
        if shape == "missing":
            premises.append(Premise("if", (have, literal(atoms), new)))
            atoms += 1
        elif shape == "or":
            premises.append(Premise("or", (have, new)))
        else:
            premises.append(Premise("if", {"converse": (new, have), "inverse": (~have, new), "idle": (have, new)}[shape]))
    rng.shuffle(premises)
    known = [premise.literals[0] for premise in premises if premise.kind == "fact"]
    derivation = []
    for new in chain[1:]:
        move = next((move for move in moves(premises, known) if move.new == new), None)
        if move is None:
            return None
        derivation.append(move)
        known.append(new)
    return (premises, derivation, atoms) if table(atoms).models(premises) else None
