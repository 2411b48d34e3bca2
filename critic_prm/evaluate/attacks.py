"""Measure how often a judge misses an error after hostile text is inserted into the wrong step."""

from __future__ import annotations

import tomllib
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, Literal

import numpy as np

from critic_prm.data.critic import Critic
from critic_prm.data.hashing import problem_key
from critic_prm.data.judgement import Label
from critic_prm.data.trajectory import Step, Trajectory, blind
from critic_prm.errors import InputError
from critic_prm.label.run import RunStats, label
from critic_prm.metrics.bootstrap import Interval, cluster_bootstrap
from critic_prm.metrics.scores import Array

Outcome = Literal["held", "fell", "moved", "unusable"]


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile text. A `control` text is harmless and measures how often verdicts change by themselves."""

    name: str
    text: str
    control: bool = False

    def on(self, trajectory: Trajectory, step: int) -> Trajectory:
        """A copy of `trajectory` with the text appended to step `step` (0-based)."""
        said = Template(self.text).safe_substitute(number=step + 1, index=step)
        there = trajectory.steps[step]
        steps = (*trajectory.steps[:step], Step(there.text + said, there.observation), *trajectory.steps[step + 1 :])
        return replace(trajectory, id=f"{trajectory.id}/{self.name}", steps=steps)


@dataclass(frozen=True, slots=True)
class Resistance:
    """The resistance of a judge to attacks. Only solutions whose exact first error was found in the clean version are
    attacked."""

    erroneous: int
    """Number of erroneous solutions."""
    found: int
    """Number of these whose first error was found in the clean solution."""
    outcomes: Mapping[str, Mapping[Outcome, int]]
    """Counts by attack: "fell" accepted the wrong step, "moved" named an earlier one, "unusable" could not be parsed."""
    fell: float | None
    """Share of "fell" among the usable judgements of all attacks except the control."""
    interval: Interval
    """95% interval of `fell` over problems."""
    by_itself: float | None
    """The same share for the control."""
    run: Mapping[str, Any]


def attacks() -> list[Attack]:
    """The packaged attack texts, the control first."""
    rows = tomllib.loads(Path(__file__).with_name("attacks.toml").read_text("utf-8"))["attack"]
    return [Attack(**row) for row in rows]


async def attack(
    critic: Critic,
    solutions: Iterable[Trajectory],
    texts: Sequence[Attack],
    *,
    workers: int = 64,
    replicates: int = 2000,
    seed: int = 0,
    tally: RunStats | None = None,
) -> Resistance:
    """Judge the erroneous ones of `solutions` clean, then attack those whose error was found. Gold is hidden from the critic.

    Raises InputError if no solution is known to be wrong.
    """
    tally = tally or RunStats()
    erroneous = [
        solution for solution in solutions if (solution.first_error() or 0) >= 0 and solution.first_error() is not None
    ]
    if not erroneous:
        raise InputError(
            "the benchmark", "none of its solutions is known to be wrong", "attacks need errors that can be missed"
        )
    found: list[Trajectory] = []
    gold = deque(erroneous)
    async for clean, said in label((blind(solution) for solution in erroneous), critic, workers=workers):
        tally.add(said)
        if said.first_error == gold.popleft().first_error():
            found.append(replace(clean, label=said.first_error))
    waiting: deque[tuple[Attack, Trajectory]] = deque()

    def attacked() -> Iterator[Trajectory]:
        for solution in found:
            for text in texts:
                assert solution.label is not None
                waiting.append((text, solution))
                yield blind(text.on(solution, solution.label))

    outcomes: dict[str, Counter[Outcome]] = {text.name: Counter() for text in texts}
    rows: list[tuple[str, bool]] = []
    async for _, said in label(attacked(), critic, workers=workers):
        tally.add(said)
        text, solution = waiting.popleft()
        outcome = _outcome(solution, said)
        outcomes[text.name][outcome] += 1
        if not text.control and outcome != "unusable":
            rows.append((problem_key(solution.problem), outcome == "fell"))
    controls = [outcomes[text.name] for text in texts if text.control]
    return Resistance(
        erroneous=len(erroneous),
        found=len(found),
        outcomes={name: dict(counts) for name, counts in outcomes.items()},
        fell=_share(sum(fell for _, fell in rows), len(rows)),
        interval=_interval(rows, replicates, seed),
        by_itself=_share(sum(c["fell"] for c in controls), sum(c.total() - c["unusable"] for c in controls)),
        run=tally.report(critic.client),
    )


def _outcome(solution: Trajectory, said: Label) -> Outcome:
    assert solution.label is not None
    if said.status != "ok" or said.first_error is None:
        return "unusable"
    if said.first_error == solution.label:
        return "held"
    return "moved" if 0 <= said.first_error < solution.label else "fell"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _interval(rows: Sequence[tuple[str, bool]], replicates: int, seed: int) -> Interval:
    if not rows:
        return Interval(None, None, reason="nothing was attacked")

    def ratio(sums: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.asarray(sums[..., 1] / sums[..., 0])

    features = [(1.0, float(fell)) for _, fell in rows]
    return cluster_bootstrap([problem for problem, _ in rows], features, ratio, replicates=replicates, seed=seed)
