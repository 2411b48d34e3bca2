"""Effects with intervals and corrected p-values from features per problem."""

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
    """A value with its 95% interval over problems and a two-sided p-value against 0; None where undefined."""

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
    """A statistic of summed feature rows (n, f), with interval and p-value from resampling whole problems."""
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
    """The mean of values, tested against 0."""
    return effect(problems, [(1.0, value) for value in values], ratio, replicates=replicates, seed=seed)


def ratio(sums: Array) -> Array:
    """The second sum divided by the first; NaN if the first is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 1] / sums[..., 0])


def ranks(values: ArrayLike) -> Array:
    """Mid-ranks scaled to [0, 1], for rank correlations."""
    _, place, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - (counts + 1) / 2
    return np.asarray(middle[place] / max(1, len(place) - 1))


def within(groups: Sequence[Hashable], values: ArrayLike) -> Array:
    """Values minus the mean of their group."""
    clusters = Clusters(groups)
    flat = np.asarray(values, dtype=np.float64)
    totals = clusters.sums(np.stack([np.ones_like(flat), flat], axis=1))
    return np.asarray(flat - (totals[:, 1] / totals[:, 0])[clusters.index])


def correlation(sums: Array) -> Array:
    """Sum of xy over the square root of the sums of xx and yy; NaN if one of them does not vary."""
    with np.errstate(invalid="ignore", divide="ignore"):
        varies = (sums[..., 1] > 1e-12) & (sums[..., 2] > 1e-12)
        return np.where(varies, sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2]), np.nan)


def correct(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for multiple testing, controlling the false discovery rate (Benjamini and Hochberg 1995). None stays
    None and is not counted as a test."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    out: list[float | None] = [None] * len(p_values)
    least = 1.0
    for rank in range(len(known), 0, -1):
        p, place = known[rank - 1]
        least = min(least, p * len(known) / rank)
        out[place] = least
    return out


def stability(old: Array, new: Array) -> Array:
    """The population stability index of bin counts, shape (..., bins): the sum of (q - p) log(q / p). Half a count is added to
    each bin so that empty bins stay finite."""
    p, q = old + 0.5, new + 0.5
    p, q = p / p.sum(axis=-1, keepdims=True), q / q.sum(axis=-1, keepdims=True)
    return np.asarray(((q - p) * np.log(q / p)).sum(axis=-1))


def distance(old: Array, new: Array) -> Array:
    """Kolmogorov-Smirnov distance from counts in ordered bins, shape (..., bins); NaN without counts."""
    with np.errstate(invalid="ignore", divide="ignore"):
        one = np.cumsum(old, axis=-1) / old.sum(axis=-1, keepdims=True)
        other = np.cumsum(new, axis=-1) / new.sum(axis=-1, keepdims=True)
    return np.asarray(np.abs(one - other).max(axis=-1))


def permuted(old: Array, new: Array, paired: bool, seed: int = 0, permutations: int = PERMUTATIONS) -> tuple[Array, Array]:
    """The sums of both sides, (permutations, f), under random exchange of problems between them.

    `old` and `new` are (problems, f). With `paired`, each problem is on both sides and its two rows may be swapped; otherwise
    each problem is on one side, with zeros on the other, and the number of problems per side stays fixed.
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
    """Permutation p-value: how often the permuted statistic is at least as far from 0 as the observed one, counting the
    observation itself; None if undefined."""
    if np.isnan(observed):
        return None
    known = by_chance[~np.isnan(by_chance)]
    return float((1 + np.sum(np.abs(known) >= abs(observed) - 1e-12)) / (len(known) + 1))
