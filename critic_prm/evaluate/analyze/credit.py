"""Attribute a solution's score to its steps with Shapley values and leave-one-out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import comb, sqrt
from random import Random
from statistics import fmean

from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Step, Trajectory, blind
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table, shares
from critic_prm.label.run import RunStats, label

NUMBERS = {
    "localised": "share of wrong solutions whose least valuable step is the gold first error",
    "by_score": "the same by the critic's plain scores: the lowest P(correct)",
    "concentration": "mean share of all credit, by size, that one step has; 1 over the number of steps is even",
    "largest_error": "the largest standard error of a sampled value; 0 where all are exact",
    "unscored": "share of solutions that could not be valued because a judgement was missing",
}
EXACT = 6
"""Maximum number of steps for exact values, which need 2^n scores."""
ORDERS = 16
"""Number of sampled step orders for longer solutions, each used with its reverse."""
HIDDEN = "(this step is not shown)"

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
        return min(range(len(self.values)), key=lambda place: self.values[place])


def needed(steps: int, orders: int, rng: Random) -> tuple[list[tuple[int, ...]], set[Kept]]:
    """The orders to sample (none if all subsets are scored), and the subsets of steps whose scores are needed."""
    places = range(steps)
    if steps <= EXACT:
        return [], {frozenset(kept) for size in range(steps + 1) for kept in combinations(places, size)}
    drawn = [tuple(rng.sample(places, steps)) for _ in range(orders)]
    drawn = [order for one in drawn for order in (one, one[::-1])]
    kept = {frozenset(order[:size]) for order in drawn for size in range(steps + 1)}
    return drawn, kept | {frozenset(places) - {place} for place in places}


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
    for one, other in zip(orders[::2], orders[1::2], strict=True):
        both = [0.0] * steps
        for order in (one, other):
            for place, step in enumerate(order):
                both[step] += (value[frozenset(order[: place + 1])] - value[frozenset(order[:place])]) / 2
        for step in range(steps):
            gains[step].append(both[step])
    n = len(gains[0])
    means = [fmean(row) for row in gains]
    spreads = [sqrt(sum((x - mean) ** 2 for x in row) / max(1, n - 1) / n) for row, mean in zip(gains, means, strict=True)]
    return means, spreads


async def credit(
    solutions: Sequence[Trajectory],
    critic: Critic,
    *,
    how: str = "mean",
    orders: int = ORDERS,
    workers: int = 64,
    seed: int = 0,
    tally: RunStats | None = None,
) -> Analysis:
    """Attribute the scores of solutions to their steps: the change in score when a step is shown, averaged over which other
    steps are shown.

    The score is the aggregate `how` over all steps; a hidden step is replaced by a placeholder text. Solutions with up to EXACT
    steps take 2^n judgements, longer ones about 2 * orders * n. Gold is not shown to the critic. A solution with an unusable
    judgement is left out. If the judgement is usable but covers none of the shown steps, the score is 0, the value of the empty
    set in Shapley's definition. Raises UsageError, and InputError if no solution could be evaluated.
    """
    function = open_aggregation(how)
    if orders < 2:
        raise UsageError(f"--orders is {orders}; at least 2 are needed to tell how sure a value is")
    tally = tally or RunStats()
    plans = []
    for solution in solutions:
        drawn, kept = needed(len(solution.steps), orders, Random(f"{seed} {solution.id}"))
        plans.append((solution, drawn, sorted(kept, key=sorted)))

    def masked() -> Iterator[Trajectory]:
        return (hide(blind(solution), subset) for solution, _, kept in plans for subset in kept)

    scored: list[tuple[float | None, tuple[float | None, ...]]] = []
    async for _, said in label(masked(), critic, workers=workers):
        tally.add(said)
        score = aggregate(said.p_correct, function)
        scored.append(((score or 0.0) if said.status == "ok" else None, said.p_correct))
    answers = iter(scored)
    found: list[Credit] = []
    for solution, drawn, subsets in plans:
        mine = {subset: next(answers) for subset in subsets}
        value = {subset: score for subset, (score, _) in mine.items() if score is not None}
        if len(value) == len(mine):
            found.append(_credit(solution, drawn, value, mine[frozenset(range(len(solution.steps)))][1]))
    if not found:
        raise InputError(
            "the solutions", "none could be valued: judgements are missing for each", "see what failed, or try others"
        )
    return _analysis(found, len(plans), how)


def hide(solution: Trajectory, kept: Kept) -> Trajectory:
    """The solution with every step except `kept` hidden."""
    steps = tuple(step if place in kept else Step(HIDDEN) for place, step in enumerate(solution.steps))
    answer = solution.final_answer if len(solution.steps) - 1 in kept else None
    return replace(solution, id=f"{solution.id}/{'.'.join(map(str, sorted(kept)))}", steps=steps, final_answer=answer)


def _credit(
    solution: Trajectory, drawn: Sequence[tuple[int, ...]], value: Mapping[Kept, float], scores: tuple[float | None, ...]
) -> Credit:
    n = len(solution.steps)
    values, errors = sampled_shapley(n, drawn, value) if drawn else (shapley(n, value), [0.0] * n)
    everything = frozenset(range(n))
    alone = tuple(value[everything] - value[everything - {place}] for place in range(n))
    return Credit(solution, tuple(values), tuple(errors), alone, scores)


def _analysis(found: Sequence[Credit], asked: int, how: str) -> Analysis:
    wrong = [(one, first) for one in found if (first := one.solution.first_error()) is not None and first >= 0]
    localised = shares(one.weakest == first for one, first in wrong)
    by_score = shares(_lowest(one.scores) == first for one, first in wrong)
    sizes = [[abs(value) for value in one.values] for one in found]
    numbers: dict[str, float | None] = {
        "localised": localised,
        "by_score": by_score,
        "concentration": fmean(heads) if (heads := [max(row) / sum(row) for row in sizes if max(row) >= NOTHING]) else None,
        "largest_error": max(error for one in found for error in one.errors),
        "unscored": 1 - len(found) / asked,
    }
    findings = []
    if max(map(max, sizes)) < NOTHING:
        findings.append("no step contributes anything: the critic gives the same score with every step hidden")
    tables = [_table(one) for one in found[:3]]
    if wrong:
        rows: tuple[tuple[Cell, ...], ...] = (
            ("least Shapley value", localised),
            (
                "lost least when hidden alone",
                shares(min(range(len(one.alone)), key=one.alone.__getitem__) == g for one, g in wrong),
            ),
            ("lowest P(correct)", by_score),
            ("any step, by chance", fmean(1 / len(one.values) for one, _ in wrong)),
        )
        tables.append(Table(f"Where the gold first error of {len(wrong):,} wrong solutions is found", ("by", "share"), rows))
    notes = (
        f"value: Shapley's, of the {how} of P(correct); a step below 0 lowers the score on average. alone: what hiding it alone"
        " takes away.",
        f"Exact up to {EXACT} steps, sampled beyond (+-: standard error). {asked - len(found):,} solutions were not valued.",
    )
    details = tuple(
        {"id": one.solution.id, "values": one.values, "errors": one.errors, "alone": one.alone, "p_correct": one.scores}
        for one in found
    )
    return Analysis("credit", numbers, tuple(findings), notes, tuple(tables), details)


def _lowest(scores: Sequence[float | None]) -> int | None:
    known = [place for place, score in enumerate(scores) if score is not None]
    return min(known, key=lambda place: scores[place] or 0.0, default=None)


def _table(one: Credit) -> Table:
    gold = one.solution.first_error()
    rows: list[tuple[Cell, ...]] = []
    for place, (step, value, error, alone, p) in enumerate(
        zip(one.solution.texts, one.values, one.errors, one.alone, one.scores, strict=True)
    ):
        text = " ".join(step.split())
        marks = "gold error" if gold == place else ""
        rows.append((place, text[:27] + "..." if len(text) > 30 else text, p, value, error or None, alone, marks))
    return Table(f"Solution {one.solution.id}", ("step", "", "P", "value", "+-", "alone", "gold"), tuple(rows))
