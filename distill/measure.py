"""Measure scores against labels: AUROC, Brier score, calibration error and first-error F1, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from critic_prm.metrics.bootstrap import Clusters, cluster_bootstrap, interval_of, of_auroc, replicate, too_few
from critic_prm.metrics.scores import auroc, brier, ece, first_error_f1, first_error_rows, official_f1
from distill.data import Row, labelled
from distill.decision import Decision


def measure(
    scores: Sequence[Any],
    rows: Sequence[Row],
    decision: Decision,
    *,
    decisions: Sequence[Decision] | None = None,
    raw: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Compute step AUROC (hard labels), Brier score, ECE (10 bins) and the official first-error F1 of `decision`.

    AUROC, Brier and F1 come with 95% intervals, bootstrapped over problems. A metric that is undefined on these rows (one class
    only) is None. In cross-validation, `decisions` has the decision for each row, and the AUROC is that of the `raw` scores,
    because calibrations of different folds would change their order.
    """
    steps = scored_steps(scores, rows)
    p = np.array([scores[r][s] for r, s, _, _ in steps])
    y, w = np.array([f[2] for f in steps]), np.array([f[3] for f in steps])
    hard = y >= 0.5
    ranked = p if raw is None else np.array([raw[r][s] for r, s, _, _ in steps])
    step_auroc = auroc(hard, ranked)
    decided = [decision] * len(rows) if decisions is None else decisions
    seen, firsts = known_firsts(scores, rows)
    with_gold = [
        (row.problem, g, own.first_error(s))
        for row, s, g, own in zip(rows, seen, firsts, decided, strict=True)
        if g is not None
    ]
    gold, predicted = [g for _, g, _ in with_gold], [first for _, _, first in with_gold]
    first_errors = first_error_f1(gold, predicted)
    owners = [rows[r].problem for r, *_ in steps]
    return {
        "solutions": len(rows),
        "steps": len(steps),
        "auroc": step_auroc,
        "brier": brier(y, p, w),
        "ece": ece(y, p),
        "f1": first_errors.f1,
        "erroneous": first_errors.erroneous,
        "correct": first_errors.correct,
        "threshold": decision.threshold,
        "rule": decision.rule,
        "intervals": {
            "auroc": None if step_auroc is None else auroc_interval(owners, hard, ranked),
            "brier": brier_interval(owners, p, y, w) if len(p) else None,
            "f1": f1_interval([problem for problem, _, _ in with_gold], gold, predicted),
        },
    }


def known_firsts(scores: Sequence[Any], rows: Sequence[Row]) -> tuple[list[list[float]], list[int | None]]:
    """Return the available scores of each row and its first error, None if that is unknown or lies beyond the scored steps.

    Steps beyond a student's context have no score (nan).
    """
    seen = [[float(p) for p in each if not np.isnan(p)] for each in scores]
    firsts = [row.first_error() for row in rows]
    hidden = (
        len(s) < len(row.steps) and (g is None or g < 0 or g >= len(s)) for s, row, g in zip(seen, rows, firsts, strict=True)
    )
    return seen, [None if away else g for away, g in zip(hidden, firsts, strict=True)]


def scored_steps(scores: Sequence[Any], rows: Sequence[Row]) -> list[tuple[int, int, float, float]]:
    """Return the labelled steps that have a score; steps beyond a student's context have none (nan)."""
    return [step for step in labelled(rows) if not np.isnan(scores[step[0]][step[1]])]


def useless(metrics: Mapping[str, Mapping[str, Any]]) -> str:
    """Say that a verifier is no better than chance, if the interval of its step AUROC on held-out data includes 0.5; else "".

    The split with the most steps counts. An AUROC that is undefined, or has no interval, cannot show anything: of a
    cross-validated verifier, nothing else is known, so that is said, too.
    """
    split = "cross-validated" if "cross-validated" in metrics else max(metrics, key=lambda name: metrics[name]["steps"])
    found = metrics[split]
    bounds, value = found["intervals"]["auroc"], found["auroc"]
    on = (
        f"{split}, {found['solutions']} solutions"
        if split == "cross-validated"
        else f"{found['solutions']} solutions of {split}"
    )
    if bounds is None:
        if split != "cross-validated":
            return ""
        return f"too few solutions to tell it from chance ({on}); do not use"
    if bounds[0] > 0.5:
        return ""
    return f"no better than chance: AUROC {value:.2f} [{bounds[0]:.2f}, {bounds[1]:.2f}] ({on}); do not use"


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
