"""Estimate the accuracy of each selection rule with N candidates from scores, answers and correctness."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from critic_prm.metrics.bootstrap import REPLICATES, interval_of, of_sums, replicate, too_few
from critic_prm.metrics.scores import Array

SUBSETS = 200
"""Number of sampled subsets of N candidates for estimating the accuracy of a vote, if there are more subsets than this."""

_TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one problem. `right` marks the correct ones; `answers` has the index of their answers (-1: none);
    `scores` maps each scoring method to one score per candidate, -inf for a candidate without a score."""

    right: Array
    answers: Sequence[int]
    scores: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Point:
    """Accuracy with N candidates, over the `problems` that have at least N. `low` and `high` are the 95% interval over
    problems, None if there are too few; `se` is the standard error from sampling subsets, 0 for a closed form."""

    n: int
    accuracy: float
    low: float | None
    high: float | None
    problems: int
    se: float = 0.0


@lru_cache(maxsize=256)
def place_chances(m: int, n: int) -> Array:
    """P(the best of `n` candidates drawn from `m` has rank i) for i = 0..m-1: C(m-1-i, n-1) / C(m, n)."""
    chances = np.zeros(m)
    chance = n / m
    for place in range(m - n + 1):
        chances[place] = chance
        chance *= (m - place - n) / (m - place - 1) if place < m - 1 else 0.0
    chances.flags.writeable = False
    return chances


def best_of(scores: Array, right: Array, n: int) -> float:
    """The expected accuracy of taking the highest score among `n` candidates drawn without replacement.

    Exact and unbiased: a closed form over all subsets. Among candidates with equal scores, each is chosen equally often.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, y = scores[order], right[order].astype(np.float64)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(starts, len(y)))
    means = np.add.reduceat(y, starts) / sizes
    return float(np.add.reduceat(place_chances(len(y), n), starts) @ means)


def pass_at(right: Array, n: int) -> float:
    """P(at least one of `n` drawn candidates is right), the accuracy of an oracle (pass@k, Chen et al. 2021)."""
    return best_of(right.astype(np.float64), right, n)


def subsets(m: int, n: int, seed: int, most: int = SUBSETS) -> Array:
    """Rows of 0/1, each a subset of `n` out of `m`: all of them if there are at most `most`, otherwise `most` sampled ones."""
    if math.comb(m, n) <= most:
        chosen = np.array(list(combinations(range(m), n)))
    else:
        rng = np.random.Generator(np.random.PCG64([seed, m, n]))
        chosen = np.argsort(rng.random((most, m)), axis=1)[:, :n]
    rows = np.zeros((len(chosen), m))
    np.put_along_axis(rows, chosen, 1.0, axis=1)
    return rows


def vote_accuracies(rows: Array, answers: Sequence[int], right: Array, scores: Array | None = None) -> Array:
    """Accuracy of the (weighted) majority answer of each subset, shape (rows,). The winner has the largest sum of scores, or
    the most votes if there are no scores.

    Ties are broken by the highest single score; the accuracy is averaged over answers that still tie. Candidates without an
    answer do not vote and those without a score have weight 0; if all weights are 0, plain votes decide.
    """
    classes = max(answers, default=-1) + 1
    if not classes:
        return np.zeros(len(rows))
    places = np.asarray(answers)
    member = np.zeros((len(places), classes))
    voting = np.flatnonzero(places >= 0)
    member[voting, places[voting]] = 1.0
    truth = np.array([bool(right[places == answer].any()) for answer in range(classes)], dtype=np.float64)
    counts = rows @ member
    there = counts > 0
    if scores is None:
        return _mean_of(_tops(counts, there), truth)
    weights = np.where(np.isneginf(scores), 0.0, scores)
    totals = (rows * weights) @ member
    totals = np.where(totals.max(axis=1, keepdims=True) > 0, totals, counts)
    tied = _tops(totals, there)
    single = np.stack([(rows * (member[:, a] * (1 + weights))).max(axis=1) for a in range(classes)], axis=1)
    return _mean_of(_tops(single, tied), truth)


def _tops(values: Array, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    held = np.where(among, values, -np.inf)
    top: NDArray[np.bool_] = held >= held.max(axis=1, keepdims=True) - _TIE
    return top & among


def _mean_of(tied: NDArray[np.bool_], truth: Array) -> Array:
    ties = tied.sum(axis=1)
    return np.asarray((tied @ truth) / np.maximum(ties, 1))


def curve(
    pools: Sequence[Pool], sizes: Sequence[int], *, seed: int = 0, replicates: int = REPLICATES
) -> dict[str, list[Point]]:
    """The accuracy of every selection rule at every N in `sizes`: "random", "majority", "pass" and, for each scoring method,
    "best:NAME" and "vote:NAME".

    Best-of-N, pass and random are closed forms over all subsets. Votes have no closed form: their accuracy is the mean over all
    subsets, or over SUBSETS sampled ones, with the standard error given. Each N uses the problems with at least N candidates.
    """
    points: dict[str, list[Point]] = {}
    for n in sizes:
        there = [pool for pool in pools if len(pool.answers) >= n]
        if not there:
            continue
        rows = [_values(pool, n, seed) for pool in there]
        names = list(rows[0])
        values = np.array([[row[name][0] for name in names] for row in rows])
        errors = np.array([[row[name][1] for name in names] for row in rows])
        intervals = _intervals(values, seed, replicates)
        for at, name in enumerate(names):
            low, high = intervals[at]
            se = float(np.sqrt((errors[:, at] ** 2).sum()) / len(there))
            points.setdefault(name, []).append(Point(n, float(values[:, at].mean()), low, high, len(there), se))
    return points


def _values(pool: Pool, n: int, seed: int) -> dict[str, tuple[float, float]]:
    """(accuracy, standard error) of each selection rule for one problem."""
    rows = subsets(len(pool.answers), n, seed)
    all_of_them = math.comb(len(pool.answers), n) <= SUBSETS
    drawn: dict[str, Array] = {"majority": vote_accuracies(rows, pool.answers, pool.right)}
    found = {"random": (float(pool.right.mean()), 0.0), "pass": (pass_at(pool.right, n), 0.0)}
    for name, scores in pool.scores.items():
        found[f"best:{name}"] = (best_of(scores, pool.right, n), 0.0)
        drawn[f"vote:{name}"] = vote_accuracies(rows, pool.answers, pool.right, scores)
    for name, hits in drawn.items():
        found[name] = (float(hits.mean()), 0.0 if all_of_them else float(hits.std() / math.sqrt(len(hits))))
    return found


def _intervals(values: Array, seed: int, replicates: int) -> list[tuple[float | None, float | None]]:
    if too_few(len(values)):
        return [(None, None)] * values.shape[1]
    totals = np.concatenate([np.ones((len(values), 1)), values], axis=1)
    drawn, _ = replicate(of_sums(totals, lambda sums: sums[..., 1:] / sums[..., :1]), len(values), replicates, seed)
    found = [interval_of(column, len(values)) for column in drawn.T]
    return [(interval.low, interval.high) for interval in found]
