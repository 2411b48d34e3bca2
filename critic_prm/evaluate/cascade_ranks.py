"""Choose a cascade's band as shares of the target data, from about a hundred solutions, with or without gold labels.

A judge that is asked about a whole solution replaces the verifier's judgement. Asking can only be spared where that changes
little: solutions that the verifier accepts with the highest scores, and those that it flags and in which it locates the first
error as well as the judge would. Both follow from three numbers per rank of the score: P(erroneous), P(the verifier names the
first error | erroneous), and the judge's accuracy. The first two are fitted by logistic regression on the rank, so that all
solutions inform the ends of the band, of which few of a hundred solutions are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from critic_prm.critics.cascade import RankBand, lowest_step, solution_score
from critic_prm.errors import CriticPrmError, InputError
from critic_prm.evaluate.cascade_tuning import UNKNOWN, CascadeCase, CaseArrays, Comparison, compared, referred
from critic_prm.metrics.scores import Array, first_error_rows, official_f1

Reference = Literal["gold", "judge"]
"""What the first errors are compared with: gold labels, or the judge's own labels."""

LOSS = {"gold": 0.01, "judge": 0.02}
"""Default loss of F1 against the judge. A loss against the judge's own labels is larger than the loss against gold labels,
because it counts the judge's false alarms that the cascade avoids as errors; see docs/cascade.md."""
CELLS = 100
"""Number of ranks; the shares of a band are multiples of 1 / CELLS."""
STRIDE = 4
"""The same for bands of steps, in cells."""
FOLDS = 5
RESAMPLES = 100
CAUTION = 0.2
"""A band must keep F1 in all but this part of the resamples, or the cheapest of many bands would be one that had luck."""
PRIOR = 1.0
"""Precision of the normal prior on the slope of the logistic regressions."""
DATA = "the data to tune on"
FEWEST = 20
"""Fewest solutions to choose a band on."""


@dataclass(frozen=True, slots=True)
class Shares:
    """A band, its expected F1, and its judge calls: per solution, and as a share of the calls of the judge alone.

    `f1_low` is the F1 that the band is chosen by: that of the judge alone, less the loss in the worst resamples (see CAUTION).
    """

    flag: float
    accept: float
    f1: float
    f1_low: float
    calls: float
    share: float


@dataclass(frozen=True, slots=True)
class RankTuning(Comparison):
    """The chosen shares, the cheapest band for each F1, and the result of bands chosen on other folds of the problems.

    F1 is against the reference. With the judge's labels as reference, the judge alone has F1 1.
    """

    chosen: Shares
    curve: tuple[Shares, ...]
    reference: Reference
    target: float | None
    budget: float | None
    solutions: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Goal:
    """What a band is chosen for: the cheapest with F1 `target`, or the judge's less `loss`; or the best for `budget` calls."""

    target: float | None = None
    budget: float | None = None
    loss: float = 0.0


def tune_ranks(
    rows: Sequence[CascadeCase],
    quantiles: Sequence[float],
    *,
    reference: Reference = "gold",
    goal: Goal | None = None,
    seed: int = 0,
    replicates: int = 2000,
) -> RankTuning:
    """Choose the shares to accept and to flag without the judge, on all rows, and measure the method on FOLDS folds.

    `quantiles` are those of a calibration profile, of the scores of steps or solutions. With the reference "judge", gold labels
    are not used, and rows without a usable verdict of the judge are left out. Raises CriticPrmError if no band reaches the
    goal, InputError for fewer than FEWEST solutions or without both right and wrong ones.
    """
    goal = goal or Goal(loss=LOSS[reference])
    used = referred(rows) if reference == "judge" else list(rows)
    if len(used) < FEWEST:
        raise InputError(DATA, f"it has {len(used)} usable solutions", f"give at least {FEWEST}, better 100")
    chosen, curve = choose_shares(used, quantiles, goal)
    return RankTuning(
        *compared(CaseArrays(used), *_crossed(used, quantiles, goal, seed), replicates, seed),
        chosen=chosen,
        curve=curve,
        reference=reference,
        target=goal.target,
        budget=goal.budget,
        solutions=len(used),
        left_out=len(rows) - len(used),
    )


def choose_shares(
    rows: Sequence[CascadeCase], quantiles: Sequence[float], goal: Goal, seed: int = 0
) -> tuple[Shares, tuple[Shares, ...]]:
    """Return the best shares for the goal, and the cheapest band for each F1, by increasing cost."""
    bad = np.array([row.gold >= 0 for row in rows])
    if bad.all() or not bad.any():
        raise InputError(DATA, "F1 needs right and wrong solutions, and one kind is missing", "give both kinds")
    weights = _resampled([row.problem for row in rows], bad, seed)
    bands, f1, calls = (_by_step if rows[0].judged else _by_solution)(rows, quantiles, weights)
    loss = np.quantile(f1[1:, :1] - f1[1:], 1 - CAUTION, axis=0)
    alone = sum(row.calls for row in rows) / len(rows)
    tried = [
        Shares(flag, accept, estimate, low, cost, cost / alone)
        for (flag, accept), estimate, low, cost in zip(
            bands, f1[0].tolist(), (f1[0, 0] - loss).tolist(), calls.tolist(), strict=True
        )
    ]
    target = tried[0].f1 - goal.loss if goal.target is None else goal.target
    if goal.budget is not None:
        affordable = [one for one in tried if one.calls <= goal.budget + 1e-9]
        best = min(affordable, key=lambda one: (-one.f1_low, one.calls, one.flag))
    else:
        enough = [one for one in tried if one.f1_low >= target - 1e-9]
        if not enough:
            top = max(tried, key=lambda one: one.f1_low)
            raise CriticPrmError(
                f"no band reaches F1 {target:.4f}; the best is {top.f1_low:.4f}, with {top.share:.0%} of the judge's calls:"
                " lower --target-f1, or use a better judge or verifier"
            )
        best = min(enough, key=lambda one: (one.calls, -one.f1, one.flag))
    curve: list[Shares] = []
    for one in sorted(tried, key=lambda one: (one.calls, -one.f1, one.flag)):
        if not curve or one.f1 > curve[-1].f1:
            curve.append(one)
    return best, tuple(curve)


def _resampled(problems: Sequence[str], bad: NDArray[np.bool_], seed: int) -> Array:
    """Weights of the rows, (1 + RESAMPLES, rows): first 1 for each, then how often each problem is drawn. Every resample has
    rows of both kinds."""
    _, owner = np.unique(np.array(problems), return_inverse=True)
    generator = np.random.default_rng(seed)
    size = int(owner.max()) + 1
    drawn = generator.multinomial(size, np.full(size, 1 / size), size=RESAMPLES)[:, owner].astype(np.float64)
    both = (drawn[:, bad].sum(axis=1) > 0) & (drawn[:, ~bad].sum(axis=1) > 0)
    return np.concatenate([np.ones((1, len(owner))), drawn[both]])


Bands = tuple[list[tuple[float, float]], Array, Array]
"""The shares flagged and accepted per band, first those that ask about everything; F1, (resamples, bands); calls per
solution, (bands,)."""


def _by_solution(rows: Sequence[CascadeCase], quantiles: Sequence[float], weights: Array) -> Bands:
    """Every band's expected F1, by curves fitted to each resample."""
    x = ranks([solution_score(row.p_correct) for row in rows], quantiles)
    gold = np.array([row.gold for row in rows])
    bad, scored = gold >= 0, ~np.isnan(x)
    named = np.array([flagged_step(row) if has else UNKNOWN for row, has in zip(rows, scored, strict=True)]) == gold
    right = np.array([row.first if row.verdict is None else row.verdict for row in rows]) == gold
    cells = _normal((np.arange(CELLS) + 0.5) / CELLS)
    p_bad = fit(x[scored], bad[scored], weights[:, scored], cells)
    p_named = fit(x[scored & bad], named[scored & bad], weights[:, scored & bad], cells)
    judge_bad, judge_good = ((weights[:, kind] @ right[kind]) / weights[:, kind].sum(axis=1) for kind in (bad, ~bad))
    flag, accept = np.nonzero(np.add.outer(np.arange(CELLS + 1), np.arange(CELLS + 1)) <= CELLS)
    f1 = expected_f1(p_bad, p_named, judge_bad, judge_good, flag, accept)
    return list(zip((flag / CELLS).tolist(), (accept / CELLS).tolist(), strict=True)), f1, 1 - (flag + accept) / CELLS


def expected_f1(
    p_bad: Array, p_named: Array, judge_bad: Array, judge_good: Array, flag: NDArray[np.int64], accept: NDArray[np.int64]
) -> Array:
    """Expected F1 of bands that flag and accept these numbers of cells, shape (resamples, bands).

    `p_bad` is P(erroneous) per cell of the rank, from the lowest score to the highest, `p_named` P(the verifier names the first
    error | erroneous), shape (resamples, cells); `judge_bad` and `judge_good` are the judge's accuracies, shape (resamples,).
    """
    start = np.zeros((len(p_bad), 1))
    bad, good, named = (np.hstack([start, np.cumsum(v, axis=1)]) for v in (p_bad, 1 - p_bad, p_bad * p_named))
    top = p_bad.shape[1] - accept
    hit_bad = named[:, flag] + judge_bad[:, None] * (bad[:, top] - bad[:, flag])
    hit_good = judge_good[:, None] * (good[:, top] - good[:, flag]) + good[:, -1:] - good[:, top]
    return official_f1(np.stack(np.broadcast_arrays(bad[:, -1:], hit_bad, good[:, -1:], hit_good), axis=-1))


def ranks(scores: Sequence[float | None], quantiles: Sequence[float]) -> Array:
    """The standard normal quantile of each score's rank among the quantiles; nan without a score."""
    places = np.array([np.nan if score is None else score for score in scores])
    grid = np.linspace(0, 1, len(quantiles))
    edge = 0.5 / CELLS
    return _normal(np.clip(np.interp(places, quantiles, grid), edge, 1 - edge))


def _normal(share: Array) -> Array:
    from scipy.special import ndtri

    return np.asarray(ndtri(share))


def fit(x: Array, y: NDArray[np.bool_], weights: Array, at: Array) -> Array:
    """P(y) at `at` by logistic regression on x, with a normal prior on the slope and half a success and half a failure added.

    `weights` has the shape (resamples, rows); the result (resamples, points).
    """
    x, y = np.concatenate([x, [0.0, 0.0]]), np.concatenate([y, [0.0, 1.0]])
    weights = np.hstack([weights, np.full((len(weights), 2), 0.5)])
    level, slope = np.zeros(len(weights)), np.zeros(len(weights))
    for _ in range(50):
        p = 1 / (1 + np.exp(-(level[:, None] + slope[:, None] * x)))
        residual, curvature = weights * (y - p), weights * np.maximum(p * (1 - p), 1e-6)
        gradient = residual.sum(axis=1), residual @ x - PRIOR * slope
        a, b, c = curvature.sum(axis=1), curvature @ x, curvature @ x**2 + PRIOR
        moves = [(c * gradient[0] - b * gradient[1]) / (a * c - b * b), (a * gradient[1] - b * gradient[0]) / (a * c - b * b)]
        level, slope = level + np.clip(moves[0], -2, 2), slope + np.clip(moves[1], -2, 2)
        if np.abs(moves).max() < 1e-6:
            break
    return np.asarray(1 / (1 + np.exp(-(level[:, None] + slope[:, None] * at))))


def flagged_step(row: CascadeCase) -> int:
    """The first error that the verifier names if the solution is flagged."""
    return row.first if row.first >= 0 else lowest_step(dict(enumerate(row.p_correct)))


def _by_step(rows: Sequence[CascadeCase], quantiles: Sequence[float], weights: Array) -> Bands:
    """Every band of step scores on a grid of shares, run on the rows."""
    flat = CaseArrays(rows)
    bands = [(f / CELLS, a / CELLS) for f in range(0, CELLS + 1, STRIDE) for a in range(0, CELLS + 1 - f, STRIDE)]
    results = [run_ranks(flat, RankBand(flag, accept, quantiles)) for flag, accept in bands]
    hits = np.stack([first_error_rows(flat.gold, predicted) for predicted, _ in results])  # (bands, rows, 4)
    f1 = official_f1(np.einsum("rn,bnk->rbk", weights, hits, optimize=True))
    return bands, f1, np.array([calls.mean() for _, calls in results])


def run_ranks(flat: CaseArrays, band: RankBand) -> tuple[NDArray[np.int64], Array]:
    """First error and number of calls of the cascade, per solution."""
    if flat.by_step:
        return flat.run(1 - band.high, 1 - band.low)
    calls = [band.call(solution_score(row.p_correct)) for row in flat.rows]
    without = {"good": lambda row: -1, "bad": flagged_step}
    first = [
        (row.first if row.verdict is None else row.verdict) if call == "ask" else without[call](row)
        for row, call in zip(flat.rows, calls, strict=True)
    ]
    return np.array(first), np.array([float(call == "ask") for call in calls])


def _crossed(
    rows: Sequence[CascadeCase], quantiles: Sequence[float], goal: Goal, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """First errors and calls on each fold of the problems, with the band that is chosen on the other folds."""
    fold = np.array([sha256(f"{seed} {row.problem}".encode("utf-8", "surrogatepass")).digest()[0] % FOLDS for row in rows])
    first, calls = np.zeros(len(rows), dtype=np.int64), np.zeros(len(rows))
    for part in np.unique(fold):
        here = np.flatnonzero(fold == part)
        others = [row for row, place in zip(rows, fold, strict=True) if place != part]
        if not others:
            raise InputError(DATA, "it is of too few problems", "give at least a few dozen")
        try:
            chosen, _ = choose_shares(others, quantiles, goal)
            band = RankBand(chosen.flag, chosen.accept, quantiles)
        except CriticPrmError:  # the other folds do not reach the goal
            band = RankBand(0.0, 0.0, quantiles)
        first[here], calls[here] = run_ranks(CaseArrays([rows[place] for place in here.tolist()]), band)
    return first, calls
