"""Choose how scores become a first error: calibration, threshold, and the intervals of their metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from critic_prm.metrics.bootstrap import Clusters, cluster_bootstrap, interval_of, of_auroc, replicate, too_few
from critic_prm.metrics.scores import brier, first_error_rows, official_f1


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
    labelled = [
        (np.asarray(s, dtype=np.float64), g, w)
        for s, g, w in zip(scores, gold, weights or [1.0] * len(gold), strict=True)
        if g is not None and len(s)
    ]
    bad = sum(w for _, g, w in labelled if g >= 0)
    good = sum(w for _, g, w in labelled if g < 0)
    if not bad or not good:
        return Choice(0.5, None, None, None, len(labelled))
    taus = _candidates(np.concatenate([s for s, _, _ in labelled]), grid)
    hit_bad, hit_good = np.zeros(len(taus)), np.zeros(len(taus))
    for s, g, w in labelled:
        # With a running minimum, "the first step below tau is g" means that the minimum before g is >= tau and that s[g] < tau.
        if g < 0:
            hit_good += w * (s.min() >= taus)
        else:
            hit_bad += w * ((s[g] < taus) & ((s[:g].min() if g else np.inf) >= taus))
    f1 = official_f1(np.stack(np.broadcast_arrays(bad, hit_bad, good, hit_good), axis=-1))
    best = np.flatnonzero(f1 >= f1.max() - 1e-12)
    at = int(best[len(best) // 2])
    return Choice(float(taus[at]), float(f1[at]), float(hit_bad[at] / bad), float(hit_good[at] / good), len(labelled))


def _candidates(values: NDArray[np.float64], grid: int) -> NDArray[np.float64]:
    """Return the midpoints between neighbouring distinct scores, thinned to `grid` quantiles."""
    distinct = np.unique(values)
    if len(distinct) == 1:
        return distinct
    middles = (distinct[1:] + distinct[:-1]) / 2
    if len(middles) <= grid:
        return middles
    return np.unique(np.quantile(middles, np.linspace(0, 1, grid)))


Floats = NDArray[np.float64]
EPS = 1e-6


@dataclass(frozen=True, slots=True)
class Calibration:
    """A map from raw to calibrated P(correct), fully described by `method` and `parameters`, which are stored as JSON."""

    method: str = "identity"
    parameters: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __call__(self, p: Floats) -> Floats:
        return _APPLY[self.method](np.asarray(p, dtype=np.float64), self.parameters)

    def to_json(self) -> dict[str, Any]:
        return {"method": self.method, "parameters": {k: list(v) for k, v in self.parameters.items()}}


def calibration_from_json(value: Mapping[str, Any]) -> Calibration:
    """Restore what `to_json` wrote. Raises ValueError or KeyError for an unknown method."""
    if value["method"] not in _APPLY:
        raise ValueError(f"calibration method {value['method']!r} is unknown; available: {', '.join(_APPLY)}")
    parameters = {k: [float(x) for x in v] for k, v in value["parameters"].items()}
    if not all(np.isfinite(v).all() for v in parameters.values()):
        raise ValueError("its calibration contains numbers that are not finite")
    calibration = Calibration(value["method"], parameters)
    if not np.isfinite(calibration(np.array([0.0, 0.5, 1.0]))).all():
        raise ValueError("its calibration maps scores to values that are not finite")
    return calibration


def fit(method: str, p: Floats, y: Floats, w: Floats) -> Calibration:
    """Fit one method to raw scores `p`, soft labels `y` in [0, 1] and weights `w`, each of shape (n,)."""
    return Calibration(method, _FIT[method](p, y, w))


def choose(p: Floats, y: Floats, w: Floats, groups: Sequence[str], folds: int = 5) -> tuple[Calibration, dict[str, float]]:
    """Choose the method with the lowest Brier score cross-fitted over `groups` (problems), and refit it to all data.

    Returns it with the Brier score of every method. Cross-fitting is necessary: on its own fitting data, isotonic always wins.
    """
    names = sorted(set(groups))
    fold_of = {name: index % folds for index, name in enumerate(np.random.default_rng(0).permutation(names).tolist())}
    fold = np.array([fold_of[g] for g in groups])
    scores: dict[str, float] = {}
    for method in _FIT:
        out = np.empty_like(p)
        for k in range(folds):
            held = fold == k
            if not held.any():
                continue
            calibration = fit(method, p[~held], y[~held], w[~held]) if (~held).any() else Calibration()
            out[held] = calibration(p[held])
        scores[method] = cast(float, brier(y, out, w))
    best = min(scores, key=lambda name: scores[name])
    return fit(best, p, y, w), scores


def logit(p: Floats) -> Floats:
    q = np.clip(p, EPS, 1 - EPS)
    return np.log(q / (1 - q))


def sigmoid(z: Floats) -> Floats:
    out: Floats = 0.5 * (1.0 + np.tanh(0.5 * z))
    return out


def _minimize(features: Floats, y: Floats, w: Floats, start: Floats, lower: Floats | None = None) -> Floats:
    """Minimize the weighted logistic loss of `features @ theta`, with an optional lower bound per coefficient."""
    from scipy.optimize import minimize

    total = w.sum()

    def loss(theta: Floats) -> tuple[float, Floats]:
        z = features @ theta
        value = float(w @ (np.logaddexp(0.0, z) - y * z) / total)
        return value, features.T @ (w * (sigmoid(z) - y)) / total

    bounds = None if lower is None else [(low, None) for low in lower]
    result: Floats = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return result


def _fit_identity(p: Floats, y: Floats, w: Floats) -> dict[str, list[float]]:
    return {}


def _fit_temperature(p: Floats, y: Floats, w: Floats) -> dict[str, list[float]]:
    inverse = _minimize(logit(p)[:, None], y, w, np.array([1.0]), np.array([0.05]))
    return {"temperature": [float(1.0 / inverse[0])]}


def _fit_platt(p: Floats, y: Floats, w: Floats) -> dict[str, list[float]]:
    z = np.stack([logit(p), np.ones_like(p)], axis=1)
    return {"slope_intercept": _minimize(z, y, w, np.array([1.0, 0.0]), np.array([0.05, -np.inf])).tolist()}


def _fit_beta(p: Floats, y: Floats, w: Floats) -> dict[str, list[float]]:
    """Fit beta calibration: logit p' = a log p - b log(1 - p) + c with a, b >= 0 (Kull et al., 2017)."""
    start, lower = np.array([1.0, 1.0, 0.0]), np.array([0.0, 0.0, -np.inf])
    return {"abc": _minimize(_beta_features(p), y, w, start, lower).tolist()}


def _fit_isotonic(p: Floats, y: Floats, w: Floats) -> dict[str, list[float]]:
    from sklearn.isotonic import IsotonicRegression

    floor = 1.0 / (2 * len(p))
    model = IsotonicRegression(y_min=floor, y_max=1 - floor, out_of_bounds="clip").fit(p, y, sample_weight=w)
    return {"x": model.X_thresholds_.tolist(), "y": model.y_thresholds_.tolist()}


def _beta_features(p: Floats) -> Floats:
    q = np.clip(p, EPS, 1 - EPS)
    return np.stack([np.log(q), -np.log1p(-q), np.ones_like(q)], axis=1)


_FIT: dict[str, Callable[[Floats, Floats, Floats], dict[str, list[float]]]] = {
    "identity": _fit_identity,
    "temperature": _fit_temperature,
    "platt": _fit_platt,
    "beta": _fit_beta,
    "isotonic": _fit_isotonic,
}

_APPLY: dict[str, Callable[[Floats, Mapping[str, Sequence[float]]], Floats]] = {
    "identity": lambda p, q: p,
    "temperature": lambda p, q: sigmoid(logit(p) / q["temperature"][0]),
    "platt": lambda p, q: sigmoid(q["slope_intercept"][0] * logit(p) + q["slope_intercept"][1]),
    "beta": lambda p, q: sigmoid(_beta_features(p) @ np.asarray(q["abc"], dtype=np.float64)),
    "isotonic": lambda p, q: np.interp(p, q["x"], q["y"]),
}


REPLICATES = 1000
Bounds = list[float] | None


def auroc_interval(problems: Sequence[str], right: Any, p: Any) -> Bounds:
    """Interval of the step AUROC, from the problem, class and score of each step. None if it is undefined."""
    clusters = Clusters(problems)
    if too_few(clusters.count):
        return None
    try:
        values, redrawn = replicate(of_auroc(clusters, right, p), clusters.count, REPLICATES)
    except ValueError:
        return None
    interval = interval_of(values, clusters.count, redrawn)
    return None if interval.low is None or interval.high is None else [interval.low, interval.high]


def brier_interval(problems: Sequence[str], p: Any, y: Any, w: Any) -> Bounds:
    """Interval of the weighted Brier score of steps."""
    rows = np.stack([np.asarray(w) * (np.asarray(p) - y) ** 2, np.asarray(w)], axis=1)
    interval = cluster_bootstrap(problems, rows, lambda sums: sums[..., 0] / sums[..., 1], replicates=REPLICATES)
    return None if interval.low is None or interval.high is None else [interval.low, interval.high]


def f1_interval(problems: Sequence[str], gold: Sequence[int], predicted: Sequence[int]) -> Bounds:
    """Interval of the official first-error F1, from the gold and predicted first errors of solutions.

    None if it is undefined.
    """
    if len({first < 0 for first in gold}) < 2:
        return None
    interval = cluster_bootstrap(problems, first_error_rows(gold, predicted), official_f1, replicates=REPLICATES)
    return None if interval.low is None or interval.high is None else [interval.low, interval.high]
