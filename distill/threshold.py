"""Calibrated step scores and gold first errors in, a threshold by official first-error F1 out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Choice:
    """A threshold and what it gives where it was chosen: accuracy on erroneous and on correct solutions, and their F1."""

    threshold: float
    f1: float
    erroneous: float
    correct: float
    solutions: int


def first_below(scores: Sequence[float], threshold: float) -> int:
    """The first step with p < threshold, -1 when there is none: p == threshold is good (ProcessBench's reading)."""
    return next((index for index, p in enumerate(scores) if p < threshold), -1)


def choose_threshold(
    scores: Sequence[Sequence[float]],
    gold: Sequence[int | None],
    weights: Sequence[float] | None = None,
    grid: int = 400,
) -> Choice:
    """The threshold with the best official first-error F1: the harmonic mean of exact-index accuracy on erroneous and of
    accuracy on correct solutions, 0 when both are 0 (Zheng et al. 2024, ProcessBench).

    Solutions whose gold is None are left out; `weights` (default 1) weigh solutions. Candidates are at most `grid` quantiles
    of the scores; of equal ones the middle is taken, so that one solution more or less does not move it far. Where one of the
    two kinds is missing there is nothing to choose by: 0.5.
    """
    known = _known(scores, gold, weights)
    if not _both(known):
        return Choice(0.5, 0.0, 0.0, 0.0, len(known))
    taus = _candidates(np.concatenate([s for s, _, _ in known]), grid)
    return _choice(known, taus, _curve(known, taus)[0])


def robust_threshold(
    scores: Sequence[Sequence[float]],
    gold: Sequence[int | None],
    sources: Sequence[str],
    weights: Sequence[float] | None = None,
) -> Choice:
    """A threshold for sources not seen yet: the best of the F1 curve averaged over sources and over neighbouring thresholds.

    A pooled curve takes its erroneous solutions from some sources and its correct ones from others, and its best point is
    often a spike. Each source that has FEWEST solutions of either kind gives a curve of its own, weighted by its size; the
    average is smoothed over thresholds within SMOOTHING. Without such a source the pooled curve is smoothed. The figures of the
    choice are those of all solutions together. See bench/RESULTS.md for what this was measured against.
    """
    known = _known(scores, gold, weights)
    if not _both(known):
        return Choice(0.5, 0.0, 0.0, 0.0, len(known))
    taus = np.linspace(0.0, 1.0, GRID + 1)
    names = [source for source, g, s in zip(sources, gold, scores, strict=True) if g is not None and len(s)]
    curves, sizes = [], []
    for name in sorted(set(names)):
        part = [entry for entry, source in zip(known, names, strict=True) if source == name]
        bad = sum(g >= 0 for _, g, _ in part)
        if min(bad, len(part) - bad) >= FEWEST and _both(part):
            curves.append(_curve(part, taus)[0])
            sizes.append(sum(w for *_, w in part))
    curve = np.average(curves, axis=0, weights=sizes) if curves else _curve(known, taus)[0]
    reach = round(SMOOTHING * GRID)
    window = np.ones(2 * reach + 1) / (2 * reach + 1)
    return _choice(known, taus, np.convolve(np.pad(curve, reach, "edge"), window, "valid"))


GRID, FEWEST, SMOOTHING = 400, 3, 0.02

_Known = list[tuple[NDArray[np.float64], int, float]]
"""Scores, gold first error and weight of every solution whose gold is known."""


def _known(scores: Sequence[Sequence[float]], gold: Sequence[int | None], weights: Sequence[float] | None) -> _Known:
    every = zip(scores, gold, weights or [1.0] * len(gold), strict=True)
    return [(np.asarray(s, dtype=np.float64), g, w) for s, g, w in every if g is not None and len(s)]


def _both(known: _Known) -> bool:
    return any(g >= 0 and w > 0 for _, g, w in known) and any(g < 0 and w > 0 for _, g, w in known)


def _curve(known: _Known, taus: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """F1, accuracy on erroneous and on correct solutions at every threshold."""
    hit_bad, hit_good = np.zeros(len(taus)), np.zeros(len(taus))
    for s, g, w in known:
        # "The first step below tau is g" reads: the minimum before g is >= tau, and s[g] < tau.
        if g < 0:
            hit_good += w * (s.min() >= taus)
        else:
            hit_bad += w * ((s[g] < taus) & ((s[:g].min() if g else np.inf) >= taus))
    a = hit_bad / sum(w for _, g, w in known if g >= 0)
    c = hit_good / sum(w for _, g, w in known if g < 0)
    return np.where(a + c > 0, 2 * a * c / np.maximum(a + c, 1e-300), 0.0), a, c


def _choice(known: _Known, taus: NDArray[np.float64], curve: NDArray[np.float64]) -> Choice:
    """The middle of the best thresholds of `curve`, with what it gives on all solutions."""
    best = np.flatnonzero(curve >= curve.max() - 1e-12)
    tau = taus[best[len(best) // 2]]
    f1, a, c = (float(values[0]) for values in _curve(known, np.array([tau])))
    return Choice(float(tau), f1, a, c, len(known))


def _candidates(values: NDArray[np.float64], grid: int) -> NDArray[np.float64]:
    """Midpoints between neighbouring distinct scores, thinned to `grid` quantiles."""
    distinct = np.unique(values)
    if len(distinct) == 1:
        return distinct
    middles = (distinct[1:] + distinct[:-1]) / 2
    if len(middles) <= grid:
        return middles
    return np.unique(np.quantile(middles, np.linspace(0, 1, grid)))
