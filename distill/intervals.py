"""Scores and rows of a split in, 95% intervals of its metrics out: problems are resampled with all their solutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from critic_prm.metrics.bootstrap import Clusters, cluster_bootstrap, interval_of, of_auroc, replicate, too_few
from critic_prm.metrics.scores import first_error_rows, official_f1

REPLICATES = 1000
Bounds = list[float] | None


def auroc_interval(problems: Sequence[str], right: Any, p: Any) -> Bounds:
    """Of the step AUROC; `problems`, classes and scores of each step. None where it is not defined."""
    clusters = Clusters(problems)
    if too_few(clusters.count):
        return None
    try:
        values, redrawn = replicate(of_auroc(clusters, right, p), clusters.count, REPLICATES)
    except ValueError:
        return None
    found = interval_of(values, clusters.count, redrawn)
    return None if found.low is None or found.high is None else [found.low, found.high]


def brier_interval(problems: Sequence[str], p: Any, y: Any, w: Any) -> Bounds:
    """Of the weighted Brier score of steps."""
    rows = np.stack([np.asarray(w) * (np.asarray(p) - y) ** 2, np.asarray(w)], axis=1)
    found = cluster_bootstrap(problems, rows, lambda sums: sums[..., 0] / sums[..., 1], replicates=REPLICATES)
    return None if found.low is None or found.high is None else [found.low, found.high]


def f1_interval(problems: Sequence[str], gold: Sequence[int], predicted: Sequence[int]) -> Bounds:
    """Of the official first-error F1, from the first errors of solutions and those that were found. None where it is not
    defined."""
    if len({first < 0 for first in gold}) < 2:
        return None
    found = cluster_bootstrap(problems, first_error_rows(gold, predicted), official_f1, replicates=REPLICATES)
    return None if found.low is None or found.high is None else [found.low, found.high]
