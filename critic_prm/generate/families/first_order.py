"""First-order entailment with quantifiers and relations; each step of the derivation cites its premises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from random import Random

from critic_prm.generate.families._common import (
    NAMES,
    PREDICATES,
    RELATIONS,
    WORDS,
    entailment_ends,
    listed,
    numbered,
    say,
    sentence,
)  # fmt: skip
from critic_prm.generate.families._derivations import grow
from critic_prm.generate.families._statements import ANYONE, BINARY, Move, Statement, fails, mistakes, moves
from critic_prm.generate.family import FamilyTask, Solution

KINDS = {
    "converse": 5.0,  # from "every A is B" and B to A: affirming the consequent
    "conversion": 0.5,  # from "every A is B" to "every B is A"
    "inverse": 3.0,  # from "every A is B" and not A to not B: denying the antecedent
    "middle": 5.0,  # from "every A is C" and "every B is C" to "every A is B": the undistributed middle
    "swap": 3.0,  # from "everyone has someone" to "there is someone whom everyone has"
    "witness": 3.0,  # the individual said to exist gets the name of a known one
    "direction": 6.0,  # the correct rule with the two people swapped
    "missing": 2.0,  # a condition of the rule is not satisfied
    "overreach": 1.5,  # from "someone" to "everyone"
    "verdict": 2.0,  # a correct derivation with the wrong conclusion about the statement
}
STEPS = {1: (1, 2), 2: (2, 3), 3: (3, 4), 4: (4, 5), 5: (5, 7)}
SPARE = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
TRIES = 6
CONTINUED = 0.5
"""Probability that step numbers continue those of the premises, so that steps cite by number only."""


# {0} {1} {2} are the words, {a} {b} the names. The last word is negated if the statement is, except in the form {1+}.
AFFIRMED: Mapping[str, Sequence[str]] = WORDS["first_order"]["affirmed"]
DENIED: Mapping[str, Sequence[str]] = {**AFFIRMED, **WORDS["first_order"]["denied"]}


@dataclass(frozen=True, slots=True)
class Phrases:
    """Names of individuals, predicates and relations, each with its negation. `style` selects a wording for each kind."""

    names: Sequence[str]
    predicates: Sequence[tuple[str, str]]
    relations: Sequence[tuple[str, str]]
    style: Mapping[str, int]

    def text(self, s: Statement) -> str:
        """Return the statement as text, in lower case at the start unless it starts with a name."""
        blanks = {f"{{{letter}}}": self.names[who] for letter, who in zip("ab", s.who, strict=False)}
        for place, word in enumerate(s.words):
            listing = self.relations if place in BINARY.get(s.kind, ()) else self.predicates
            pair = ("", "") if word == ANYONE else listing[word]
            who = "" if word == ANYONE else f" who {pair[0]}"
            blanks[f"{{{place}}}"] = pair[not s.true and place == len(s.words) - 1]
            blanks |= {f"{{{place}+}}": pair[0], f"{{who{place}}}": who, f"{{who{place} and}}": who and f"{who} and"}
        text = (AFFIRMED if s.true else DENIED)[s.kind][self.style[s.kind]]
        for blank, filling in blanks.items():
            text = text.replace(blank, filling)
        return text


@dataclass(frozen=True)
class FirstOrderTask:
    """Premises, a statement, and the derivation of the correct solution.

    Names from index len(people) on do not occur in the premises. They are for individuals that the premises only say exist.
    """

    premises: tuple[Statement, ...]
    goal: Statement
    derivation: tuple[Move, ...]
    people: tuple[int, ...]
    phrases: Phrases
    ask: str
    given: str
    steps: Mapping[str, str]
    ends: Mapping[bool | None, str]
    numbering: str | None

    @property
    def problem(self) -> str:
        lines = [f"({n}) {sentence(self.phrases.text(premise))}." for n, premise in enumerate(self.premises, 1)]
        return "\n".join([self.given, *lines, self.ask.format(self.phrases.text(self.goal))])

    @property
    def facts(self) -> Mapping[str, object]:
        simple = all(s.kind in ("fact", "all", "both", "some") for s in self.premises)
        return {"form": "syllogisms" if simple else "relations"}

    @cached_property
    def right(self) -> Solution:
        return self._write(self.derivation, self._status(self.derivation))

    @cached_property
    def _wrong(self) -> tuple[tuple[tuple[str, Move], ...], ...]:
        """Return the possible errors for each step of the derivation."""
        errors = []
        for at in range(len(self.derivation)):
            before = self.derivation[:at]
            named = [move.named for move in before if move.named is not None]
            errors.append(tuple(mistakes(self._known(before), [*self.people, *named])))
        return tuple(errors)

    def _known(self, derivation: Sequence[Move]) -> list[Statement]:
        return [*self.premises, *(new for move in derivation for new in move.new)]

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        return (*(tuple({kind: None for kind, _ in found}) for found in self._wrong), ("verdict",))

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        if kind == "verdict":
            return self._write(self.derivation, rng.choice([False, None]) if self._status(self.derivation) else True)
        before = self.derivation[:at]
        assumed = [*self.premises, *(new for move in before if move.named is not None for new in move.new)]
        wrong = [move for found, move in self._wrong[at] if found == kind]
        rng.shuffle(wrong)
        near = {*self.derivation[at].cites, *(before[-1].new if before else ())}
        wrong.sort(key=lambda move: not near.intersection(move.cites))  # prefer errors that use the most recent statements
        for move in wrong[:TRIES]:
            # an unsound inference may happen to give something that does follow
            if any(fails(assumed, new) for new in move.new):
                derivation = [*before, move]
                if self._carry_on(derivation, rng):
                    return self._write(derivation, self._status(derivation))
        return None

    def _carry_on(self, derivation: list[Move], rng: Random) -> bool:
        """Continue from the wrong conclusion to the length of the correct solution."""
        while len(derivation) < len(self.derivation):
            known = self._known(derivation)
            named = {move.named for move in derivation if move.named is not None} - set(self.people)
            stranger = next(who for who in count(len(self.people)) if who not in named)
            found = [
                move
                for move in moves(known, [*self.people, *sorted(named)], stranger)
                if move.named is None or stranger < len(self.phrases.names)
            ]
            last = len(derivation) == len(self.derivation) - 1
            found = [move for move in found if last or not {self.goal, ~self.goal} & set(move.new)]
            later = [move for move in found if set(derivation[-1].new) & set(move.cites)] or found
            if not later:
                return False
            derivation.append(rng.choice(later))
        return True

    def _status(self, derivation: Sequence[Move]) -> bool | None:
        """Return whether the statement (True), its negation (False) or neither (None) has been derived."""
        known = self._known(derivation)
        return True if self.goal in known else False if self.goal.kind in ("fact", "rel") and ~self.goal in known else None

    def _write(self, derivation: Sequence[Move], status: bool | None) -> Solution:
        numbers = {premise: n for n, premise in enumerate(self.premises, 1)}
        first, texts = len(numbers) + 1, []
        for n, move in enumerate(derivation, first):
            texts.append(sentence(self._say(move, numbers)))
            if self.numbering is None:
                numbers |= dict.fromkeys(move.new, n)
        texts.append(self.ends[status])
        if self.numbering is None:
            steps = tuple(f"({n}) {text}" for n, text in enumerate(texts, first))
        else:
            steps = numbered(texts, self.numbering)
        return Solution(steps, "yes" if status else "no")

    def _say(self, move: Move, numbers: Mapping[Statement, int]) -> str:
        cited = listed([f"({n})" for n in dict.fromkeys(numbers[s] for s in move.cites if s in numbers)])
        have = listed([self.phrases.text(s) for s in move.cites if s not in numbers])
        new = listed([self.phrases.text(s) for s in move.new])
        if move.named is not None:
            by = f"By {cited}" if cited else f"Since {have}"
            return self.steps["naming"].format(by=by, w=self.phrases.names[move.named], new=new)
        template = self.steps["by_words" if have else "by_number"] if cited else "Since {have}: {new}."
        return template.format(n=cited, have=have, new=new)


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw premises, a derivation of the level's length, unused premises, and a statement that follows, is refuted or open."""
    while True:
        found = grow(rng, rng.randint(*STEPS[level]), SPARE[level])
        if found is None:
            continue
        premises, derivation, people, predicates, relations = found
        goal = _goal(rng, premises, derivation, people)
        if goal is not None:
            break
    strangers = max([len(people) + 3, *(1 + move.named for move in derivation if move.named is not None)])
    style = {kind: rng.randrange(len(templates)) for kind, templates in AFFIRMED.items()}
    phrases = Phrases(rng.sample(NAMES, strangers), rng.sample(PREDICATES, predicates), rng.sample(RELATIONS, relations), style)
    steps = {key: say(rng, "first_order", key) for key in ("by_number", "by_words", "naming")}
    ends = entailment_ends(rng, "first_order")
    styles = [style for style in WORDS["shared"]["numbering"] if not style.startswith("(")]
    numbering = None if rng.random() < CONTINUED else rng.choice(styles)
    ask, given = rng.choice(WORDS["entailment"]["ask"]), say(rng, "first_order", "given")
    return FirstOrderTask(premises, goal, derivation, people, phrases, ask, given, steps, ends, numbering)


def _goal(rng: Random, premises: Sequence[Statement], derivation: Sequence[Move], people: Sequence[int]) -> Statement | None:
    (last,) = derivation[-1].new
    aim = rng.choice(("follows", "follows", "refuted", "open"))
    if aim == "follows":
        return last
    if aim == "refuted":
        return ~last if last.kind in ("fact", "rel") else None
    known = [*premises, *(new for move in derivation for new in move.new)]
    wrong = [move.new[0] for kind, move in mistakes(known, people) if kind != "witness" and len(move.new) == 1]
    wrong = [s for s in wrong if set(s.who) <= set(people)]
    for goal in rng.sample(wrong, min(TRIES, len(wrong))):
        if fails(premises, goal):
            return goal
    return None
