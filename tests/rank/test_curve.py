"""The curves against worked numbers, against every subset one by one, and against what theory says of a simulated critic."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, product

import numpy as np
import pytest

from critic_prm.search.ranking import Pool, best_of, curve, pass_at, place_chances, subsets, vote_accuracies


def arrays(scores: list[float], right: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(scores, dtype=np.float64), np.array(right, dtype=np.float64)


@pytest.mark.parametrize(("n", "want"), [(1, 0.6), (2, 0.5), (3, 0.4), (4, 0.2), (5, 0.0)])
def test_best_of_n_worked(n: int, want: float) -> None:
    assert best_of(*arrays([5, 4, 3, 2, 1], [0, 1, 1, 0, 1]), n) == pytest.approx(want)


def test_ties_and_pass_worked() -> None:
    assert best_of(*arrays([0.9, 0.9, 0.7, 0.6], [1, 0, 1, 0]), 2) == pytest.approx(0.5833333, abs=1e-6)
    assert pass_at(np.array([0, 1, 1, 0, 1]), 2) == pytest.approx(0.9)


def test_best_of_n_is_the_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(0)
    for m in range(1, 8):
        scores, right = rng.integers(0, 4, m) / 4, rng.integers(0, 2, m).astype(float)
        for n in range(1, m + 1):
            brute = []
            for chosen in combinations(range(m), n):
                top = max(scores[list(chosen)])
                brute.append(np.mean([right[i] for i in chosen if scores[i] == top]))
            assert best_of(scores, right, n) == pytest.approx(np.mean(brute))
            assert pass_at(right, n) == pytest.approx(np.mean([max(right[list(c)]) for c in combinations(range(m), n)]))


def test_thousands_of_candidates_do_not_overflow() -> None:
    for n in (1, 2, 2500, 5000):
        assert place_chances(5000, n).sum() == pytest.approx(1.0)


def test_a_weighted_vote_by_hand() -> None:
    whole = np.ones((1, 4))
    right = np.array([0.0, 0.0, 1.0, 0.0])
    answers = [0, 0, 1, -1]
    assert vote_accuracies(whole, answers, right).tolist() == [0.0]
    assert vote_accuracies(whole, answers, right, np.array([0.2, 0.2, 0.7, 0.9])).tolist() == [1.0]
    # equal sums: the higher single score decides; equal in that too: half
    assert vote_accuracies(whole, answers, right, np.array([0.3, 0.3, 0.6, 0.0])).tolist() == [1.0]
    assert vote_accuracies(whole, [0, -1, 1, -1], right, np.array([0.6, 0.0, 0.6, 0.0])).tolist() == [0.5]
    # no weight at all: votes decide, and nobody with an answer: wrong
    assert vote_accuracies(whole, answers, right, np.full(4, -np.inf)).tolist() == [0.0]
    assert vote_accuracies(whole, [-1] * 4, right).tolist() == [0.0]


def test_equal_weights_are_the_majority() -> None:
    rows = subsets(7, 4, seed=0)
    answers = [0, 1, 1, 2, 0, 1, 2]
    right = np.array([float(a == 1) for a in answers])
    assert len(rows) == math.comb(7, 4)
    assert np.array_equal(vote_accuracies(rows, answers, right), vote_accuracies(rows, answers, right, np.full(7, 0.5)))


def test_drawn_subsets_are_repeatable_and_have_their_size() -> None:
    rows = subsets(30, 5, seed=1)
    assert rows.shape == (200, 30)
    assert (rows.sum(axis=1) == 5).all()
    assert np.array_equal(rows, subsets(30, 5, seed=1))
    assert not np.array_equal(rows, subsets(30, 5, seed=2))


POLICY, CRITIC = 0.4, 0.8
"""The simulated policy is right so often; the simulated critic calls a solution what it is so often."""


def simulated(problems: int, m: int) -> list[Pool]:
    """Solutions with three wrong answers to choose from; the critic gives 0.9 to what it takes for right, 0.1 to the rest."""
    rng = np.random.default_rng(1)
    pools = []
    for _ in range(problems):
        right = (rng.random(m) < POLICY).astype(float)
        answers = [0 if y else int(rng.integers(1, 4)) for y in right]
        agrees = rng.random(m) < CRITIC
        pools.append(Pool(right, answers, {"critic": np.where(agrees == (right > 0), 0.9, 0.1)}))
    return pools


def best_in_theory(n: int) -> float:
    """The best of n is one that was called right, if there is one: any of them is as likely."""
    called = POLICY * CRITIC + (1 - POLICY) * (1 - CRITIC)
    none = (1 - called) ** n
    return (1 - none) * POLICY * CRITIC / called + none * POLICY * (1 - CRITIC) / (1 - called)


def vote_in_theory(n: int, critic: bool) -> float:
    """By going through all that n solutions can be: (answer, called right) each."""
    kinds = [(a, c) for a in range(4) for c in (True, False)]
    total = 0.0
    for outcome in product(kinds, repeat=n):
        chance = math.prod(
            (POLICY if a == 0 else (1 - POLICY) / 3) * (CRITIC if c == (a == 0) else 1 - CRITIC) for a, c in outcome
        )
        sums = [sum((0.9 if c else 0.1) if critic else 1.0 for a, c in outcome if a == answer) for answer in range(4)]
        tied = [answer for answer in range(4) if sums[answer] > max(sums) - 1e-9]
        if critic:
            tops = [max([0.9 if c else 0.1 for a, c in outcome if a == answer]) for answer in tied]
            tied = [answer for answer, top in zip(tied, tops, strict=True) if top == max(tops)]
        total += chance * (0 in tied) / len(tied)
    return total


def every_pool(m: int, answers: Sequence[int]) -> list[tuple[float, Pool]]:
    """Each pool of `m` solutions that can be drawn, up to their order, with its probability; the wrong answers are equally
    likely. A curve averages pools, so these give the expected curve exactly."""
    kinds = [(a, c) for a in answers for c in (True, False)]
    chance = {
        (a, c): (POLICY if a == 0 else (1 - POLICY) / (len(answers) - 1)) * (CRITIC if c == (a == 0) else 1 - CRITIC)
        for a, c in kinds
    }
    pools = []
    for drawn in combinations_with_replacement(kinds, m):
        orders = math.factorial(m) / math.prod(math.factorial(count) for count in Counter(drawn).values())
        right = np.array([float(a == 0) for a, _ in drawn])
        scores = {"critic": np.array([0.9 if c else 0.1 for _, c in drawn])}
        pools.append((orders * math.prod(chance[one] for one in drawn), Pool(right, [a for a, _ in drawn], scores)))
    assert sum(weight for weight, _ in pools) == pytest.approx(1.0)
    return pools


def expected(pools: Sequence[tuple[float, Pool]], sizes: Sequence[int]) -> dict[str, list[float]]:
    curves = [(weight, curve([pool], sizes)) for weight, pool in pools]
    return {
        name: [sum(weight * found[name][at].accuracy for weight, found in curves) for at in range(len(sizes))]
        for name in curves[0][1]
    }


def test_curves_of_a_simulated_critic_are_those_of_theory() -> None:
    few, many = expected(every_pool(4, range(4)), (1, 2, 4)), expected(every_pool(8, range(2)), (1, 2, 4, 8))
    for found, sizes in ((few, (1, 2, 4)), (many, (1, 2, 4, 8))):  # which wrong answer it is changes votes only
        for at, n in enumerate(sizes):
            assert found["best:critic"][at] == pytest.approx(best_in_theory(n))
            assert found["pass"][at] == pytest.approx(1 - (1 - POLICY) ** n)
            assert found["random"][at] == pytest.approx(POLICY)
    for at, n in enumerate((1, 2, 4)):
        assert few["vote:critic"][at] == pytest.approx(vote_in_theory(n, critic=True))
        assert few["majority"][at] == pytest.approx(vote_in_theory(n, critic=False))


def test_a_curve_is_the_mean_of_the_curves_of_its_problems() -> None:
    pools, sizes = simulated(40, 8), [1, 2, 4, 8]
    singles = [curve([pool], sizes) for pool in pools]
    for name, points in curve(pools, sizes).items():
        for at, point in enumerate(points):
            assert point.accuracy == pytest.approx(sum(one[name][at].accuracy for one in singles) / len(pools))


def test_intervals_cover_and_say_when_there_are_none() -> None:
    point = curve(simulated(300, 4), [4])["best:critic"][0]
    assert point.low is not None
    assert point.high is not None
    assert point.low < point.accuracy < point.high
    assert point.high - point.low < 0.15
    single = curve(simulated(1, 4), [2, 4])["best:critic"]
    assert [p.low for p in single] == [None, None]


def test_a_size_rests_on_the_problems_that_have_so_many() -> None:
    pools = [*simulated(5, 4), *simulated(3, 8)]
    assert [(p.n, p.problems) for p in curve(pools, [2, 8, 16], replicates=100)["majority"]] == [(2, 8), (8, 3)]
