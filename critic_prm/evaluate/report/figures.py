"""Compute the data for a run's charts: scores, reliability, ROC, error positions, statuses, cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.errors import UsageError
from critic_prm.evaluate.report.runs import Run, leaves, source_of, usage_of
from critic_prm.metrics.scorecard import Case, case_of, compare, has_gold, score
from critic_prm.metrics.scores import Array, bin_rows

REPLICATES = 1000
BINS = 10
POSITIONS = 12
"""First errors at this step or later are counted together."""

SHOWN = ("f1", "accuracy_erroneous", "accuracy_correct", "auroc", "ece", "brier", "step_accuracy")


def figures(run: Run) -> dict[str, Any]:
    """All data that the page shows for one run except its trajectories, as JSON."""
    cases = cases_of(run.rows)
    evaluated = _evaluated(run, cases)
    good, p = steps_with_gold(cases)
    return {
        "name": run.name,
        "card": dict(run.card),
        "counts": _counts(run.rows),
        "scores": evaluated,
        "reliability": reliability(good, p),
        "roc": roc(good, p),
        "positions": positions(run.rows),
        "spread": _spread(run.rows),
        "money": _money(run),
    }


def cases_of(rows: Sequence[LabelledTrajectory]) -> dict[str, list[Case]]:
    """The rows that have gold, by source."""
    cases: dict[str, list[Case]] = {}
    for row in rows:
        if has_gold(row.trajectory):
            cases.setdefault(source_of(row.trajectory) or "all", []).append(case_of(row.trajectory, row.label))
    return cases


def steps_with_gold(cases: Mapping[str, Sequence[Case]]) -> tuple[Array, Array]:
    """Gold (1 correct, 0 incorrect) and P(correct) of every step that has both. Shape (n,) each."""
    pairs = [
        (y >= 0.5, p)
        for group in cases.values()
        for case in group
        for y, p in zip(case.steps, case.p_correct, strict=True)
        if y is not None and p is not None
    ]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def reliability(good: Array, p: Array) -> list[dict[str, float]]:
    """For each nonempty bin (a, b] of equal width: number of steps, mean P(correct), share of correct steps."""
    cells = bin_rows(good, p, BINS).sum(axis=0).reshape(BINS, 3)
    return [{"n": int(n), "p": total / n, "right": right / n} for n, total, right in cells.tolist() if n]


def roc(good: Array, p: Array, most: int = 160) -> list[list[float]]:
    """(share of correct steps called incorrect, share of incorrect steps called incorrect) per threshold, at most `most`
    points.

    The positive class is the incorrect step, since that is what a critic looks for. Returns [] unless both kinds are present.
    """
    bad = 1 - good
    if not bad.sum() or not good.sum():
        return []
    order = np.argsort(p, kind="stable")
    last = np.flatnonzero(np.diff(p[order], append=np.inf))
    hits = np.concatenate([[0.0], np.cumsum(bad[order])[last] / bad.sum()])
    false = np.concatenate([[0.0], np.cumsum(good[order])[last] / good.sum()])
    if len(hits) > most:
        kept = np.unique(np.linspace(0, len(hits) - 1, most).astype(int))
        hits, false = hits[kept], false[kept]
    return np.round(np.stack([false, hits], axis=-1), 4).tolist()  # type: ignore[no-any-return]


def positions(rows: Sequence[LabelledTrajectory]) -> dict[str, list[int] | None]:
    """Number of first errors at step 1, 2, ... (last entry: POSITIONS and later), by the critic and by gold."""
    said = [row.label.first_error for row in rows]
    gold = [row.trajectory.first_error() for row in rows]
    return {"said": _places(said), "gold": _places(gold) if any(g is not None for g in gold) else None}


def _places(found: Sequence[int | None]) -> list[int]:
    counts = Counter(min(index, POSITIONS - 1) for index in found if index is not None and index >= 0)
    return [counts[place] for place in range(POSITIONS)]


def difference(one: Run, other: Run) -> dict[str, Any] | None:
    """First-error F1 of `one` minus `other` on the solutions both judged, with its interval; None without such solutions."""
    try:
        found = compare(cases_of(one.rows), cases_of(other.rows), replicates=REPLICATES)
    except UsageError:
        return None
    return {"matched": found.matched, **asdict(found.mean)}


def _counts(rows: Sequence[LabelledTrajectory]) -> dict[str, Any]:
    p = [value for row in rows for value in row.label.p_correct]
    judgements = [judgement for row in rows for judgement in leaves(row.label.judgements)]
    return {
        "trajectories": len(rows),
        "steps": len(p),
        "judged": sum(value is not None for value in p),
        "gold": sum(has_gold(row.trajectory) for row in rows),
        "statuses": dict(Counter(row.label.status for row in rows).most_common()),
        "judgements": dict(Counter(judgement.status for judgement in judgements).most_common()),
        "p_from": dict(Counter(row.label.p_from or "none" for row in rows).most_common()),
    }


def _spread(rows: Sequence[LabelledTrajectory], bins: int = 20) -> list[int]:
    """Histogram of P(correct) over all steps, with `bins` equal bins on [0, 1]."""
    p = [value for row in rows for value in row.label.p_correct if value is not None]
    return np.histogram(p, bins=bins, range=(0, 1))[0].tolist()  # type: ignore[no-any-return]


def _evaluated(run: Run, cases: Mapping[str, Sequence[Case]]) -> dict[str, Any] | None:
    """Scores by subset and their mean, from the evaluation file or else computed here; None without gold."""
    if run.evaluation:
        subsets, mean = run.evaluation["subsets"], run.evaluation["mean"]
        words = run.evaluation.get("threshold", {}).get("words", "")
    elif cases:
        own = run.card.get("threshold")
        found = score(cases, own=own if isinstance(own, float) else None, replicates=REPLICATES)
        subsets, mean = [asdict(subset) for subset in found.subsets], {n: asdict(m) for n, m in found.mean.items()}
        words = "the critic's own verdicts"
    else:
        return None
    f1 = "f1_oracle" if "f1_oracle" in mean else "f1"
    return {
        "words": words,
        "oracle": f1 == "f1_oracle",
        "mean": _metrics(mean, f1),
        "subsets": [{"name": str(s["name"]), "n": s["solutions"], "metrics": _metrics(s["metrics"], f1)} for s in subsets],
    }


def _metrics(metrics: Mapping[str, Any], f1: str) -> dict[str, list[float | None]]:
    """(value, low, high) of each metric shown."""
    found = {}
    for name in SHOWN:
        metric = metrics.get(f1 if name == "f1" else name)
        if metric is not None:
            found[name] = [metric["value"], metric["low"], metric["high"]]
    return found


def _money(run: Run) -> dict[str, Any]:
    """Tokens of the replies behind the labels at current prices, and what the run that wrote the file paid for."""
    used = [usage_of(row) for row in run.rows]
    costs = [cost for _, cost in used]
    names = ("input", "cached", "output", "reasoning")
    tokens = {name: sum(getattr(usage, name) for usage, _ in used) for name in names}
    each = sorted(usage.input + usage.output for usage, _ in used if usage.input + usage.output)
    known = [cost for cost in costs if cost is not None]
    return {
        "tokens": tokens,
        "cost": sum(known) if tokens["input"] + tokens["output"] and len(known) == len(costs) else None,
        "quantiles": [int(np.quantile(each, q)) for q in (0.1, 0.5, 0.9)] if each else None,
        "bought": run.summary.get("cost_usd", run.evaluation.get("run", {}).get("cost_usd")),
        "seconds": run.summary.get("seconds"),
    }
