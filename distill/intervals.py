"""Bootstrap 95% intervals of a split's metrics, resampling problems with all their solutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from critic_prm.metrics.bootstrap import Clusters, cluster_bootstrap, interval_of, of_auroc, replicate, too_few
from critic_prm.metrics.scores import first_error_rows, official_f1

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
    found = interval_of(values, clusters.count, redrawn)
    return None if found.low is None or found.high is None else [found.low, found.high]


def brier_interval(problems: Sequence[str], p: Any, y: Any, w: Any) -> Bounds:
    """Interval of the weighted Brier score of steps."""
    rows = np.stack([np.asarray(w) * (np.asarray(p) - y) ** 2, np.asarray(w)], axis=1)
    found = cluster_bootstrap(problems, rows, lambda sums: sums[..., 0] / sums[..., 1], replicates=REPLICATES)
    return None if found.low is None or found.high is None else [found.low, found.high]


def f1_interval(problems: Sequence[str], gold: Sequence[int], predicted: Sequence[int]) -> Bounds:
    """Interval of the official first-error F1, from the gold and predicted first errors of solutions.

    None if it is undefined.
    """
    if len({first < 0 for first in gold}) < 2:
        return None
    found = cluster_bootstrap(problems, first_error_rows(gold, predicted), official_f1, replicates=REPLICATES)
    return None if found.low is None or found.high is None else [found.low, found.high]
