"""Metrics of predictions: first-error and binary F1, AUROC, calibration, PRMScore and agreement of judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def first_below(p_correct: Sequence[float | None], threshold: float) -> int:
    """The first step with p < threshold, else -1. A step with p == threshold is good; steps without a score are skipped."""
    return next((i for i, p in enumerate(p_correct) if p is not None and p < threshold), -1)


@dataclass(frozen=True, slots=True)
class FirstError:
    """ProcessBench's score. `erroneous` and `correct` are accuracies in [0, 1], each None without such solutions; `f1` is None
    if either is."""

    f1: float | None
    erroneous: float | None
    correct: float | None
    n_erroneous: int
    n_correct: int


def first_error_rows(gold: Sequence[int] | NDArray[np.int64], predicted: Sequence[int | None] | NDArray[np.int64]) -> Array:
    """Indicator rows summed by `official_f1`, one per solution: (erroneous, first error found exactly, correct, accepted).
    Shape (n, 4)."""
    g, p = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)  # None becomes nan, which equals nothing
    if g.shape != p.shape:
        raise ValueError(f"{len(g)} gold labels and {len(p)} predictions")
    return np.stack([g >= 0, (g >= 0) & (p == g), g < 0, (g < 0) & (p == -1)], axis=-1).astype(np.float64)


def official_f1(sums: Array) -> Array:
    """ProcessBench's F1 (Zheng et al. 2024) from sums of first_error_rows, shape (..., 4).

    The harmonic mean of the accuracy of the first error's index on erroneous solutions and the accuracy on correct ones. 0 if
    both are 0, NaN if one kind is missing.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        a, c = sums[..., 1] / sums[..., 0], sums[..., 3] / sums[..., 2]
        return np.where(a + c == 0, 0.0, 2 * a * c / (a + c))


def first_error_f1(gold: Sequence[int], predicted: Sequence[int | None]) -> FirstError:
    """ProcessBench's official score. Both arguments are 0-based, -1 for no error. A prediction of None (unusable) counts as
    wrong."""
    sums = first_error_rows(gold, predicted).sum(axis=0)
    erroneous, hit_erroneous, correct, hit_correct = sums.tolist()
    return FirstError(
        f1=number(official_f1(sums)),
        erroneous=hit_erroneous / erroneous if erroneous else None,
        correct=hit_correct / correct if correct else None,
        n_erroneous=int(erroneous),
        n_correct=int(correct),
    )


def binary_rows(gold: Sequence[int], predicted: Sequence[int | None], positive: Literal["error", "correct"]) -> Array:
    """Indicator rows summed by `plain_f1`: (true positive, false positive, false negative, true negative). Shape (n, 4)."""
    rows = []
    for g, p in zip(gold, predicted, strict=True):
        truth = (g >= 0) == (positive == "error")
        positive_call = not truth if p is None else (p >= 0) == (positive == "error")
        rows.append(
            (truth and positive_call, positive_call and not truth, truth and not positive_call, not truth and not positive_call)
        )
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def plain_f1(sums: Array) -> Array:
    """2 tp / (2 tp + fp + fn) from sums of (tp, fp, fn, tn), shape (..., 4); NaN if nothing is or was predicted positive."""
    tp, fp, fn = sums[..., 0], sums[..., 1], sums[..., 2]
    with np.errstate(invalid="ignore"):
        return np.asarray(2 * tp / (2 * tp + fp + fn))


def binary_f1(gold: Sequence[int], predicted: Sequence[int | None], positive: Literal["error", "correct"]) -> float | None:
    """F1 of detecting whether a solution contains an error, regardless of position. An unusable prediction counts as wrong.

    ThinkPRM (Khalifa et al. 2025) calls this ProcessBench F1. The positive class is assumed to be the correct solutions because
    only this reproduces its results for random guessing (39.1 on OlympiadBench, 32.7 on Omni-MATH): guessing gives 40 and 33
    with correct as the positive class, and 57 and 60 with error.
    """
    return number(plain_f1(binary_rows(gold, predicted, positive).sum(axis=0)))


def confusion_rows(good: ArrayLike, said_good: ArrayLike) -> Array:
    """Indicator rows (tp, fp, fn, tn), one per step, with good steps as the positive class. Shape (n, 4)."""
    y, s = np.asarray(good, dtype=bool), np.asarray(said_good, dtype=bool)
    return np.stack([y & s, ~y & s, y & ~s, ~y & ~s], axis=-1).astype(np.float64)


def prm_score_of(sums: Array) -> Array:
    """PRMScore from sums of confusion_rows, shape (..., 4); NaN if an F1 it needs is undefined.

    Without bad steps it is the F1 of the good ones, as for PRMBench's class multi_solutions.
    """
    good, bad = plain_f1(sums), plain_f1(sums[..., ::-1])
    return np.where(sums[..., 1] + sums[..., 3] == 0, good, (good + bad) / 2)


def prm_score(good: ArrayLike, said_good: ArrayLike) -> float | None:
    """PRMBench's PRMScore (Song et al. 2025): the mean of two F1 scores, with good and with bad steps as the positive class."""
    return number(prm_score_of(confusion_rows(good, said_good).sum(axis=0)))


def weighted_auroc(good: ArrayLike, scores: ArrayLike) -> Callable[[Array], Array]:
    """The AUROC of steps with these classes and scores, as a function of their weights, shape (..., n); NaN if a class has no
    weight."""
    s = np.asarray(scores, dtype=np.float64)
    order = np.argsort(s, kind="stable")
    y = np.asarray(good, dtype=bool)[order]
    starts = np.flatnonzero(np.diff(s[order], prepend=-np.inf))

    def of(weights: Array) -> Array:
        ordered = weights[..., order]
        above = np.add.reduceat(np.where(y, ordered, 0.0), starts, axis=-1)
        below = np.add.reduceat(np.where(y, 0.0, ordered), starts, axis=-1)
        wins = (above * (np.cumsum(below, axis=-1) - below / 2)).sum(axis=-1)
        with np.errstate(invalid="ignore"):
            return np.asarray(wins / (above.sum(axis=-1) * below.sum(axis=-1)))

    return of


def auroc(good: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None) -> float | None:
    """P(a good step scores above a bad one); ties count half (mid-ranks). None unless there are both good and bad steps."""
    y = np.asarray(good, dtype=bool)
    if not y.any() or y.all():
        return None
    return number(weighted_auroc(y, scores)(np.ones(len(y)) if weights is None else np.asarray(weights, dtype=np.float64)))


def brier(good: ArrayLike, scores: ArrayLike, weights: ArrayLike | None = None) -> float | None:
    """Weighted mean of (p - y)^2. None without steps. `good` may be soft labels."""
    y, p = np.asarray(good, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    return float(np.average((p - y) ** 2, weights=None if weights is None else np.asarray(weights))) if len(y) else None


def log_loss(good: ArrayLike, scores: ArrayLike, epsilon: float = 1e-6) -> float | None:
    """Mean negative log-likelihood in nats, with p clipped to [epsilon, 1 - epsilon]. None without steps."""
    y, p = np.asarray(good, dtype=np.float64), np.clip(np.asarray(scores, dtype=np.float64), epsilon, 1 - epsilon)
    return float(-np.mean(y * np.log(p) + (1 - y) * np.log1p(-p))) if len(y) else None


def bin_rows(good: ArrayLike, scores: ArrayLike, bins: int = 10) -> Array:
    """Rows summed by `ece_of`: for each of `bins` equal-width bins (a, b], the count, sum of p and sum of y. Shape (n, bins *
    3)."""
    y, p = np.asarray(good, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    rows = np.zeros((len(p), bins, 3))
    place = np.digitize(p, np.arange(1, bins) / bins, right=True)
    rows[np.arange(len(p)), place] = np.stack([np.ones_like(p), p, y], axis=-1)
    return rows.reshape(len(p), bins * 3)


def ece_of(sums: Array) -> Array:
    """Expected calibration error from sums of bin_rows, shape (..., bins * 3); NaN without steps."""
    cells = sums.reshape(*sums.shape[:-1], -1, 3)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(cells[..., 1] - cells[..., 2]).sum(axis=-1) / cells[..., 0].sum(axis=-1))


def ece(good: ArrayLike, scores: ArrayLike, bins: int = 10, mass: Literal["width", "mass"] = "width") -> float | None:
    """Expected calibration error: sum over bins of n_b / n * |mean y - mean p|. None without steps.

    Bins are (a, b] of equal width; with mass="mass" they hold equally many steps in order of score (sizes differ by at most
    one).
    """
    y, p = np.asarray(good, dtype=np.float64), np.asarray(scores, dtype=np.float64)
    if not len(p):
        return None
    if mass == "width":
        return number(ece_of(bin_rows(y, p, bins).sum(axis=0)))
    order = np.lexsort((y, p))
    return float(sum(abs(y[part].sum() - p[part].sum()) for part in np.array_split(order, bins)) / len(p))


def step_accuracy(good: ArrayLike, said_good: ArrayLike) -> float | None:
    """The fraction of steps classified correctly. None without steps."""
    y, s = np.asarray(good, dtype=bool), np.asarray(said_good, dtype=bool)
    return float(np.mean(y == s)) if len(y) else None


def cohen_kappa(one: Sequence[Hashable], other: Sequence[Hashable]) -> float | None:
    """Agreement of two judges beyond chance (Cohen 1960), from -1 to 1. None if the expected agreement is 1."""
    n = len(one)
    observed = sum(a == b for a, b in zip(one, other, strict=True))
    left, right = Counter(one), Counter(other)
    expected = sum(count * right[value] for value, count in left.items())
    return (observed * n - expected) / (n * n - expected) if n * n != expected else None


def fleiss_kappa(counts: ArrayLike) -> float | None:
    """Agreement of several judges beyond chance (Fleiss 1971). `counts[i, c]` is the number of judges that put item i into
    category c; every item has the same number of judges, at least two. None if all judgements are equal. Raises ValueError
    for unequal numbers."""
    table = np.asarray(counts, dtype=np.float64)
    judges = table.sum(axis=1)
    if not len(table) or judges.min() < 2 or judges.min() != judges.max():
        raise ValueError("Fleiss' kappa needs the same number of judges, at least two, for every item")
    n = judges[0]
    observed = ((table * (table - 1)).sum(axis=1) / (n * (n - 1))).mean()
    expected = ((table.sum(axis=0) / table.sum()) ** 2).sum()
    return float((observed - expected) / (1 - expected)) if expected < 1 else None


def midranks(values: ArrayLike) -> Array:
    """The ranks of values, from 1; equal values share their mean rank."""
    _, place, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])


def number(value: ArrayLike) -> float | None:
    """Convert to float, and NaN to None, because an undefined value must not be averaged."""
    plain = float(np.asarray(value))
    return None if np.isnan(plain) else plain
