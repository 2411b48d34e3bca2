"""Score predictions against gold labels, and compare two critics: every metric with its 95% interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from critic_prm.data.hashing import problem_key
from critic_prm.data.judgement import Label
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from critic_prm.metrics.bootstrap import (
    REPLICATES,
    Clusters,
    Difference,
    Interval,
    Statistic,
    bootstrap,
    interval_of,
    of_auroc,
    of_sums,
    paired_replicates,
    ratio,
    replicate,
    two_sided,
)
from critic_prm.metrics.scores import (
    Array,
    auroc,
    bin_rows,
    binary_rows,
    confusion_rows,
    ece,
    ece_of,
    first_below,
    first_error_rows,
    log_loss,
    number,
    official_f1,
    plain_f1,
    prm_score_of,
)

ThresholdFrom = Literal["verdicts", "given", "benchmark", "oracle"]
"""How first errors are determined: by the critic's verdicts, or by a threshold that was given, chosen on a subset of a
benchmark, or chosen on the very solutions that are scored."""

UNDECIDED = "undecided"
"""The status of a label that was read but has no first error: its judgements tie or left out steps."""

GRID = 200
"""Maximum number of thresholds the oracle tries, quantiles of the scores."""


@dataclass(frozen=True, slots=True)
class Case:
    """One solution with its gold labels and the critic's predictions."""

    id: str
    """The trajectory's id."""
    problem: str
    """The key of its problem."""
    gold: int | None
    """The gold first error, None if unknown."""
    steps: tuple[float | None, ...]
    """Gold P(correct) per step, None if unlabelled, neutral or corrected."""
    p_correct: tuple[float | None, ...]
    """The critic's P(correct) per step."""
    verdict: int | None
    """The critic's own first error, None if unusable."""
    status: str
    """The label's status, or UNDECIDED."""

    def predicted(self, threshold: float | None) -> int | None:
        """The first error by the critic's own verdict, or by a threshold on its scores if there are any."""
        return self.verdict if threshold is None or not self.scored else first_below(self.p_correct, threshold)

    @property
    def scored(self) -> bool:
        """Whether any step has a score."""
        return any(p is not None for p in self.p_correct)


@dataclass(frozen=True, slots=True)
class Metric:
    """A value with its 95% interval over problems. Values are None if undefined, often with a `reason`."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SubsetScore:
    """One subset. `steps` counts steps with gold labels, `judged` those of them with a score, `unusable`
    solutions by status."""

    name: str
    solutions: int
    erroneous: int
    correct: int
    problems: int
    steps: int
    judged: int
    unusable: Mapping[str, int]
    metrics: Mapping[str, Metric]


@dataclass(frozen=True, slots=True)
class Scorecard:
    """All subsets, and the unweighted mean of each metric that every subset has."""

    subsets: tuple[SubsetScore, ...]
    mean: Mapping[str, Metric]
    threshold: float | None
    threshold_from: ThresholdFrom
    replicates: int = REPLICATES
    seed: int = 0


def case_of(trajectory: Trajectory, label: Label) -> Case:
    """Build the case for a solution with gold labels and the critic's label."""
    gold = tuple(value if isinstance(value, float) else None for value in trajectory.gold())
    usable = label.status == "ok" and label.first_error is not None
    status = label.status if label.status != "ok" or usable else UNDECIDED
    p_correct = label.p_correct if label.status == "ok" else (None,) * len(gold)
    return Case(
        trajectory.id,
        problem_key(trajectory.problem),
        trajectory.first_error(),
        gold,
        p_correct,
        label.first_error if usable else None,
        status,
    )


def has_gold(trajectory: Trajectory) -> bool:
    """Whether the trajectory has gold labels to compare with."""
    return trajectory.first_error() is not None or any(isinstance(value, float) for value in trajectory.gold())


def score(
    subsets: Mapping[str, Sequence[Case]],
    *,
    threshold: float | None = None,
    own: float | None = None,
    oracle: bool = False,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Scorecard:
    """Compute every metric of every subset, and their means, with cluster-bootstrap intervals (problems are resampled within
    each subset).

    First errors come from the critic's own verdicts, from a given `threshold`, or with `oracle` from the one threshold for all
    subsets that is best on these same solutions. With the oracle, F1 is called "f1_oracle", and its intervals choose the
    threshold again in every resample. Steps are classified by the same threshold; with verdicts, by the critic's own threshold
    (`own`), else 0.5.
    """
    values: dict[str, dict[str, Array]] = {name: {} for name in subsets}
    source: ThresholdFrom = "oracle" if oracle else "verdicts" if threshold is None else "given"
    if oracle:
        threshold, f1 = _oracle(subsets, replicates, seed)
        for name, array in f1.items():
            values[name]["f1_oracle"] = array
    scores = [
        _subset(name, cases, threshold, own, oracle, values[name], replicates, seed + place)
        for place, (name, cases) in enumerate(subsets.items())
    ]
    names = [m for m in scores[0].metrics if all(m in s.metrics for s in scores)] if scores else []
    return Scorecard(
        subsets=tuple(scores),
        mean={name: _mean(name, scores, [values[s.name].get(name) for s in scores]) for name in names},
        threshold=threshold,
        threshold_from=source,
        replicates=replicates,
        seed=seed,
    )


def _subset(
    name: str,
    cases: Sequence[Case],
    threshold: float | None,
    own: float | None,
    oracle: bool,
    values: dict[str, Array],
    replicates: int,
    seed: int,
) -> SubsetScore:
    """Compute all metrics of one subset. The replicates are added to `values`."""
    known = [case for case in cases if case.gold is not None]
    gold = [case.gold for case in known if case.gold is not None]
    predicted = [case.predicted(threshold) for case in known]
    pairs = [(case, y, p) for case in cases for y, p in zip(case.steps, case.p_correct, strict=True) if y is not None]
    judged = [(case, y >= 0.5, p) for case, y, p in pairs if p is not None]
    good, p_correct = np.array([y for _, y, _ in judged], dtype=bool), np.array([p for _, _, p in judged], dtype=np.float64)
    called = p_correct >= next(t for t in (threshold, own, 0.5) if t is not None)

    solutions, steps = Clusters([case.problem for case in known]), Clusters([case.problem for case, _, _ in judged])
    metrics: dict[str, Metric] = {}

    def put(metric: str, clusters: Clusters, value: float | None, statistic: Statistic) -> None:
        metrics[metric] = _with_interval(metric, value, clusters.count, statistic, values, replicates, seed)

    def sums(metric: str, clusters: Clusters, rows: Array, of: Statistic) -> None:
        put(metric, clusters, number(of(rows.sum(axis=0))) if len(rows) else None, of_sums(clusters.sums(rows), of))

    rows = first_error_rows(gold, predicted)
    sums("f1_oracle" if oracle else "f1", solutions, rows, official_f1)
    sums("accuracy_erroneous", solutions, rows[:, :2], ratio)
    sums("accuracy_correct", solutions, rows[:, 2:], ratio)
    for positive in ("correct", "error"):
        sums(f"binary_f1_{positive}", solutions, binary_rows(gold, predicted, positive), plain_f1)
    put("auroc", steps, auroc(good, p_correct), of_auroc(steps, good, p_correct))
    sums("ece", steps, bin_rows(good, p_correct), ece_of)
    metrics["ece_mass"] = Metric(ece(good, p_correct, mass="mass"))
    losses = np.stack([np.ones(len(good)), (p_correct - good) ** 2], axis=-1)
    sums("brier", steps, losses, ratio)
    metrics["log_loss"] = Metric(log_loss(good, p_correct))
    sums("step_accuracy", steps, np.stack([np.ones(len(good)), (good == called).astype(np.float64)], axis=-1), ratio)
    sums("prm_score", steps, confusion_rows(good, called), prm_score_of)
    return SubsetScore(
        name=name,
        solutions=len(cases),
        erroneous=sum(g >= 0 for g in gold),
        correct=sum(g < 0 for g in gold),
        problems=len({case.problem for case in cases}),
        steps=len(pairs),
        judged=len(judged),
        unusable=dict(Counter(case.status for case in cases if case.predicted(threshold) is None).most_common()),
        metrics=metrics,
    )


def _with_interval(
    metric: str, value: float | None, problems: int, statistic: Statistic, values: dict[str, Array], replicates: int, seed: int
) -> Metric:
    if value is None:
        return Metric(None, reason="not defined here")
    if metric in values:
        interval = interval_of(values[metric], problems)
    else:
        interval, drawn = bootstrap(statistic, problems, replicates, seed)
        if drawn is not None:
            values[metric] = drawn
    return Metric(value, interval.low, interval.high, interval.reason)


def _mean(metric: str, scores: Sequence[SubsetScore], values: Sequence[Array | None]) -> Metric:
    """The unweighted mean over subsets. The interval resamples problems within each subset."""
    points = [score.metrics[metric].value for score in scores]
    known = [point for point in points if point is not None]
    if len(known) < len(points):
        missing = ", ".join(score.name for score in scores if score.metrics[metric].value is None)
        return Metric(None, reason=f"not defined for {missing}")
    arrays = [array for array in values if array is not None]
    if len(arrays) < len(points):
        return Metric(sum(known) / len(known), reason="a subset has no interval")
    interval = interval_of(np.mean(arrays, axis=0), sum(score.problems for score in scores))
    return Metric(sum(known) / len(known), interval.low, interval.high)


def _oracle(subsets: Mapping[str, Sequence[Case]], replicates: int, seed: int) -> tuple[float, dict[str, Array]]:
    """The threshold with the best mean F1 over the subsets, and each subset's F1 at the best threshold of each resample."""
    scores = np.unique([p for cases in subsets.values() for case in cases for p in case.p_correct if p is not None])
    if not len(scores):
        return 0.5, {}
    middles = (scores[1:] + scores[:-1]) / 2
    taus = np.concatenate([[0.0], middles if len(middles) <= GRID else np.quantile(middles, np.linspace(0, 1, GRID)), [1.0]])
    points, resampled = [], {}
    for place, (name, cases) in enumerate(subsets.items()):
        known = [case for case in cases if case.gold is not None]
        rows = np.array([_hits(case, taus) for case in known]).reshape(len(known), 2 + 2 * len(taus))
        if not rows[:, 0].any() or not rows[:, 1].any():
            continue
        clusters = Clusters([case.problem for case in known])
        totals = clusters.sums(rows)
        points.append(_curve(totals.sum(axis=0)))
        if clusters.count > 1:
            resampled[name] = replicate(of_sums(totals, _curve), clusters.count, replicates, seed + place)[0]
    if not points:
        return 0.5, {}
    best = int(np.argmax(np.mean(points, axis=0)))
    if len(resampled) < len(points):
        return float(taus[best]), {}
    chosen = np.argmax(np.mean(list(resampled.values()), axis=0), axis=1)
    return float(taus[best]), {name: curve[np.arange(len(curve)), chosen] for name, curve in resampled.items()}


def _hits(case: Case, taus: Array) -> Array:
    """Erroneous, correct, then for each threshold: first error found exactly, and correct solution accepted."""
    wrong = case.gold is not None and case.gold >= 0
    hit = np.full(len(taus), case.verdict is not None and case.verdict == case.gold)
    if case.scored:
        scored = [(i, p) for i, p in enumerate(case.p_correct) if p is not None]
        lowest = np.minimum.accumulate([p for _, p in scored])
        passed = (lowest >= taus[:, None]).sum(axis=1)  # number of scored steps before the first one below tau
        hit = np.array([*(i for i, _ in scored), -1])[passed] == case.gold
    return np.concatenate([[wrong, not wrong], hit & wrong, hit & (not wrong)]).astype(np.float64)


def _curve(sums: Array) -> Array:
    """F1 at each threshold from summed rows of `_hits`."""
    found, left = np.split(sums[..., 2:], 2, axis=-1)
    wrong, right = np.broadcast_to(sums[..., :1], found.shape), np.broadcast_to(sums[..., 1:2], left.shape)
    return official_f1(np.stack([wrong, found, right, left], axis=-1))


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
        if number(official_f1(a.sum(axis=0))) is None:  # there are no erroneous solutions, or no correct ones
            continue
        clusters = Clusters([case.problem for case, _ in pairs])
        differences[name], values = paired_replicates(clusters, a, b, official_f1, replicates, seed + place)
        if values is not None:
            resampled.append(values)
    if not differences:
        raise UsageError("they share no subset with erroneous and correct solutions of the same ids and gold labels")
    mean = sum(d.difference for d in differences.values()) / len(differences)
    if len(resampled) < len(differences):
        whole = Difference(mean, Interval(None, None, reason="a subset has no interval"), None)
    else:
        means = np.mean(resampled, axis=0)
        problems = sum(d.interval.problems for d in differences.values())
        whole = Difference(mean, interval_of(means, problems), two_sided(means))
    return Comparison(differences, whole, matched, total - matched)
