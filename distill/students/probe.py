"""A standardized logistic regression on step features, stored as plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distill.calibration import Floats

REACH = 5.0
"""Clipping limit of a feature in standard deviations, so that one unusual text does not decide alone."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Weights for standardized columns. `mean`, `scale` and `weights` have shape (columns,)."""

    mean: Floats
    scale: Floats
    weights: Floats
    intercept: float

    def log_odds(self, x: NDArray[Any]) -> Floats:
        """Return the log odds of the positive class for `x` of shape (n, columns). NaN counts as the column's mean."""
        out: Floats = _standard(x, self.mean, self.scale) @ self.weights + self.intercept
        return out

    def arrays(self) -> dict[str, Floats]:
        """Return the arrays to store: the inverse of `probe_from_arrays`."""
        return {"mean": self.mean, "scale": self.scale, "weights": self.weights, "intercept": np.array([self.intercept])}


def fit_probe(x: NDArray[Any], y: NDArray[np.int64], w: Floats, inverse_penalty: float) -> Probe:
    """Fit to rows `x` with classes `y` (0 or 1) and weights `w`, which are scaled to a mean of 1."""
    from sklearn.linear_model import LogisticRegression

    known = ~np.isnan(x)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, x, 0.0).sum(axis=0, dtype=np.float64) / count
    scale = np.sqrt((np.where(known, x - mean, 0.0) ** 2).sum(axis=0, dtype=np.float64) / count) + 1e-6
    model = LogisticRegression(C=inverse_penalty, max_iter=300, tol=1e-4)
    model.fit(_standard(x, mean, scale), y, sample_weight=w / w.mean())
    return Probe(mean, scale, model.coef_[0].astype(np.float64), float(model.intercept_[0]))


def probe_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Probe:
    """Rebuild a probe. Raises KeyError or ValueError if the arrays do not describe one."""
    mean, scale, weights = arrays["mean"], arrays["scale"], arrays["weights"]
    if not mean.shape == scale.shape == weights.shape:
        raise ValueError("the arrays of a probe have different lengths")
    return Probe(mean, scale, weights, float(arrays["intercept"][0]))


def _standard(x: NDArray[Any], mean: Floats, scale: Floats) -> Floats:
    return np.clip(np.nan_to_num((x - mean) / scale, nan=0.0, posinf=REACH, neginf=-REACH), -REACH, REACH)
