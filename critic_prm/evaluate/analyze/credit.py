"""Attribute a solution's score to its steps with Shapley values and leave-one-out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb, sqrt
from random import Random
from statistics import fmean, stdev

from critic_prm.data import Critic, Step, Trajectory
from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.analysis import HIDDEN, Analysis, Cell, Table, mean, share, shortened
from critic_prm.evaluate.run import predict
from critic_prm.evaluate.settings import CreditSettings
from critic_prm.label.progress import RunStats

NUMBERS = {
    "localised": "share of wrong solutions whose least valuable step is the gold first error",
    "by_score": "share of wrong solutions whose step with the lowest P(correct) is the gold first error",
    "concentration": "mean share of the largest value in the sum of absolute values; 1 / number of steps if all are equal",
    "largest_error": "largest standard error of a sampled value; 0 if all are exact",
    "unscored": "share of solutions without values because a judgement was missing",
}
EXACT = 6
"""Maximum number of steps for exact values, which need 2^n scores."""

NOTHING = 1e-9

Kept = frozenset[int]


@dataclass(frozen=True, slots=True)
class Credit:
    """The contributions of the steps of one solution, in units of its score."""

    solution: Trajectory
    values: tuple[float, ...]
    """Shapley values. They sum to the score of the whole solution minus the score with every step hidden."""
    errors: tuple[float, ...]
    """Standard errors of the values, 0 if exact."""
    alone: tuple[float, ...]
    """Loss of score when only this step is hidden."""
    scores: tuple[float | None, ...]
    """P(correct) of the steps."""

    @property
    def weakest(self) -> int:
        return min(range(len(self.values)), key=self.values.__getitem__)


def needed(steps: int, orders: int, rng: Random) -> tuple[list[tuple[int, ...]], set[Kept]]:
    """The orders to sample (none if all subsets are scored), and the subsets of steps whose scores are needed."""
    places = range(steps)
    if steps <= EXACT:
        return [], {frozenset(kept) for size in range(steps + 1) for kept in combinations(places, size)}
    forward = [tuple(rng.sample(places, steps)) for _ in range(orders)]
    sampled = [direction for order in forward for direction in (order, order[::-1])]
    kept = {frozenset(order[:size]) for order in sampled for size in range(steps + 1)}
    return sampled, kept | {frozenset(places) - {place} for place in places}


def shapley(steps: int, value: Mapping[Kept, float]) -> list[float]:
    """Exact Shapley values (1953) from the value of every subset of the steps."""
    out = []
    for place in range(steps):
        others = [p for p in range(steps) if p != place]
        total = 0.0
        for size in range(steps):
            weight = 1 / (steps * comb(steps - 1, size))
            total += weight * sum(value[frozenset((*k, place))] - value[frozenset(k)] for k in combinations(others, size))
        out.append(total)
    return out


def sampled_shapley(
    steps: int, orders: Sequence[tuple[int, ...]], value: Mapping[Kept, float]
) -> tuple[list[float], list[float]]:
    """Shapley values estimated from the marginal contribution of each step in the given orders, and their standard errors.

    The orders come in pairs, each with its reverse (Mitchell et al. 2022); the mean of a pair counts as one draw. The marginal
    contributions of every order have the same sum, and so do the estimates.
    """
    gains: list[list[float]] = [[] for _ in range(steps)]
    for pair in zip(orders[::2], orders[1::2], strict=True):
        both = [0.0] * steps
        for order in pair:
            for place, step in enumerate(order):
                both[step] += (value[frozenset(order[: place + 1])] - value[frozenset(order[:place])]) / 2
        for step in range(steps):
            gains[step].append(both[step])
    means = [fmean(row) for row in gains]
    errors = [stdev(row) / sqrt(len(row)) if len(row) > 1 else 0.0 for row in gains]
    return means, errors


DEFAULTS = CreditSettings()


async def credit(
    solutions: Sequence[Trajectory],
    critic: Critic,
    settings: CreditSettings = DEFAULTS,
    *,
    workers: int = 64,
    tally: RunStats | None = None,
) -> Analysis:
    """Attribute the scores of solutions to their steps: the change in score when a step is shown, averaged over which other
    steps are shown.

    A hidden step is replaced by a placeholder text. Solutions with up to EXACT steps take 2^n judgements, longer ones about
    2 * orders * n. Gold is not shown to the critic. A solution with an unusable judgement is left out. If the judgement is
    usable but covers none of the shown steps, the score is 0, the value of the empty set in Shapley's definition. Raises
    InputError if no solution could be evaluated.
    """
    aggregation = open_aggregation(settings.aggregation)
    plans = []
    for solution in solutions:
        orders, kept = needed(len(solution.steps), settings.orders, Random(f"{settings.seed} {solution.id}"))
        plans.append((solution, orders, sorted(kept, key=sorted)))
    masked = ((subset, hide(solution, subset)) for solution, _, subsets in plans for subset in subsets)
    predictions = predict(critic, masked, workers=workers, tally=tally)
    labels = iter([labelled async for _, _, labelled in predictions])
    credits: list[Credit] = []
    for solution, orders, subsets in plans:
        by_subset = {subset: next(labels) for subset in subsets}
        value = {
            subset: aggregate(one.p_correct, aggregation) or 0.0 for subset, one in by_subset.items() if one.status == "ok"
        }
        if len(value) == len(by_subset):
            everything = frozenset(range(len(solution.steps)))
            credits.append(_credit(solution, orders, value, by_subset[everything].p_correct))
    if not credits:
        raise InputError("the solutions", "each lacks a usable judgement", "see what failed, or try other solutions")
    return _analysis(credits, len(plans), settings.aggregation)


def hide(solution: Trajectory, kept: Kept) -> Trajectory:
    """The solution with every step except `kept` hidden."""
    steps = tuple(step if place in kept else Step(HIDDEN) for place, step in enumerate(solution.steps))
    answer = solution.final_answer if len(solution.steps) - 1 in kept else None
    return replace(solution, id=f"{solution.id}/{'.'.join(map(str, sorted(kept)))}", steps=steps, final_answer=answer)


def _credit(
    solution: Trajectory, orders: Sequence[tuple[int, ...]], value: Mapping[Kept, float], scores: tuple[float | None, ...]
) -> Credit:
    n = len(solution.steps)
    values, errors = sampled_shapley(n, orders, value) if orders else (shapley(n, value), [0.0] * n)
    everything = frozenset(range(n))
    alone = tuple(value[everything] - value[everything - {place}] for place in range(n))
    return Credit(solution, tuple(values), tuple(errors), alone, scores)


def _analysis(credits: Sequence[Credit], asked: int, aggregation: str) -> Analysis:
    wrong = [(one, first) for one in credits if (first := one.solution.first_error()) is not None and first >= 0]
    localised = share(one.weakest == first for one, first in wrong)
    by_score = share(_lowest(one.scores) == first for one, first in wrong)
    sizes = [[abs(value) for value in one.values] for one in credits]
    numbers: dict[str, float | None] = {
        "localised": localised,
        "by_score": by_score,
        "concentration": mean(max(row) / sum(row) for row in sizes if max(row) >= NOTHING),
        "largest_error": max(error for one in credits for error in one.errors),
        "unscored": 1 - len(credits) / asked,
    }
    findings = []
    if max(map(max, sizes)) < NOTHING:
        findings.append("no step contributes anything: the critic gives the same score with every step hidden")
    tables = [_table(one) for one in credits[:3]]
    if wrong:
        rows: tuple[tuple[Cell, ...], ...] = (
            ("least Shapley value", localised),
            ("lost least when hidden alone", share(_lowest(one.alone) == first for one, first in wrong)),
            ("lowest P(correct)", by_score),
            ("any step, by chance", mean(1 / len(one.values) for one, _ in wrong)),
        )
        tables.append(Table(f"Where the gold first error of {len(wrong):,} wrong solutions is found", ("by", "share"), rows))
    notes = (
        f"value: Shapley's, of the {aggregation} of P(correct); a step below 0 lowers the score on average. alone: the loss of"
        " score when only this step is hidden.",
        f"Exact up to {EXACT} steps, sampled beyond (+-: standard error). {asked - len(credits):,} solutions were not valued.",
    )
    details = tuple(
        {"id": one.solution.id, "values": one.values, "errors": one.errors, "alone": one.alone, "p_correct": one.scores}
        for one in credits
    )
    return Analysis("credit", numbers, tuple(findings), notes, tuple(tables), details)


def _lowest(scores: Sequence[float | None]) -> int | None:
    ranked = [(score, place) for place, score in enumerate(scores) if score is not None]
    return min(ranked)[1] if ranked else None


def _table(one: Credit) -> Table:
    gold = one.solution.first_error()
    rows: list[tuple[Cell, ...]] = []
    columns = zip(one.solution.texts, one.scores, one.values, one.errors, one.alone, strict=True)
    for place, (step, p, value, error, alone) in enumerate(columns):
        mark = "gold error" if gold == place else ""
        rows.append((place, shortened(step), p, value, error or None, alone, mark))
    return Table(f"Solution {one.solution.id}", ("step", "", "P", "value", "+-", "alone", "gold"), tuple(rows))
