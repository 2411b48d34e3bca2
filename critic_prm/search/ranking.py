"""Pick the best candidate per problem from step scores, and estimate best-of-N accuracy."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from critic_prm.data.aggregate import AGGREGATIONS, aggregate, lower_bounds, open_aggregation, spread_bounds
from critic_prm.data.judgement import Label, combine
from critic_prm.data.label_rows import label_row
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.metrics.scores import Array
from critic_prm.search.rank_curve import Point, Pool, curve

Pick = Literal["best", "vote"]
CORRECT = "final_answer_correct"
"""Field that says whether a candidate without a gold answer is right."""

FLAGGED = 0.3
"""If the rank correlation of score and length among equally right solutions exceeds this, the score is flagged as
length-biased."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One solution. `answer` is the index of its answer among those of the problem, -1 for none; `right` is None if unknown.
    `scores` has one value per aggregation, None if no step was judged."""

    trajectory: Trajectory
    label: Label
    answer: int
    right: bool | None
    scores: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Group:
    """All candidates of a problem, in input order. `answers` are the distinct answers, as first written."""

    problem: str
    answers: tuple[str, ...]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The ranking of a group: `order` has the candidates' indices, best first. `score` is the score of the first one, None if
    it has no score."""

    group: Group
    order: tuple[int, ...]
    score: float | None

    @property
    def taken(self) -> Candidate:
        return self.group.candidates[self.order[0]]


@dataclass(frozen=True, slots=True)
class Length:
    """Spearman correlation of score and number of steps within a problem, averaged over problems: among all candidates
    (`within`) and among those that are equally right (`equal`). None if nothing varies."""

    within: float | None
    equal: float | None

    @property
    def flagged(self) -> bool:
        known = self.within if self.equal is None else self.equal
        return known is not None and abs(known) > FLAGGED


@dataclass(frozen=True, slots=True)
class Ranking:
    """One choice per problem, and the estimated accuracy of every selection rule with N candidates."""

    choices: tuple[Choice, ...]
    curves: Mapping[str, Sequence[Point]]
    length: Mapping[str, Length]
    unscored: int
    without_answer: int
    known: int
    """Number of problems whose candidates are all known to be right or wrong; the curves use only these."""
    counts: Mapping[str, int] = field(default_factory=dict)


async def group_candidates(
    candidates: AsyncIterable[tuple[Trajectory, Label]], grader: Grader, bound: str | None = None, extra: Iterable[str] = ()
) -> list[Group]:
    """Group candidates by problem, match equal answers, and score them by every aggregation.

    `grader` decides whether answers are equal. With a `bound`, scores are lower bounds, computed from the votes (wilson,
    jeffreys, posterior_cvar) or from the spread of the samples or judges behind a label (spread). `extra` lists parametrized
    aggregations such as "cvar:0.2". Raises UsageError for an unknown name.
    """
    hows = {how: open_aggregation(how) for how in (*AGGREGATIONS, *extra)}
    problems: dict[str, list[tuple[Trajectory, Label]]] = {}
    async for trajectory, label in candidates:
        problems.setdefault(trajectory.problem.strip(), []).append((trajectory, label))
    groups = []
    for problem, rows in problems.items():
        texts: list[str] = []
        truths: dict[tuple[int, str], bool] = {}
        found = []
        for trajectory, label in rows:
            answer = await _number(answer_of(trajectory), texts, grader)
            right = await _right(trajectory, answer, texts, truths, grader)
            p = _cautious(label, bound) if bound else label.p_correct
            scores = {how: aggregate(p, function) for how, function in hows.items()}
            found.append(Candidate(trajectory, label, answer, right, scores))
        groups.append(Group(problem, tuple(texts), tuple(found)))
    return groups


def _cautious(label: Label, bound: str) -> Sequence[float | None]:
    if bound != "spread":
        return lower_bounds(label.votes, bound)
    voices = [voice for judgement in label.judgements for voice in (judgement.parts or (judgement,)) if voice.status == "ok"]
    steps = len(label.p_correct)
    return spread_bounds([combine([voice], steps).p_correct for voice in voices]) if voices else [None] * steps


def answer_of(trajectory: Trajectory) -> str | None:
    """The `final_answer` field, or else the answer stated in the steps."""
    return trajectory.final_answer or final_answer("\n\n".join(trajectory.texts))


async def _number(answer: str | None, texts: list[str], grader: Grader) -> int:
    if answer is None:
        return -1
    if answer in texts:
        return texts.index(answer)
    for place, other in enumerate(texts):
        if await grader.same(answer, other):
            return place
    texts.append(answer)
    return len(texts) - 1


async def _right(
    trajectory: Trajectory, answer: int, texts: Sequence[str], truths: dict[tuple[int, str], bool], grader: Grader
) -> bool | None:
    """Compare with the gold answer, once per distinct answer; without one, use the CORRECT field of the row."""
    gold = trajectory.gold_answer
    if gold is None:
        said = trajectory.extra.get(CORRECT)
        return said if isinstance(said, bool) else None
    if answer < 0:
        return False
    if (answer, gold) not in truths:
        truths[answer, gold] = await grader.same(texts[answer], gold)
    return truths[answer, gold]


def choose(group: Group, by: str = "min", pick: Pick = "best") -> Choice:
    """Choose the candidate with the highest score under the aggregation `by`. With "vote", choose the answer with the largest
    sum of scores and then its highest-scoring candidate.

    Tied votes go to the answer with the higher single score. Tied scores (frequent after calibration) go to the candidate with
    the higher mean over its steps, so that file order does not decide, and then to the earlier one. Candidates without a score
    come last and have weight 0; if none has a score, plain votes decide.
    """
    scores = [candidate.scores[by] for candidate in group.candidates]
    keys = [-np.inf if score is None else score for score in scores]
    means = [candidate.scores["mean"] or 0.0 for candidate in group.candidates]
    order = sorted(range(len(keys)), key=lambda place: (-keys[place], -means[place]))
    winner = _voted(group, scores) if pick == "vote" else None
    if winner is not None:
        order.sort(key=lambda place: group.candidates[place].answer != winner)
    return Choice(group, tuple(order), scores[order[0]])


def _voted(group: Group, scores: Sequence[float | None]) -> int | None:
    totals: dict[int, tuple[float, float]] = {}
    weights = scores if any(scores) else [1.0] * len(scores)
    for candidate, weight in zip(group.candidates, weights, strict=True):
        if candidate.answer >= 0:
            total, most = totals.get(candidate.answer, (0.0, 0.0))
            totals[candidate.answer] = (total + (weight or 0.0), max(most, weight or 0.0))
    # Sums of the same scores in a different order may differ in the last digit.
    return max(totals, key=lambda answer: (round(totals[answer][0], 9), totals[answer][1], -answer)) if totals else None


def rank(
    groups: Sequence[Group],
    *,
    by: str = "min",
    pick: Pick = "best",
    sizes: Sequence[int] | None = None,
    seed: int = 0,
    replicates: int = 2000,
) -> Ranking:
    """Choose a candidate in each group, and estimate the accuracy of every selection rule on the groups with known correctness.

    `sizes` are the values of N for the curves; by default the powers of two up to the size of the largest group, and that size.
    Raises UsageError.
    """
    if any(by not in candidate.scores for group in groups for candidate in group.candidates):
        raise UsageError(f"candidates were not scored by {by!r}; available: {', '.join(AGGREGATIONS)}, or give it as extra")
    candidates = [candidate for group in groups for candidate in group.candidates]
    known = [group for group in groups if all(candidate.right is not None for candidate in group.candidates)]
    most = max((len(group.candidates) for group in known), default=0)
    hows = list(candidates[0].scores) if candidates else []
    curves = curve([_pool(group, hows) for group in known], sizes or powers(most), seed=seed, replicates=replicates)
    return Ranking(
        choices=tuple(choose(group, by, pick) for group in groups),
        curves=curves,
        length={how: length_bias(groups, how) for how in hows},
        unscored=sum(candidate.scores[by] is None for candidate in candidates),
        without_answer=sum(candidate.answer < 0 for candidate in candidates),
        known=len(known),
        counts={"problems": len(groups), "candidates": len(candidates)},
    )


def powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`, and `most` itself."""
    return sorted({*(2**k for k in range(most.bit_length()) if 2**k <= most), *([most] if most else [])})


def _pool(group: Group, hows: Sequence[str]) -> Pool:
    return Pool(
        right=np.array([bool(candidate.right) for candidate in group.candidates], dtype=np.float64),
        answers=[candidate.answer for candidate in group.candidates],
        scores={how: _scores(group.candidates, how) for how in hows},
    )


def _scores(candidates: Sequence[Candidate], how: str) -> Array:
    return np.array([-np.inf if (score := c.scores[how]) is None else score for c in candidates], dtype=np.float64)


def length_bias(groups: Sequence[Group], how: str = "min") -> Length:
    """The correlation of the score with the number of steps. A policy can easily exploit a score that rewards length."""
    within: list[tuple[float, int]] = []
    equal: list[tuple[float, int]] = []
    for group in groups:
        scored = [candidate for candidate in group.candidates if candidate.scores[how] is not None]
        _correlate(scored, how, within)
        for truth in (True, False):
            _correlate([candidate for candidate in scored if candidate.right is truth], how, equal)
    return Length(_mean(within), _mean(equal))


def _correlate(candidates: Sequence[Candidate], how: str, into: list[tuple[float, int]]) -> None:
    one = _midranks(_scores(candidates, how))
    other = _midranks(np.array([len(candidate.trajectory.steps) for candidate in candidates], dtype=np.float64))
    if len(candidates) > 2 and one.std() > 0 and other.std() > 0:
        into.append((float(np.corrcoef(one, other)[0, 1]), len(candidates) - 1))


def _midranks(values: Array) -> Array:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[place])


def _mean(pairs: Sequence[tuple[float, int]]) -> float | None:
    return float(np.average([rho for rho, _ in pairs], weights=[n for _, n in pairs])) if pairs else None


def ranked_rows(choice: Choice, card: Mapping[str, Any], by: str) -> list[dict[str, Any]]:
    """The candidates of a problem as label rows, best first, each with its rank and scores under "rank"."""
    rows = []
    for place, at in enumerate(choice.order, 1):
        candidate = choice.group.candidates[at]
        said = choice.group.answers[candidate.answer] if candidate.answer >= 0 else None
        found = {"place": place, "by": by, "answer": said, "right": candidate.right, "scores": dict(candidate.scores)}
        rows.append(label_row(candidate.trajectory, candidate.label, card) | {"rank": found})
    return rows
