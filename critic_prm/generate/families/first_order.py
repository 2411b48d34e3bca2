"""First-order entailment with quantifiers and relations; each step of the derivation cites its premises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from random import Random

from critic_prm.generate.families._derivations import grow
from critic_prm.generate.families._inferences import Move, mistakes, moves
from critic_prm.generate.families._phrases import RELATIONS, Phrases, draw_style
from critic_prm.generate.families._propositions import PREDICATES
from critic_prm.generate.families._quantified import Statement, fails
from critic_prm.generate.families._words import NAMES, NUMBERING, listed, numbered, sentence
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
ASK = ("Does it follow that {}?", "Do the premises entail that {}?", "Is it a logical consequence that {}?",
       "Can one conclude that {}?", "Must it be the case that {}?")  # fmt: skip
GIVEN = ("Premises about a group of people:", "The following is known about some people:", "Suppose all of these are true:",
         "Given:")  # fmt: skip
BY_NUMBER = ("From {n}: {new}.", "By {n}: {new}.", "Because of {n}: {new}.")
BY_WORDS = ("By {n}, since {have}: {new}.", "Since {have}, using {n}: {new}.")
NAMING = ("{by}, let {w} be such a person: {new}.", "{by} there is such a person, say {w}: {new}.")
YES = ("So the statement follows.", "Hence the answer is yes, it follows.", "This is the statement in question, so it follows.")
OPPOSITE = ("This contradicts the statement, so it does not follow.", "The statement is thus false and does not follow.")
OPEN = ("Nothing of this gives the statement, so it does not follow.",
        "The premises do not force the statement, so it does not follow.")  # fmt: skip
STEPS = {1: (1, 2), 2: (2, 3), 3: (3, 4), 4: (4, 5), 5: (5, 7)}
SPARE = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3}
TRIES = 6
CONTINUED = 0.5
"""Probability that step numbers continue those of the premises, so that steps cite by number only."""


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
    says: tuple[str, str, str]
    ends: Mapping[bool | None, str]
    numbering: str | None

    @property
    def problem(self) -> str:
        lines = [f"({n}) {sentence(self.phrases.text(premise))}." for n, premise in enumerate(self.premises, 1)]
        return "\n".join([self.given, *lines, self.ask.format(self.phrases.text(self.goal))])

    @property
    def facts(self) -> Mapping[str, object]:
        return {
            "form": "relations" if any(s.kind not in ("fact", "all", "both", "some") for s in self.premises) else "syllogisms"
        }

    @cached_property
    def right(self) -> Solution:
        return self._write(self.derivation)

    @cached_property
    def _wrong(self) -> tuple[tuple[tuple[str, Move], ...], ...]:
        """Return the possible errors for each step of the derivation."""
        found = []
        for at in range(len(self.derivation)):
            before = self.derivation[:at]
            known = [*self.premises, *(new for move in before for new in move.new)]
            named = [move.named for move in before if move.named is not None]
            found.append(tuple(mistakes(known, [*self.people, *named])))
        return tuple(found)

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        return (*(tuple({kind: None for kind, _ in found}) for found in self._wrong), ("verdict",))

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        if kind == "verdict":
            status = self._status(self.derivation)
            return self._write(self.derivation, verdict=rng.choice([False, None]) if status else True, judged=True)
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
                    return self._write(derivation)
        return None

    def _carry_on(self, derivation: list[Move], rng: Random) -> bool:
        """Continue from the wrong conclusion to the length of the correct solution."""
        while len(derivation) < len(self.derivation):
            known = [*self.premises, *(new for move in derivation for new in move.new)]
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
        known = {*self.premises, *(new for move in derivation for new in move.new)}
        return True if self.goal in known else False if self.goal.kind in ("fact", "rel") and ~self.goal in known else None

    def _write(self, derivation: Sequence[Move], verdict: bool | None = None, *, judged: bool = False) -> Solution:
        status = verdict if judged else self._status(derivation)
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
        cited = _listed([f"({n})" for n in dict.fromkeys(numbers[s] for s in move.cites if s in numbers)])
        have = _listed([self.phrases.text(s) for s in move.cites if s not in numbers])
        new = _listed([self.phrases.text(s) for s in move.new])
        alone, both, naming = self.says
        if move.named is not None:
            by = f"By {cited}" if cited else f"Since {have}"
            return naming.format(by=by, w=self.phrases.names[move.named], new=new)
        if cited and have:
            return both.format(n=cited, have=have, new=new)
        return alone.format(n=cited, new=new) if cited else f"Since {have}: {new}."


def _listed(words: Sequence[str]) -> str:
    return listed(words) if words else ""


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
    style = draw_style(rng)
    phrases = Phrases(
        rng.sample(NAMES, strangers),
        rng.sample(range(len(PREDICATES)), predicates),
        rng.sample(range(len(RELATIONS)), relations),
        style,
    )
    says = (rng.choice(BY_NUMBER), rng.choice(BY_WORDS), rng.choice(NAMING))
    ends = {True: rng.choice(YES), False: rng.choice(OPPOSITE), None: rng.choice(OPEN)}
    numbering = None if rng.random() < CONTINUED else rng.choice([style for style in NUMBERING if not style.startswith("(")])
    return FirstOrderTask(
        premises, goal, derivation, people, phrases, rng.choice(ASK), rng.choice(GIVEN), says, ends, numbering
    )


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
