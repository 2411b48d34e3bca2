"""Fit and apply calibration maps: raw scores to P(correct)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from critic_prm.metrics.scores import brier

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
    mapped = calibration(np.array([0.0, 0.5, 1.0, *np.clip(parameters.get("x", ()), 0, 1)]))
    if not np.isfinite(mapped).all():
        raise ValueError("its calibration maps scores to values that are not finite")
    if mapped.min() < 0 or mapped.max() > 1:
        raise ValueError("its calibration maps scores to values that are not from 0 to 1")
    return calibration


def fit(method: str, p: Floats, y: Floats, w: Floats) -> Calibration:
    """Fit one method to raw scores `p`, soft labels `y` in [0, 1] and weights `w`, each of shape (n,)."""
    return Calibration(method, _FIT[method](p, y, w))


def choose(
    p: Floats, y: Floats, w: Floats, groups: Sequence[str], folds: int = 5, base: Calibration | None = None
) -> tuple[Calibration, dict[str, float]]:
    """Choose the method with the lowest Brier score cross-fitted over `groups` (problems), and refit it to all data.

    With `base`, this map competes as it is. Returns the map with the Brier score of every method. Cross-fitting is necessary:
    on its own fitting data, isotonic always wins.
    """
    names = sorted(set(groups))
    fold_of = {name: index % folds for index, name in enumerate(np.random.default_rng(0).permutation(names).tolist())}
    fold = np.array([fold_of[g] for g in groups])
    scores: dict[str, float] = {} if base is None else {"base": cast(float, brier(y, base(p), w))}
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
    return base if base is not None and best == "base" else fit(best, p, y, w), scores


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
    """Fit centred isotonic regression (Oron and Flournoy, 2017): lines between the centres of the steps of the isotonic fit.

    Unlike the step function, it keeps the order of different scores, which a threshold needs.
    """
    from sklearn.isotonic import IsotonicRegression

    order = np.argsort(p)
    x, weight = p[order], w[order]
    level, block = np.unique(IsotonicRegression().fit(x, y[order], sample_weight=weight).predict(x), return_inverse=True)
    centre = np.bincount(block, weight * x) / np.bincount(block, weight)
    floor = 1.0 / (2 * len(p))
    below, above = [0.0] if centre[0] > 0 else [], [1.0] if centre[-1] < 1 else []
    inner = np.clip(level, floor, 1 - floor)
    ends = [[float(inner[0]) / 2] if below else [], [(1 + float(inner[-1])) / 2] if above else []]
    return {"x": [*below, *centre.tolist(), *above], "y": [*ends[0], *inner.tolist(), *ends[1]]}


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
