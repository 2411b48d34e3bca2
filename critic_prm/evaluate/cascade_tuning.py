"""Tune the doubt band of a cascade: collect both critics' results, compute F1 against cost for every band, choose one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from critic_prm.critics.cascade import By, verdict_on
from critic_prm.data import Critic, Judgement, Label, Trajectory, blind, combine, problem_key
from critic_prm.engine.concurrency import gather_all, ordered_map
from critic_prm.errors import CriticPrmError, InputError
from critic_prm.metrics.bootstrap import cluster_bootstrap, paired_bootstrap
from critic_prm.metrics.scores import Array, first_error_rows, number, official_f1

GRID = 26
"""Number of candidate bounds: quantiles of P(error) on the half of the data used for choosing."""

_NONE = 1 << 30
UNKNOWN = -2
"""The gold label of a case without one."""


@dataclass(frozen=True, slots=True)
class CascadeCase:
    """One solution with gold, and what the cheap critic and the judge say about it."""

    problem: str
    gold: int
    p_correct: tuple[float | None, ...]
    """P(correct) per step by the cheap critic. A step without a score is always in doubt."""
    first: int
    """First error according to the cheap critic."""
    judged: tuple[bool | None, ...] = ()
    """The judge's verdict on each step when asked about that step alone: True for correct, None if unusable. Empty if the judge
    is asked once per solution."""
    verdict: int | None = None
    """The judge's first error if it is asked once per solution; None if unusable."""
    calls: int = 1
    """Number of calls that the judge alone would take."""

    @property
    def alone(self) -> int | None:
        """The first error according to the judge alone."""
        if not self.judged:
            return self.verdict
        for step, right in enumerate(self.judged):
            if right is not True:
                return None if right is None else step
        return -1


@dataclass(frozen=True, slots=True)
class CascadeCases:
    """The cases. `left_out` counts solutions without a usable judgement of the first critic."""

    rows: tuple[CascadeCase, ...]
    left_out: int
    tokens: int
    """Input and output tokens of the judge."""


async def collect_cases(
    trajectories: Iterable[Trajectory],
    first: Critic,
    judge: Critic | Mapping[str, Label],
    by: By = "solution",
    workers: int = 64,
    *,
    unlabelled: bool = False,
) -> CascadeCases:
    """Ask the first critic about every solution, and the judge about every solution or, with "step", about every step.

    The cost of a band is computed from these results, so every judgement is needed once; the cascade later finds the replies in
    the cache. `judge` may also be labels by trajectory id, as in a label file; a step that such a label does not judge, because
    an earlier step is incorrect, is undecided. Solutions without gold are left out, or with `unlabelled` all gold labels are
    ignored and set to UNKNOWN. Raises whatever stops the critics.
    """
    golds = ((UNKNOWN if unlabelled else t.first_error(), t) for t in trajectories if t.steps)
    with_gold = [(gold, t) for gold, t in golds if gold is not None]
    firsts: list[Judgement] = []
    for start in range(0, len(with_gold), max(first.batch, 1)):
        firsts += await first.judge([blind(t) for _, t in with_gold[start : start + max(first.batch, 1)]])
    rows: list[CascadeCase] = []
    tokens = left_out = 0

    async def ask_judge(part: Sequence[tuple[tuple[int, Trajectory], Judgement]]) -> list[list[Judgement]]:
        return [await _ask_judge(blind(trajectory), judge, by) for (_, trajectory), _ in part]

    pairs = list(zip(with_gold, firsts, strict=True))
    async for ((gold, trajectory), cheap), answers in ordered_map(pairs, ask_judge, workers=lambda: workers):
        if cheap.first_error is None:
            left_out += 1
            continue
        tokens += sum(answer.usage.input + answer.usage.output for answer in answers)
        p_correct = combine([cheap], len(trajectory.steps)).p_correct
        case = CascadeCase(problem_key(trajectory.problem), gold, p_correct, cheap.first_error)
        label = judge.get(trajectory.id) if isinstance(judge, Mapping) else None
        rows.append(_with_judge(case, answers, label, by))
    return CascadeCases(tuple(rows), left_out, tokens)


async def _ask_judge(trajectory: Trajectory, judge: Critic | Mapping[str, Label], by: By) -> list[Judgement]:
    if isinstance(judge, Mapping):
        return []
    if by == "solution":
        return await judge.judge([trajectory])
    return await gather_all(judge.judge_step(trajectory, step) for step in range(len(trajectory.steps)))


def _with_judge(case: CascadeCase, answers: Sequence[Judgement], label: Label | None, by: By) -> CascadeCase:
    if by == "solution":
        return replace(case, verdict=answers[0].first_error if answers else None if label is None else label.first_error)
    judged: tuple[bool | None, ...]
    if answers:
        verdicts = [verdict_on(answer, step) for step, answer in enumerate(answers)]
        judged = tuple(None if verdict is None else verdict.vote for verdict in verdicts)
    else:
        p_correct = label.p_correct if label is not None else (None,) * len(case.p_correct)
        judged = tuple(None if p is None else p >= 0.5 for p in p_correct)
    # The judge alone would go step by step, so its cost is the number of calls up to its first error.
    last = next((step for step, right in enumerate(judged) if right is not True), len(judged) - 1)
    return replace(case, judged=judged, calls=last + 1)


def referred(rows: Sequence[CascadeCase]) -> list[CascadeCase]:
    """The cases with the judge's own labels as gold, without those that it left undecided."""
    return [replace(row, gold=row.alone) for row in rows if row.alone is not None]


@dataclass(frozen=True, slots=True)
class BandResult:
    """A band, its F1, and its number of judge calls: per solution, and as a share of the calls of the judge alone."""

    low: float
    high: float
    f1: float
    calls: float
    share: float


@dataclass(frozen=True, slots=True)
class Measured:
    """F1 with its 95% interval over problems, and judge calls per solution."""

    f1: float | None
    low: float | None
    high: float | None
    calls: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The cascade, the cheap critic alone and the judge alone, on solutions that did not choose the band."""

    cascade: Measured
    student: Measured
    judge: Measured
    difference: tuple[float, float | None, float | None]
    """F1 of the cascade less that of the judge, with its interval."""

    @property
    def share(self) -> float:
        """Share of the judge's calls."""
        return self.cascade.calls / self.judge.calls if self.judge.calls else 0.0


@dataclass(frozen=True, slots=True)
class TuningResult(Comparison):
    """The band chosen on one half of the problems and measured once on the other half. `curve` has the Pareto-optimal bands on
    the half used for choosing."""

    chosen: BandResult
    curve: tuple[BandResult, ...]
    target: float | None
    budget: float | None
    solutions: tuple[int, int]


class CaseArrays:
    """The steps of many solutions in flat arrays, so that a band is evaluated in a few operations. Arrays have the shape
    (steps,), or (solutions,) for values per solution."""

    def __init__(self, rows: Sequence[CascadeCase]) -> None:
        self.rows = rows
        sizes = np.array([len(row.p_correct) for row in rows])
        if not len(sizes) or not sizes.all():
            raise InputError("the dev set", "it has no solutions, or some without steps", "give solutions with steps and gold")
        self.starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self.owner = np.repeat(np.arange(len(rows)), sizes)
        self.step = np.arange(sizes.sum()) - self.starts[self.owner]
        self.error = 1 - np.array([np.nan if p is None else p for row in rows for p in row.p_correct], dtype=np.float64)
        self.known = self.error[~np.isnan(self.error)]
        self.gold = np.array([row.gold for row in rows])
        self.first = np.array([row.first for row in rows])
        self.by_step = bool(rows[0].judged)
        own = self.step == self.first[self.owner]
        if self.by_step:
            judged = [right for row in rows for right in row.judged]
            # Undecided: the result of the cheap critic stands.
            self.bad = np.where([right is None for right in judged], own, [right is False for right in judged])
        self.verdict = np.array([row.first if row.verdict is None else row.verdict for row in rows])
        self.before = self.step <= np.where(self.first < 0, _NONE, self.first)[self.owner]

    def run(self, low: float, high: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """First error and number of calls of the cascade, per solution."""
        inside = np.isnan(self.error) | ((self.error >= low) & (self.error <= high))
        if not self.by_step:
            asked = np.logical_or.reduceat(inside & self.before, self.starts)
            return np.where(asked, self.verdict, self.first), asked.astype(np.float64)
        wrong = (self.error > high) | (inside & self.bad)
        found = np.minimum.reduceat(np.where(wrong, self.step, _NONE), self.starts)
        asked_steps = inside & (self.step <= found[self.owner])
        calls = np.add.reduceat(asked_steps.astype(np.float64), self.starts)
        return np.where(found == _NONE, -1, found), calls

    def f1(self, predicted: Sequence[int | None] | NDArray[np.int64]) -> float:
        value = number(official_f1(first_error_rows(self.gold, predicted).sum(axis=0)))
        if value is None:
            raise InputError("the dev set", "F1 needs right and wrong solutions, and one kind is missing", "give both kinds")
        return value


def halves(rows: Sequence[CascadeCase], seed: int = 0) -> tuple[list[CascadeCase], list[CascadeCase]]:
    """Split by problem into two halves: one for choosing, one for measuring."""
    sides: tuple[list[CascadeCase], list[CascadeCase]] = ([], [])
    for row in rows:
        digest = sha256(f"{seed} {row.problem}".encode("utf-8", "surrogatepass")).digest()
        sides[digest[0] & 1].append(row)
    return sides


def try_bands(rows: Sequence[CascadeCase], grid: int = GRID) -> list[BandResult]:
    """Evaluate every band between quantiles of P(error); in the widest band, the judge is asked about everything."""
    flat = CaseArrays(rows)
    alone = sum(row.calls for row in rows)
    inner = np.quantile(flat.known, np.linspace(0, 1, grid)) if len(flat.known) else np.empty(0)
    bounds = np.unique(np.concatenate([[0.0], inner, [1.0]]))
    return [_tried(flat, float(low), float(high), alone) for i, low in enumerate(bounds) for high in bounds[i:]]


def _tried(flat: CaseArrays, low: float, high: float, alone: int) -> BandResult:
    predicted, calls = flat.run(low, high)
    return BandResult(low, high, flat.f1(predicted), float(calls.mean()), float(calls.sum() / alone))


def choose(tried: Sequence[BandResult], *, target: float | None = None, budget: float | None = None) -> BandResult:
    """The cheapest band with F1 of at least `target`, or the band with the best F1 for at most `budget` calls per solution.
    Ties go to the cheaper, then to the narrower band. Raises CriticPrmError if no band reaches the target."""
    if target is not None:
        enough = [one for one in tried if one.f1 >= target - 1e-12]
        if not enough:
            best = max(tried, key=lambda one: one.f1)
            raise CriticPrmError(
                f"no band reaches F1 {target:.4f}; the best is {best.f1:.4f}, with {best.share:.0%} of the judge's calls:"
                " lower --target-f1, or use a better judge or first critic"
            )
        return min(enough, key=lambda one: (one.calls, one.high - one.low))
    affordable = [one for one in tried if budget is None or one.calls <= budget + 1e-12]
    if not affordable:
        raise CriticPrmError(f"no band needs at most {budget:g} calls per solution; give a budget of at least 0")
    return min(affordable, key=lambda one: (-one.f1, one.calls, one.high - one.low))


def front(tried: Sequence[BandResult]) -> tuple[BandResult, ...]:
    """The Pareto-optimal bands, by increasing cost."""
    kept: list[BandResult] = []
    for one in sorted(tried, key=lambda one: (one.calls, -one.f1, one.high - one.low)):
        if not kept or one.f1 > kept[-1].f1:
            kept.append(one)
    return tuple(kept)


def tune(
    rows: Sequence[CascadeCase],
    *,
    target: float | None = None,
    budget: float | None = None,
    loss: float = 0.0,
    seed: int = 0,
    replicates: int = 2000,
) -> TuningResult:
    """Choose a band on one half of the problems and measure it once on the other.

    Without `target` and `budget` (calls per solution), the target is the F1 of the judge itself less `loss`. Choosing and
    measuring on the same solutions would give optimistic results. Raises CriticPrmError if the target cannot be reached,
    InputError for too little data.
    """
    first, second = halves(rows, seed)
    if len(first) < 2 or len(second) < 2:
        raise InputError(
            "the dev set", f"its {len(rows)} solutions are of too few problems", "give at least a few dozen problems"
        )
    here = CaseArrays(first)
    if target is None and budget is None:
        target = here.f1([row.alone for row in first]) - loss
    tried = try_bands(first)
    chosen = choose(tried, target=target, budget=budget)
    there = CaseArrays(second)
    return TuningResult(
        *compared(there, *there.run(chosen.low, chosen.high), replicates, seed),
        chosen=chosen,
        curve=front(tried),
        target=target,
        budget=budget,
        solutions=(len(first), len(second)),
    )


def compared(
    flat: CaseArrays, predicted: NDArray[np.int64], calls: NDArray[np.float64], replicates: int, seed: int
) -> tuple[Measured, Measured, Measured, tuple[float, float | None, float | None]]:
    """The fields of a `Comparison`, from the cascade's first errors and calls per solution."""
    rows = flat.rows
    alone, keys = [row.alone for row in rows], [row.problem for row in rows]
    pair = [first_error_rows(flat.gold, firsts) for firsts in (predicted, alone)]
    gap = paired_bootstrap(keys, pair[0], pair[1], official_f1, replicates=replicates, seed=seed)
    return (
        measured(flat, keys, predicted, float(calls.mean()), replicates, seed),
        measured(flat, keys, [row.first for row in rows], 0.0, replicates, seed),
        measured(flat, keys, alone, sum(row.calls for row in rows) / len(rows), replicates, seed),
        (gap.difference, gap.interval.low, gap.interval.high),
    )


def measured(
    flat: CaseArrays,
    keys: Sequence[str],
    predicted: Sequence[int | None] | NDArray[np.int64],
    calls: float,
    replicates: int,
    seed: int,
) -> Measured:
    """F1 of predicted first errors, with its interval."""
    rows: Array = first_error_rows(flat.gold, predicted)
    interval = cluster_bootstrap(keys, rows, official_f1, replicates=replicates, seed=seed)
    return Measured(number(official_f1(rows.sum(axis=0))), interval.low, interval.high, calls)
