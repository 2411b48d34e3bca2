"""Pick the best candidate per problem from step scores, and estimate best-of-N accuracy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.data import Label, Trajectory, combine, label_row
from critic_prm.data.aggregate import AGGREGATIONS, aggregate, lower_bounds, open_aggregation, spread_bounds
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.metrics.bootstrap import REPLICATES, interval_of, of_sums, replicate, too_few
from critic_prm.metrics.scores import Array, midranks
from critic_prm.search.settings import Pick, RankSettings

CORRECT = "final_answer_correct"
"""Field that says whether a candidate without a gold answer is right."""

FLAGGED = 0.3
"""If the rank correlation of score and length among equally right solutions exceeds this, the score is flagged as
length-biased."""

SUBSETS = 200
"""Number of sampled subsets of N candidates for estimating the accuracy of a vote, if there are more subsets than this."""

_TIE = 1e-12


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

    def answer_of(self, candidate: Candidate) -> str | None:
        return self.answers[candidate.answer] if candidate.answer >= 0 else None


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

    def reaches(self, floor: float | None) -> bool:
        """Whether the score is at least `floor`; always true without one."""
        return floor is None or (self.score is not None and self.score >= floor)


@dataclass(frozen=True, slots=True)
class Length:
    """Spearman correlation of score and number of steps within a problem, averaged over problems: among all candidates
    (`within`) and among those that are equally right (`equal`). None if nothing varies."""

    within: float | None
    equal: float | None

    @property
    def flagged(self) -> bool:
        correlation = self.within if self.equal is None else self.equal
        return correlation is not None and abs(correlation) > FLAGGED


@dataclass(frozen=True, slots=True)
class Point:
    """Accuracy with N candidates, over the `problems` that have at least N. `low` and `high` are the 95% interval over
    problems, None if there are too few; `se` is the standard error from sampling subsets, 0 for a closed form."""

    n: int
    accuracy: float
    low: float | None
    high: float | None
    problems: int
    se: float = 0.0


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
    candidates: Iterable[tuple[Trajectory, Label]],
    grader: Grader,
    bound: str | None = None,
    by: Iterable[str] = AGGREGATIONS,
) -> list[Group]:
    """Group candidates by problem, match equal answers, and score them by the aggregations in `by` and by their mean.

    `grader` decides whether answers are equal. With a `bound`, scores are lower bounds, computed from the votes (wilson,
    jeffreys, posterior_cvar) or from the spread of the samples or judges behind a label (spread). Raises UsageError
    for an unknown name.
    """
    aggregations = {name: open_aggregation(name) for name in dict.fromkeys((*by, "mean"))}
    problems: dict[str, list[tuple[Trajectory, Label]]] = {}
    for trajectory, label in candidates:
        problems.setdefault(trajectory.problem.strip(), []).append((trajectory, label))
    groups = []
    for problem, rows in problems.items():
        texts: list[str] = []
        truths: dict[tuple[int, str], bool] = {}
        scored = []
        for trajectory, label in rows:
            answer = await _answer_index(answer_of(trajectory), texts, grader)
            right = await _right(trajectory, answer, texts, truths, grader)
            p = _lower_bounds(label, bound) if bound else label.p_correct
            scores = {name: aggregate(p, aggregation) for name, aggregation in aggregations.items()}
            scored.append(Candidate(trajectory, label, answer, right, scores))
        groups.append(Group(problem, tuple(texts), tuple(scored)))
    return groups


def _lower_bounds(label: Label, bound: str) -> Sequence[float | None]:
    if bound != "spread":
        return lower_bounds(label.votes, bound)
    steps = len(label.p_correct)
    usable = [part for judgement in label.judgements for part in (judgement.parts or (judgement,)) if part.status == "ok"]
    return spread_bounds([combine([part], steps).p_correct for part in usable]) if usable else [None] * steps


def answer_of(trajectory: Trajectory) -> str | None:
    """The `final_answer` field, or else the answer stated in the steps."""
    return trajectory.final_answer or final_answer("\n\n".join(trajectory.texts))


async def _answer_index(answer: str | None, texts: list[str], grader: Grader) -> int:
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
        right = trajectory.extra.get(CORRECT)
        return right if isinstance(right, bool) else None
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
    winner = voted(group, scores) if pick == "vote" else None
    if winner is not None:
        order.sort(key=lambda place: group.candidates[place].answer != winner)
    return Choice(group, tuple(order), scores[order[0]])


def voted(group: Group, scores: Sequence[float | None] = ()) -> int | None:
    """The answer with the largest sum of scores, or with the most votes without scores; None if there are no answers."""
    totals: dict[int, tuple[float, float]] = {}
    weights = scores if any(scores) else [1.0] * len(group.candidates)
    for candidate, weight in zip(group.candidates, weights, strict=True):
        if candidate.answer >= 0:
            total, most = totals.get(candidate.answer, (0.0, 0.0))
            totals[candidate.answer] = (total + (weight or 0.0), max(most, weight or 0.0))
    # Sums of the same scores in a different order may differ in the last digit.
    return max(totals, key=lambda answer: (round(totals[answer][0], 9), totals[answer][1], -answer)) if totals else None


DEFAULTS = RankSettings()


def rank(groups: Sequence[Group], settings: RankSettings = DEFAULTS, replicates: int = REPLICATES) -> Ranking:
    """Choose a candidate in each group, and estimate the accuracy of every selection rule on the groups with known correctness.

    Without `settings.sizes`, the curves have the powers of two up to the size of the largest group, and that size. Raises
    UsageError.
    """
    by = settings.by
    candidates = [candidate for group in groups for candidate in group.candidates]
    if any(by not in candidate.scores for candidate in candidates):
        raise UsageError(f"candidates were not scored by {by!r}; group them by it")
    known = [group for group in groups if all(candidate.right is not None for candidate in group.candidates)]
    sizes = settings.sizes or powers(max((len(group.candidates) for group in known), default=0))
    aggregations = list(candidates[0].scores) if candidates else []
    return Ranking(
        choices=tuple(choose(group, by, settings.pick) for group in groups),
        curves=curve([_pool(group, aggregations) for group in known], sizes, seed=settings.seed, replicates=replicates),
        length={name: length_bias(groups, name) for name in aggregations},
        unscored=sum(candidate.scores[by] is None for candidate in candidates),
        without_answer=sum(candidate.answer < 0 for candidate in candidates),
        known=len(known),
        counts={"problems": len(groups), "candidates": len(candidates)},
    )


def powers(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`, and `most` itself."""
    return sorted({*(2**k for k in range(most.bit_length())), most}) if most else []


def _pool(group: Group, aggregations: Sequence[str]) -> Pool:
    return Pool(
        right=np.array([bool(candidate.right) for candidate in group.candidates], dtype=np.float64),
        answers=[candidate.answer for candidate in group.candidates],
        scores={name: _scores(group.candidates, name) for name in aggregations},
    )


def _scores(candidates: Sequence[Candidate], by: str) -> Array:
    scores = [candidate.scores[by] for candidate in candidates]
    return np.array([-np.inf if score is None else score for score in scores], dtype=np.float64)


def length_bias(groups: Sequence[Group], by: str = "min") -> Length:
    """The correlation of the score with the number of steps. A policy can easily exploit a score that rewards length."""
    scored = [[candidate for candidate in group.candidates if candidate.scores[by] is not None] for group in groups]
    equal = [[c for c in candidates if c.right is right] for candidates in scored for right in (True, False)]
    return Length(_length_correlation(scored, by), _length_correlation(equal, by))


def _length_correlation(groups: Iterable[Sequence[Candidate]], by: str) -> float | None:
    """The mean rank correlation of score and number of steps, weighted by the size of the group less one."""
    correlations = []
    for candidates in groups:
        scores = midranks(_scores(candidates, by))
        lengths = midranks([len(candidate.trajectory.steps) for candidate in candidates])
        if len(candidates) > 2 and scores.std() > 0 and lengths.std() > 0:
            correlations.append((float(np.corrcoef(scores, lengths)[0, 1]), len(candidates) - 1))
    if not correlations:
        return None
    return float(np.average([rho for rho, _ in correlations], weights=[n for _, n in correlations]))


def ranked_rows(choice: Choice, card: Mapping[str, Any], by: str) -> list[dict[str, Any]]:
    """The candidates of a problem as label rows, best first, each with its rank and scores under "rank"."""
    rows = []
    for place, index in enumerate(choice.order, 1):
        candidate = choice.group.candidates[index]
        answer, scores = choice.group.answer_of(candidate), dict(candidate.scores)
        entry = {"place": place, "by": by, "answer": answer, "right": candidate.right, "scores": scores}
        rows.append(label_row(candidate.trajectory, candidate.label, card) | {"rank": entry})
    return rows


@dataclass(frozen=True, slots=True)
class Pool:
    """The candidates of one problem. `right` marks the correct ones; `answers` has the index of their answers (-1: none);
    `scores` maps each scoring method to one score per candidate, -inf for a candidate without a score."""

    right: Array
    answers: Sequence[int]
    scores: Mapping[str, Array]


@lru_cache(maxsize=256)
def place_chances(m: int, n: int) -> Array:
    """P(the best of `n` candidates drawn from `m` has rank i) for i = 0..m-1: C(m-1-i, n-1) / C(m, n)."""
    chances = np.zeros(m)
    chance = n / m
    for place in range(m - n + 1):
        chances[place] = chance
        chance *= (m - place - n) / (m - place - 1) if place < m - 1 else 0.0
    chances.flags.writeable = False
    return chances


def best_of(scores: Array, right: Array, n: int) -> float:
    """The expected accuracy of taking the highest score among `n` candidates drawn without replacement.

    Exact and unbiased: a closed form over all subsets. Among candidates with equal scores, each is chosen equally often.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, y = scores[order], right[order].astype(np.float64)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(starts, len(y)))
    means = np.add.reduceat(y, starts) / sizes
    return float(np.add.reduceat(place_chances(len(y), n), starts) @ means)


def pass_at(right: Array, n: int) -> float:
    """P(at least one of `n` drawn candidates is right), the accuracy of an oracle (pass@k, Chen et al. 2021)."""
    return best_of(right.astype(np.float64), right, n)


@lru_cache(maxsize=64)
def subsets(m: int, n: int, seed: int, most: int = SUBSETS) -> Array:
    """Rows of 0/1, each a subset of `n` out of `m`: all of them if there are at most `most`, otherwise `most` sampled ones."""
    if math.comb(m, n) <= most:
        chosen = np.array(list(combinations(range(m), n)))
    else:
        rng = np.random.Generator(np.random.PCG64([seed, m, n]))
        chosen = np.argsort(rng.random((most, m)), axis=1)[:, :n]
    rows = np.zeros((len(chosen), m))
    np.put_along_axis(rows, chosen, 1.0, axis=1)
    rows.flags.writeable = False  # shared by all pools of this size
    return rows


def vote_accuracies(rows: Array, answers: Sequence[int], right: Array, scores: Array | None = None) -> Array:
    """Accuracy of the (weighted) majority answer of each subset, shape (rows,). The winner has the largest sum of scores, or
    the most votes if there are no scores.

    Ties are broken by the highest single score; the accuracy is averaged over answers that still tie. Candidates without an
    answer do not vote and those without a score have weight 0; if all weights are 0, plain votes decide.
    """
    classes = max(answers, default=-1) + 1
    if not classes:
        return np.zeros(len(rows))
    places = np.asarray(answers)
    member = np.zeros((len(places), classes))
    voting = np.flatnonzero(places >= 0)
    member[voting, places[voting]] = 1.0
    truth = np.array([bool(right[places == answer].any()) for answer in range(classes)], dtype=np.float64)
    counts = rows @ member
    present = counts > 0
    if scores is None:
        return _mean_of(_tops(counts, present), truth)
    weights = np.where(np.isneginf(scores), 0.0, scores)
    totals = (rows * weights) @ member
    totals = np.where(totals.max(axis=1, keepdims=True) > 0, totals, counts)
    tied = _tops(totals, present)
    single = np.stack([(rows * (member[:, a] * (1 + weights))).max(axis=1) for a in range(classes)], axis=1)
    return _mean_of(_tops(single, tied), truth)


def _tops(values: Array, among: NDArray[np.bool_]) -> NDArray[np.bool_]:
    eligible = np.where(among, values, -np.inf)
    top: NDArray[np.bool_] = eligible >= eligible.max(axis=1, keepdims=True) - _TIE
    return top & among


def _mean_of(tied: NDArray[np.bool_], truth: Array) -> Array:
    return np.asarray((tied @ truth) / np.maximum(tied.sum(axis=1), 1))


def curve(
    pools: Sequence[Pool], sizes: Sequence[int], *, seed: int = 0, replicates: int = REPLICATES
) -> dict[str, list[Point]]:
    """The accuracy of every selection rule at every N in `sizes`: "random", "majority", "pass" and, for each scoring method,
    "best:NAME" and "vote:NAME".

    Best-of-N, pass and random are closed forms over all subsets. Votes have no closed form: their accuracy is the mean over all
    subsets, or over SUBSETS sampled ones, with the standard error given. Each N uses the problems with at least N candidates.
    """
    points: dict[str, list[Point]] = {}
    for n in sizes:
        large = [pool for pool in pools if len(pool.answers) >= n]
        if not large:
            continue
        rows = [_values(pool, n, seed) for pool in large]
        table = np.array([list(row.values()) for row in rows])  # (problems, rules, [accuracy, standard error])
        values, errors = table[..., 0], np.sqrt((table[..., 1] ** 2).sum(axis=0)) / len(large)
        for index, (name, (low, high)) in enumerate(zip(rows[0], _intervals(values, seed, replicates), strict=True)):
            point = Point(n, float(values[:, index].mean()), low, high, len(large), float(errors[index]))
            points.setdefault(name, []).append(point)
    return points


def _values(pool: Pool, n: int, seed: int) -> dict[str, tuple[float, float]]:
    """(accuracy, standard error) of each selection rule for one problem."""
    rows = subsets(len(pool.answers), n, seed)
    exact = math.comb(len(pool.answers), n) <= SUBSETS
    weightings = {"majority": None, **{f"vote:{name}": scores for name, scores in pool.scores.items()}}
    votes = {name: vote_accuracies(rows, pool.answers, pool.right, weights) for name, weights in weightings.items()}
    return {
        "random": (float(pool.right.mean()), 0.0),
        "pass": (pass_at(pool.right, n), 0.0),
        **{f"best:{name}": (best_of(scores, pool.right, n), 0.0) for name, scores in pool.scores.items()},
        **{
            name: (float(hits.mean()), 0.0 if exact else float(hits.std() / math.sqrt(len(hits))))
            for name, hits in votes.items()
        },
    }


def _intervals(values: Array, seed: int, replicates: int) -> list[tuple[float | None, float | None]]:
    if too_few(len(values)):
        return [(None, None)] * values.shape[1]
    totals = np.concatenate([np.ones((len(values), 1)), values], axis=1)
    means, _ = replicate(of_sums(totals, lambda sums: sums[..., 1:] / sums[..., :1]), len(values), replicates, seed)
    intervals = [interval_of(column, len(values)) for column in means.T]
    return [(interval.low, interval.high) for interval in intervals]
