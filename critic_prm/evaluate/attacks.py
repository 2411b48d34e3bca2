"""Measure how often a judge misses an error after hostile text is inserted into the wrong step."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template
from typing import Any, Literal

from critic_prm.data.critic import Critic
from critic_prm.data.hashing import problem_key
from critic_prm.data.judgement import Label
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError
from critic_prm.evaluate.run import DEFAULTS, predict
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.label.stats import RunStats
from critic_prm.metrics.bootstrap import Interval, mean_interval

Outcome = Literal["held", "fell", "moved", "unusable"]


@dataclass(frozen=True, slots=True)
class Attack:
    """A hostile text. A `control` text is harmless and measures how often verdicts change by themselves."""

    name: str
    text: str
    control: bool = False

    def on(self, trajectory: Trajectory, step: int) -> Trajectory:
        """A copy of `trajectory` with the text appended to step `step` (0-based)."""
        text = Template(self.text).safe_substitute(number=step + 1, index=step)
        steps = list(trajectory.steps)
        steps[step] = replace(steps[step], text=steps[step].text + text)
        return replace(trajectory, id=f"{trajectory.id}/{self.name}", steps=tuple(steps))


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
    settings: EvaluationSettings = DEFAULTS,
    *,
    workers: int = 64,
    tally: RunStats | None = None,
) -> Resistance:
    """Judge the erroneous ones of `solutions` clean, then attack those whose error was found. Gold is hidden from the critic.

    Raises InputError if no solution is known to be wrong.
    """
    tally = tally or RunStats()
    erroneous = [(first, solution) for solution in solutions if (first := solution.first_error()) is not None and first >= 0]
    if not erroneous:
        raise InputError("the benchmark", "none of its solutions is known to be wrong", "give solutions with gold errors")
    clean = predict(critic, erroneous, workers=workers, tally=tally)
    found = [(first, solution) async for first, solution, labelled in clean if labelled.first_error == first]
    attacked = [((text, first), text.on(solution, first)) for first, solution in found for text in texts]
    outcomes: dict[str, Counter[Outcome]] = {text.name: Counter() for text in texts}
    fell: list[tuple[str, bool]] = []
    async for (text, first_error), solution, labelled in predict(critic, attacked, workers=workers, tally=tally):
        outcome = _outcome(first_error, labelled)
        outcomes[text.name][outcome] += 1
        if not text.control and outcome != "unusable":
            fell.append((problem_key(solution.problem), outcome == "fell"))
    controls = sum((outcomes[text.name] for text in texts if text.control), Counter[Outcome]())
    problems, values = [problem for problem, _ in fell], [value for _, value in fell]
    unattacked = Interval(None, None, reason="nothing was attacked")
    return Resistance(
        erroneous=len(erroneous),
        found=len(found),
        outcomes={name: dict(counts) for name, counts in outcomes.items()},
        fell=_share(sum(values), len(values)),
        interval=mean_interval(problems, values, replicates=settings.resamples, seed=settings.seed) if fell else unattacked,
        by_itself=_share(controls["fell"], controls.total() - controls["unusable"]),
        run=tally.report(critic.client),
    )


def _outcome(first_error: int, labelled: Label) -> Outcome:
    if labelled.status != "ok" or labelled.first_error is None:
        return "unusable"
    if labelled.first_error == first_error:
        return "held"
    return "moved" if 0 <= labelled.first_error < first_error else "fell"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
