"""Choose the score threshold with the best official first-error F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from critic_prm.metrics.scores import official_f1


@dataclass(frozen=True, slots=True)
class Choice:
    """A threshold, and its accuracy on erroneous and on correct solutions of the data it was chosen on, with their F1.

    The metrics are None if there was no data to choose on.
    """

    threshold: float
    f1: float | None
    erroneous: float | None
    correct: float | None
    solutions: int


def choose_threshold(
    scores: Sequence[Sequence[float]],
    gold: Sequence[int | None],
    weights: Sequence[float] | None = None,
    grid: int = 400,
) -> Choice:
    """Choose the threshold with the best official first-error F1 (Zheng et al. 2024, ProcessBench).

    F1 is the harmonic mean of the exact-index accuracy on erroneous solutions and the accuracy on correct solutions, and 0 if
    both are 0. Solutions whose gold is None are skipped; `weights` (default 1) are per solution. The candidates are at most
    `grid` quantiles of the scores. Of equally good candidates, the middle one is taken, so that a single solution cannot move
    the threshold far. If erroneous or correct solutions are missing, the threshold is 0.5 and the F1 None.
    """
    known = [
        (np.asarray(s, dtype=np.float64), g, w)
        for s, g, w in zip(scores, gold, weights or [1.0] * len(gold), strict=True)
        if g is not None and len(s)
    ]
    bad = sum(w for _, g, w in known if g >= 0)
    good = sum(w for _, g, w in known if g < 0)
    if not bad or not good:
        return Choice(0.5, None, None, None, len(known))
    taus = _candidates(np.concatenate([s for s, _, _ in known]), grid)
    hit_bad, hit_good = np.zeros(len(taus)), np.zeros(len(taus))
    for s, g, w in known:
        # With a running minimum, "the first step below tau is g" means that the minimum before g is >= tau and that s[g] < tau.
        if g < 0:
            hit_good += w * (s.min() >= taus)
        else:
            hit_bad += w * ((s[g] < taus) & ((s[:g].min() if g else np.inf) >= taus))
    f1 = official_f1(np.stack(np.broadcast_arrays(bad, hit_bad, good, hit_good), axis=-1))
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    at = int(best[len(best) // 2])
    return Choice(float(taus[at]), float(f1[at]), float(hit_bad[at] / bad), float(hit_good[at] / good), len(known))


def _candidates(values: NDArray[np.float64], grid: int) -> NDArray[np.float64]:
    """Return the midpoints between neighbouring distinct scores, thinned to `grid` quantiles."""
    distinct = np.unique(values)
    if len(distinct) == 1:
        return distinct
    middles = (distinct[1:] + distinct[:-1]) / 2
    if len(middles) <= grid:
        return middles
    return np.unique(np.quantile(middles, np.linspace(0, 1, grid)))
