"""Rows of features a problem in, effects with intervals and corrected p-values out."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from critic_prm.metrics.bootstrap import REPLICATES, Clusters, interval_of, of_sums, replicate, too_few, two_sided
from critic_prm.metrics.scores import Array

PERMUTATIONS = 1999
_CELLS = 1 << 22  # at most this many float64 at once, 32 MB


@dataclass(frozen=True, slots=True)
class Effect:
    """A number with its 95% interval over problems and a two-sided p-value for 0; None where they are not defined."""

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n: int = 0


def effect(
    problems: Sequence[Hashable],
    rows: ArrayLike,
    statistic: Callable[[Array], Array],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Effect:
    """A statistic of summed rows of features (n, f), and what resampling whole problems says of it."""
    features = np.asarray(rows, dtype=np.float64)
    n = len(features)
    if not n:
        return Effect(None)
    value = float(statistic(features.sum(axis=0)))
    if np.isnan(value):
        return Effect(None, n=n)
    clusters = Clusters(problems)
    if too_few(clusters.count):
        return Effect(value, n=n)
    try:
        values, _ = replicate(of_sums(clusters.sums(features), statistic), clusters.count, replicates, seed)
    except ValueError:
        return Effect(value, n=n)
    interval = interval_of(values, clusters.count)
    return Effect(value, interval.low, interval.high, two_sided(values), n)


def mean_effect(
    problems: Sequence[Hashable], values: Sequence[float], *, replicates: int = REPLICATES, seed: int = 0
) -> Effect:
    """The mean of values, and whether it is other than 0."""
    return effect(problems, [(1.0, value) for value in values], ratio, replicates=replicates, seed=seed)


def ratio(sums: Array) -> Array:
    """The second sum over the first; NaN for none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 1] / sums[..., 0])


def ranks(values: ArrayLike) -> Array:
    """Mid-ranks scaled to [0, 1]: what a rank correlation correlates."""
    _, place, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(middle[place] / max(1, len(place) - 1))


def within(groups: Sequence[Hashable], values: ArrayLike) -> Array:
    """Values less the mean of their group."""
    clusters = Clusters(groups)
    flat = np.asarray(values, dtype=np.float64)
    totals = clusters.sums(np.stack([np.ones_like(flat), flat], axis=1))
    return np.asarray(flat - (totals[:, 1] / totals[:, 0])[clusters.index])


def correlation(sums: Array) -> Array:
    """Sum of xy over the root of the sums of xx and yy; NaN where one of them does not vary."""
    with np.errstate(invalid="ignore", divide="ignore"):
        varies = (sums[..., 1] > 1e-12) & (sums[..., 2] > 1e-12)
        return np.where(varies, sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2]), np.nan)


def correct(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for their number so that at most a share q of the findings below q is false (Benjamini and Hochberg
    1995); None stays None and does not count."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    out: list[float | None] = [None] * len(p_values)
    least = 1.0
    for rank in range(len(known), 0, -1):
        p, place = known[rank - 1]
        least = min(least, p * len(known) / rank)
        out[place] = least
    return out


def stability(old: Array, new: Array) -> Array:
    """The population stability index of counts in bins, shape (..., bins): the sum of (q - p) log(q / p), each bin with half a
    count added so that an empty one is not infinite."""
    p, q = old + 0.5, new + 0.5
    p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
    return np.asarray(((q - p) * np.log(q / p)).sum(axis=-1))


def distance(old: Array, new: Array) -> Array:
    """Kolmogorov and Smirnov's distance from counts in bins in order, shape (..., bins); NaN without counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        one = np.cumsum(old, axis=-1) / old.sum(axis=-1, keepdims=True)
        other = np.cumsum(new, axis=-1) / new.sum(axis=-1, keepdims=True)
    return np.asarray(np.abs(one - other).max(axis=-1))


def permuted(old: Array, new: Array, paired: bool, seed: int = 0, permutations: int = PERMUTATIONS) -> tuple[Array, Array]:
    """The sums of both sides, (permutations, f), with problems between them exchanged by chance.

    `old` and `new` are (problems, f). With `paired`, each problem is on both sides and may change them over; else each is on
    one side, with zeros on the other, and the sides keep their numbers of problems.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    side = (new == 0).all(axis=1)
    both = old + new
    size = max(1, _CELLS // max(1, len(old)))
    parts = []
    for first in range(0, permutations, size):
        count = min(size, permutations - first)
        if paired:
            stays = rng.integers(0, 2, (count, len(old))).astype(np.float64)
            parts.append(stays @ old + (1 - stays) @ new)
        else:
            parts.append((1.0 - rng.permuted(np.tile(side, (count, 1)), axis=1)) @ both)
    one = np.concatenate(parts)
    return one, both.sum(axis=0) - one


def chance(observed: float, by_chance: Array) -> float | None:
    """How often chance is as far from 0 as what was observed, the observation counted; None where it is not defined."""
    if np.isnan(observed):
        return None
    known = by_chance[~np.isnan(by_chance)]
    return float((1 + np.sum(np.abs(known) >= abs(observed) - 1e-12)) / (len(known) + 1))
