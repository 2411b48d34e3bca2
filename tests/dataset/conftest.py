"""Rows for the tests of datasets: solutions, a judge's labels of them, and simulated judges with known error rates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from critic_prm.data.judgement import Judgement, Prior, Verdict, combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.trajectory import trajectory_from_json
from critic_prm.providers.provider import Usage


def solution(number: int, steps: int = 3, **more: Any) -> dict[str, Any]:
    texts = [f"step {step} of solution {number} is taken with care" for step in range(steps)]
    return {"id": f"s{number}", "problem": f"What is the value of thing {number}?", "steps": texts, **more}


def judgement(
    steps: int, first: int, critiques: Sequence[str] = (), sample: int = 0, tokens: int = 0, **more: Any
) -> Judgement:
    """A judgement of so many steps that finds its first error at `first` and stops there."""
    last = steps if first < 0 else first + 1
    verdicts = tuple(
        Verdict(
            step,
            "incorrect" if step == first else "correct",
            critiques[step] if step < len(critiques) else f"checked number {step} by hand",
        )
        for step in range(last)
    )
    return Judgement("ok", verdicts, first, sample, usage=Usage(output=tokens), **more)


def labelled(row: dict[str, Any], *judgements: Judgement, prior: Prior = "none") -> dict[str, Any]:
    trajectory = trajectory_from_json(row, "test")
    return label_row(trajectory, combine(judgements, len(trajectory.steps), prior), {"model": "made up"})


def judged(row: dict[str, Any], *firsts: int) -> dict[str, Any]:
    """A row of a label file whose judgements find their first errors at `firsts`."""
    return labelled(row, *(judgement(len(row["steps"]), first, sample=n) for n, first in enumerate(firsts)))


def simulated(
    count: int, wrong: float, judge: tuple[float, float], completions: tuple[float, float], seed: int = 0, gold: bool = True
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[int]]:
    """Solutions labelled by a judge and by Monte Carlo completions, each with its (sensitivity, specificity), and the truth.

    Given the truth the two err independently: an error that is missed is called right, a right solution that is not is given
    a first error at a random step.
    """
    rng = random.Random(seed)
    one, other, truth = [], [], []
    for number in range(count):
        steps = rng.randint(3, 9)
        first = rng.randrange(steps) if rng.random() < wrong else -1
        said = []
        for sensitivity, specificity in (judge, completions):
            if first >= 0:
                said.append(first if rng.random() < sensitivity else -1)
            else:
                said.append(-1 if rng.random() < specificity else rng.randrange(steps))
        row = solution(number, steps, **({"label": first} if gold else {}))
        one.append(judged(row, said[0]))
        shares = [1.0] * steps if said[1] < 0 else [0.875] * said[1] + [0.0] * (steps - said[1])
        other.append({**solution(number, steps), "step_labels": shares})
        truth.append(first)
    return one, other, truth


@pytest.fixture
def made() -> SimpleNamespace:
    """The makers of rows: solution, judgement, labelled, judged, simulated."""
    return SimpleNamespace(solution=solution, judgement=judgement, labelled=labelled, judged=judged, simulated=simulated)
