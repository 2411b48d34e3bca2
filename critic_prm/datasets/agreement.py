"""Two sources' words on one solution in, whether they agree and the labels they agree on, or why they do not, out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from critic_prm.datasets.rows import Row

Probabilities: TypeAlias = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Said:
    """What one source says of a solution: P(correct) per step, None where it is silent, and its first error (None: open)."""

    p: tuple[float | None, ...]
    first_error: int | None


@dataclass(frozen=True, slots=True)
class Agreed:
    """The labels two sources agree on: 1 or 0 per step, None where nothing is agreed, and the first error."""

    labels: tuple[float | None, ...]
    first_error: int | None


def said(row: Row, threshold: float | None = None) -> Said:
    """What a row says. With a threshold its first error is the first step whose P(correct) is below it, whatever the row says.

    Monte Carlo labels of K completions are hard for any threshold in (0, 1/K]: a step is right if one completion got there.
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
    """Agreement on the first error exactly (Qwen's consensus filter, arXiv 2501.07301, keeps about 40%)."""
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
    """Agreement of A on every step that B is sure of: right from `high` on, wrong up to `low` (VRPRM2: 0.125 and 0.75).

    Steps in between carry no label. A step after A's first error is not compared: A does not judge it.
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
