"""Compare the labels of two sources on one solution and return the labels they agree on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from critic_prm.datasets.rows import Row

Probabilities: TypeAlias = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Said:
    """One source's labels of a solution: P(correct) per step, None if unlabelled, and the first error, None if unknown."""

    p: tuple[float | None, ...]
    first_error: int | None


@dataclass(frozen=True, slots=True)
class Agreed:
    """The labels two sources agree on: 1 or 0 per step, None where there is no agreement, and the first error."""

    labels: tuple[float | None, ...]
    first_error: int | None


def said(row: Row, threshold: float | None = None) -> Said:
    """The labels of a row. With a threshold, the first error is the first step whose P(correct) is below it, regardless of the
    row's own.

    Any threshold in (0, 1/K] gives the hard labels of Monte Carlo rollouts with K completions: a step is correct if one
    completion reached the answer.
    """
    if threshold is None:
        return Said(row.labels, row.first_error)
    for step, p in enumerate(row.labels):
        if p is None:
            return Said(row.labels, None)
        if p < threshold:
            return Said(row.labels, step)
    return Said(row.labels, -1)


def same_first_error(a: Said, b: Said) -> Agreed | str:
    """Exact agreement on the first error (Qwen's consensus filter, arXiv 2501.07301, keeps about 40%)."""
    for name, source in (("A", a), ("B", b)):
        if source.first_error is None:
            return f"{name} has no first error"
    if a.first_error != b.first_error:
        return "another first error"
    first, steps = a.first_error, len(a.p)
    if first is None or first < 0:
        return Agreed((1.0,) * steps, first)
    return Agreed((*(1.0,) * first, 0.0, *(None,) * (steps - first - 1)), first)


def same_on_confident(a: Said, b: Said, low: float, high: float) -> Agreed | str:
    """Agreement on the steps of which B is confident: correct if P >= `high`, incorrect if P <= `low` (VRPRM2: 0.125, 0.75).

    Steps in between get no label. Steps after A's first error are not compared because A does not judge them.
    """
    if a.first_error is None:
        return "A has no first error"
    end = len(a.p) if a.first_error < 0 else a.first_error + 1
    sure = [None if p is None or low < p < high else float(p >= high) for p in b.p[:end]]
    if all(label is None for label in sure):
        return "B is sure of no step"
    if any(label is not None and label != float(step != a.first_error) for step, label in enumerate(sure)):
        return "another verdict on a step B is sure of"
    first = a.first_error if a.first_error >= 0 and sure[a.first_error] == 0.0 else None
    if None not in sure and a.first_error < 0:
        first = -1
    return Agreed((*sure, *(None,) * (len(a.p) - end)), first)
