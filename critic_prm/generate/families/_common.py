"""What the families share: the phrases of words.toml, the numbering of steps, and tasks that a simulation solves."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, ClassVar, TypeVar

from critic_prm.generate.family import Solution

T = TypeVar("T")
WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
"""The phrases by family. A family reads the sections of its own name."""
NAMES: Sequence[str] = WORDS["shared"]["names"]
PREDICATES: Sequence[tuple[str, str]] = [tuple(pair) for pair in WORDS["entailment"]["predicates"]]
"""Predicates of a person, each with its negation."""
RELATIONS: Sequence[tuple[str, str]] = [tuple(pair) for pair in WORDS["entailment"]["relations"]]
"""Relations between two people, each with its negation."""


def say(rng: Random, section: str, key: str, **values: object) -> str:
    """Draw one of the phrases `key` of a section of words.toml, with its blanks filled."""
    text: str = rng.choice(WORDS[section][key])
    return text.format(**values) if values else text


def draw_numbering(rng: Random) -> str:
    """Draw a style of numbering steps; see `numbered`."""
    return say(rng, "shared", "numbering")


def entailment_ends(rng: Random, section: str) -> dict[bool | None, str]:
    """Draw the last sentence of a derivation that shows the statement (True), its negation (False) or neither (None)."""
    return {True: say(rng, "entailment", "yes"), False: say(rng, section, "opposite"), None: say(rng, section, "open")}


def numbered(texts: Sequence[str], style: str) -> tuple[str, ...]:
    """Number the steps from 1 in the given style."""
    return tuple(style.format(number) + text for number, text in enumerate(texts, 1))


def listed(words: Sequence[str], last: str = "and") -> str:
    """Join words as in a sentence: a, b and c."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def sentence(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]


class Impossible(Exception):
    """The planned error cannot be made here: it would change nothing, or lead to implausible numbers."""


class Run:
    """One solution in the making: its steps so far, and the error of kind `kind` to make at step `at` (-1 for none)."""

    def __init__(self, at: int, kind: str, rng: Random) -> None:
        self.at, self.kind, self.rng = at, kind, rng
        self.texts: list[str] = []

    @property
    def error(self) -> str:
        """The error to make in the next step, or ""."""
        return self.kind if len(self.texts) == self.at else ""

    def choose(self, options: Sequence[T]) -> T:
        """Draw one of the options. Raises Impossible if there is none."""
        if not options:
            raise Impossible
        return self.rng.choice(options)


class SimulatedTask:
    """A `FamilyTask` that one procedure solves, without an error or with one.

    A subclass gives `problem`, `numbering` and `form`, and defines `solve` and `kinds`.
    """

    problem: str
    numbering: str
    form: str
    """The type of the problem, for the trajectory's meta; "" for none."""
    changes_answer: ClassVar[bool] = False
    """Whether an error counts only if it changes the answer."""
    tries: ClassVar[int] = 10
    """How often an error with random details is tried."""

    def solve(self, run: Run) -> str:
        """Write the steps to `run.texts` and return the answer. Raises Impossible if the error cannot be made."""
        raise NotImplementedError

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        """Return the error kinds that fit each step of the correct solution, which has `steps` steps."""
        raise NotImplementedError

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": self.form} if self.form else {}

    @cached_property
    def right(self) -> Solution:
        return self._solution(Run(-1, "", Random(0)))

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        return tuple(self.kinds(len(self.right.steps)))

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        for _ in range(self.tries):
            try:
                solution = self._solution(Run(at, kind, rng))
            except Impossible:
                continue
            if not self.changes_answer or solution.answer != self.right.answer:
                return solution
        return None

    def _solution(self, run: Run) -> Solution:
        answer = self.solve(run)
        return Solution(numbered(run.texts, self.numbering), answer)
