"""Cluster bootstrap: resample problems with all their solutions and steps, and compute confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from critic_prm.metrics.scores import Array, weighted_auroc

REPLICATES = 2000
LEVEL = 0.95
_CELLS = 1 << 22  # maximum number of float64 values at once, 32 MB


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile interval at level 0.95. The bounds are None, with a `reason`, if it cannot be computed."""

    low: float | None
    high: float | None
    sd: float | None = None
    """Standard deviation of the replicates."""
    problems: int = 0
    """Number of problems."""
    redrawn: int = 0
    """Number of replicates that lacked a class the statistic needs and were drawn again."""
    reason: str = ""
    """Why there is no interval."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A minus B on the same problems.

    `p` is two-sided: twice the smaller fraction of replicates at or beyond 0, add-one smoothed. None if there is no interval.
    """

    difference: float
    interval: Interval
    p: float | None


class Clusters:
    """Maps rows to problems. Problems are numbered in sorted order of their keys, so row order does not matter."""

    def __init__(self, problems: Sequence[Hashable]) -> None:
        keys = {key: place for place, key in enumerate(sorted(set(problems), key=repr))}
        self.count = len(keys)
        self.index = np.array([keys[key] for key in problems], dtype=np.int64)

    def sums(self, rows: Array) -> Array:
        """Sum the features of rows by problem: (n, f) to (problems, f)."""
        totals = np.zeros((self.count, rows.shape[1]))
        np.add.at(totals, self.index, rows)
        return totals


Statistic = Callable[[Array], Array]
"""Maps draw counts per problem, (replicates, problems), to the statistic, (replicates, ...); NaN where undefined."""


def replicate(statistic: Statistic, problems: int, replicates: int = REPLICATES, seed: int = 0) -> tuple[Array, int]:
    """The statistic on `replicates` resamples of `problems` problems, and the number of resamples that had to be drawn again.

    Raises ValueError if the statistic is undefined on nearly every resample.
    """
    done: list[Array] = []
    missing, redrawn = replicates, 0
    for turn in range(100):
        values = np.asarray(statistic(_draws(problems, missing, seed, turn)))
        bad = np.isnan(values.reshape(missing, -1)).any(axis=1)
        done.append(values[~bad])
        missing = int(bad.sum())
        redrawn += missing
        if not missing:
            return np.concatenate(done), redrawn
    raise ValueError("the statistic is not defined on resamples of so few problems")


@lru_cache(maxsize=4)  # all metrics of a subset use the same resamples, and drawing them dominates the run time
def _draws(problems: int, replicates: int, seed: int, turn: int) -> Array:
    rng = np.random.Generator(np.random.PCG64([seed, turn]))
    draws = rng.multinomial(problems, np.full(problems, 1 / problems), size=replicates).astype(np.float64)
    draws.flags.writeable = False
    return draws


def of_sums(totals: Array, statistic: Statistic) -> Statistic:
    """Statistic of a resample for a `statistic` that depends on summed features; `totals` are per problem, (problems, f)."""

    def resampled(draws: Array) -> Array:
        return statistic(draws @ totals)

    return resampled


def of_auroc(clusters: Clusters, good: ArrayLike, scores: ArrayLike) -> Statistic:
    """AUROC of a resample, for rows with these problems, classes and scores."""
    auroc = weighted_auroc(good, scores)
    chunk = max(1, _CELLS // max(1, len(clusters.index)))

    def resampled(draws: Array) -> Array:
        return np.concatenate([auroc(draws[first : first + chunk][:, clusters.index]) for first in range(0, len(draws), chunk)])

    return resampled


def interval_of(values: Array, problems: int, redrawn: int = 0, level: float = LEVEL) -> Interval:
    """The percentile interval of replicates."""
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(low, high, float(np.std(values)), problems, redrawn)


def bootstrap(
    statistic: Statistic, problems: int, replicates: int = REPLICATES, seed: int = 0
) -> tuple[Interval, Array | None]:
    """The interval of a statistic and its replicates. If it cannot be computed, the interval has a reason instead."""
    reason = too_few(problems)
    if not reason:
        try:
            values, redrawn = replicate(statistic, problems, replicates, seed)
            return interval_of(values, problems, redrawn), values
        except ValueError as error:
            reason = str(error)
    return Interval(None, None, problems=problems, reason=reason), None


def cluster_bootstrap(
    problems: Sequence[Hashable], rows: ArrayLike, statistic: Statistic, *, replicates: int = REPLICATES, seed: int = 0
) -> Interval:
    """The 95% interval of a statistic of summed features. `rows` is (n, f), one row per solution or step, with its problem in
    `problems`.

    Problems are resampled rather than rows because rows of one problem are correlated: ten solutions of one problem are not ten
    independent samples.
    """
    clusters = Clusters(problems)
    totals = clusters.sums(np.asarray(rows, dtype=np.float64))
    return bootstrap(of_sums(totals, statistic), clusters.count, replicates, seed)[0]


def paired_bootstrap(
    problems: Sequence[Hashable],
    rows_a: ArrayLike,
    rows_b: ArrayLike,
    statistic: Statistic,
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Difference:
    """The difference of a statistic between A and B on the same rows in the same order. Both use the same resamples."""
    return paired_replicates(Clusters(problems), rows_a, rows_b, statistic, replicates, seed)[0]


def paired_replicates(
    clusters: Clusters, rows_a: ArrayLike, rows_b: ArrayLike, statistic: Statistic, replicates: int, seed: int
) -> tuple[Difference, Array | None]:
    """The difference of `paired_bootstrap` and its replicates, None without an interval."""
    a, b = (clusters.sums(np.asarray(rows, dtype=np.float64)) for rows in (rows_a, rows_b))

    def resampled(draws: Array) -> Array:
        return statistic(draws @ a) - statistic(draws @ b)

    difference = float(statistic(a.sum(axis=0)) - statistic(b.sum(axis=0)))
    interval, values = bootstrap(resampled, clusters.count, replicates, seed)
    return Difference(difference, interval, None if values is None else two_sided(values)), values


def ratio(sums: Array) -> Array:
    """The second sum divided by the first: the mean of rows (1, value). NaN if the first sum is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 1] / sums[..., 0])


def mean_interval(
    problems: Sequence[Hashable], values: Sequence[float], *, replicates: int = REPLICATES, seed: int = 0
) -> Interval:
    """The 95% interval of the mean of values, such as the share of correct answers."""
    return cluster_bootstrap(problems, [(1.0, value) for value in values], ratio, replicates=replicates, seed=seed)


def mean_difference(problems: Sequence[Hashable], a: Sequence[float], b: Sequence[float]) -> Difference:
    """The mean of `a` minus the mean of `b`, which are values of the same items."""
    rows_a, rows_b = ([(1.0, value) for value in side] for side in (a, b))
    return paired_bootstrap(problems, rows_a, rows_b, ratio)


def two_sided(values: Array) -> float:
    """The two-sided p-value for "no difference" from replicates of a difference."""
    at_most, at_least = int(np.sum(values <= 0)), int(np.sum(values >= 0))
    return min(1.0, 2 * (min(at_most, at_least) + 1) / (len(values) + 1))


def too_few(problems: int) -> str:
    """Why there are too few problems for an interval; "" if there are enough."""
    return "" if problems > 1 else f"{problems} problem{'' if problems == 1 else 's'} cannot show how much problems differ"
