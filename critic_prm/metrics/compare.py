"""Compare two critics on the same solutions: the difference of their F1 with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from critic_prm.errors import UsageError
from critic_prm.metrics.bootstrap import (
    REPLICATES,
    Clusters,
    Difference,
    Interval,
    Statistic,
    interval_of,
    replicate,
    too_few,
    two_sided,
)
from critic_prm.metrics.scorecard import Case
from critic_prm.metrics.scores import Array, first_error_rows, number, official_f1


@dataclass(frozen=True, slots=True)
class Comparison:
    """First-error F1 of ours minus theirs, per subset and as the unweighted mean. `unmatched` counts solutions judged by only
    one."""

    subsets: Mapping[str, Difference]
    mean: Difference
    matched: int
    unmatched: int


def compare(
    ours: Mapping[str, Sequence[Case]],
    theirs: Mapping[str, Sequence[Case]],
    *,
    threshold: float | None = None,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Comparison:
    """Compare on the solutions judged by both (matched by subset and id). Both use the same resamples of problems.

    `threshold` applies to our scores; theirs are compared by their own verdicts. Raises UsageError if no subset has both
    erroneous and correct matching solutions.
    """
    differences: dict[str, Difference] = {}
    resampled: list[Array] = []
    matched = total = 0
    for place, (name, cases) in enumerate(ours.items()):
        other = {case.id: case for case in theirs.get(name, ())}
        pairs = [(a, other[a.id]) for a in cases if a.id in other and a.gold is not None and other[a.id].gold == a.gold]
        matched += len(pairs)
        total += len(set(other) | {case.id for case in cases})
        gold = [a.gold for a, _ in pairs if a.gold is not None]
        a = first_error_rows(gold, [a.predicted(threshold) for a, _ in pairs])
        b = first_error_rows(gold, [b.verdict for _, b in pairs])
        point = number(official_f1(a.sum(axis=0)) - official_f1(b.sum(axis=0)))
        if point is None:
            continue
        clusters = Clusters([case.problem for case, _ in pairs])
        if reason := too_few(clusters.count):
            differences[name] = Difference(point, Interval(None, None, problems=clusters.count, reason=reason), None)
            continue
        values, redrawn = replicate(_difference(clusters.sums(a), clusters.sums(b)), clusters.count, replicates, seed + place)
        resampled.append(values)
        differences[name] = Difference(point, interval_of(values, clusters.count, redrawn), two_sided(values))
    if not differences:
        raise UsageError("they share no subset with erroneous and correct solutions of the same ids and gold labels")
    mean = sum(d.difference for d in differences.values()) / len(differences)
    if len(resampled) < len(differences):
        whole = Difference(mean, Interval(None, None, reason="a subset has no interval"), None)
    else:
        values = np.mean(resampled, axis=0)
        problems = sum(d.interval.problems for d in differences.values())
        whole = Difference(mean, interval_of(values, problems), two_sided(values))
    return Comparison(differences, whole, matched, total - matched)


def _difference(a: Array, b: Array) -> Statistic:
    return lambda draws: official_f1(draws @ a) - official_f1(draws @ b)
