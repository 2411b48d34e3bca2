"""Convert scikit-learn's gradient-boosted trees to plain arrays that numpy evaluates in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distill.calibration import Floats

BLOCK = 512
"""Rows evaluated together, so that the traversal of all trees stays within the CPU's cache."""


@dataclass(frozen=True, slots=True)
class Forest:
    """Binary trees over numeric features whose outputs are summed to log odds.

    All arrays are flat over the nodes of all trees; `roots` holds the index of each tree's root. A leaf points to itself, so
    every row can descend `depth` levels without testing whether it has reached a leaf.
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    missing_left: NDArray[np.bool_]
    value: Floats
    base: float
    depth: int

    def log_odds(self, x: Floats) -> Floats:
        """Return the log odds of the positive class for rows `x` of shape (n, features); NaN is a missing value."""
        out = np.empty(len(x))
        for start in range(0, len(x), BLOCK):
            block = x[start : start + BLOCK]
            node = np.broadcast_to(self.roots, (len(block), len(self.roots)))
            flat, offset = block.ravel(), (np.arange(len(block)) * x.shape[1])[:, None]
            for _ in range(self.depth):
                seen = flat[offset + self.feature[node]]
                goes_left = seen <= self.threshold[node]
                lost = np.isnan(seen)
                if lost.any():
                    goes_left |= lost & self.missing_left[node]
                node = np.where(goes_left, self.left[node], self.right[node])
            out[start : start + BLOCK] = self.value[node].sum(axis=1) + self.base
        return out

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to store: the inverse of `forest_from_arrays`."""
        return {
            "roots": self.roots,
            "feature": self.feature,
            "threshold": self.threshold,
            "left": self.left,
            "right": self.right,
            "missing_left": self.missing_left,
            "value": self.value,
            "base_depth": np.array([self.base, self.depth]),
        }


def forest_from_sklearn(model: Any) -> Forest:
    """Convert a fitted binary HistGradientBoostingClassifier without categorical features (which is checked)."""
    roots, parts, offset, depth = [], [], 0, 0
    for (predictor,) in model._predictors:
        nodes = predictor.nodes
        if nodes["is_categorical"].any():
            raise ValueError("categorical features are not supported in an exported forest")
        here = np.arange(len(nodes))
        leaf = nodes["is_leaf"].astype(bool)
        parts.append(
            (
                np.where(leaf, 0, nodes["feature_idx"]),
                np.where(leaf, 0.0, nodes["num_threshold"]),
                np.where(leaf, here, nodes["left"]) + offset,
                np.where(leaf, here, nodes["right"]) + offset,
                nodes["missing_go_to_left"].astype(bool),
                np.where(leaf, nodes["value"], 0.0),
            )
        )
        roots.append(offset)
        offset += len(nodes)
        depth = max(depth, int(nodes["depth"].max()))
    feature, threshold, left, right, missing, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Forest(
        np.array(roots, dtype=np.int32),
        feature.astype(np.int32),
        threshold.astype(np.float64),
        left.astype(np.int32),
        right.astype(np.int32),
        missing,
        value.astype(np.float64),
        float(model._baseline_prediction[0, 0]),
        depth,
    )


def mean_forest(forests: Sequence[Forest]) -> Forest:
    """Return one forest whose log odds are the mean of those of `forests`."""
    offsets = np.cumsum([0] + [len(forest.feature) for forest in forests[:-1]])
    pairs = list(zip(forests, offsets, strict=True))
    return Forest(
        np.concatenate([f.roots + offset for f, offset in pairs]).astype(np.int32),
        np.concatenate([f.feature for f in forests]),
        np.concatenate([f.threshold for f in forests]),
        np.concatenate([f.left + offset for f, offset in pairs]).astype(np.int32),
        np.concatenate([f.right + offset for f, offset in pairs]).astype(np.int32),
        np.concatenate([f.missing_left for f in forests]),
        np.concatenate([f.value for f in forests]) / len(forests),
        float(np.mean([f.base for f in forests])),
        max(f.depth for f in forests),
    )


def forest_from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Forest:
    """Rebuild a forest from stored arrays. Raises KeyError or ValueError if the arrays do not describe one."""
    feature, left, right = arrays["feature"], arrays["left"], arrays["right"]
    sizes = {len(arrays[name]) for name in ("feature", "threshold", "left", "right", "missing_left", "value")}
    if len(sizes) != 1:
        raise ValueError("the arrays of the trees have different lengths")
    nodes = sizes.pop()
    for name in ("roots", "left", "right"):
        if len(arrays[name]) and not (arrays[name].min() >= 0 and arrays[name].max() < nodes):
            raise ValueError(f"the trees' {name} point outside of their {nodes} nodes")
    base, depth = arrays["base_depth"]
    return Forest(
        arrays["roots"], feature, arrays["threshold"], left, right, arrays["missing_left"].astype(bool), arrays["value"],
        float(base), int(depth),
    )  # fmt: skip
