"""Step credit: Shapley's axioms, exactly and sampled, and a planted step that carries all of it."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze.analysis import HIDDEN
from critic_prm.evaluate.analyze.credit import EXACT, NUMBERS, credit, needed, sampled_shapley, shapley
from critic_prm.evaluate.settings import CreditSettings
from tests.analyze.conftest import Simulated


def game(n: int, seed: int = 0) -> dict[frozenset[int], float]:
    rng = Random(seed)
    return {frozenset(k): rng.random() for size in range(n + 1) for k in combinations(range(n), size)}


def test_shapley_by_hand() -> None:
    """The glove game: player 0 has a left glove, 1 and 2 a right one each."""
    value = {k: float(0 in k and len(k) > 1) for k in game(3)}
    assert shapley(3, value) == pytest.approx([2 / 3, 1 / 6, 1 / 6])


@pytest.mark.parametrize("n", range(1, 7))
def test_shapley_axioms(n: int) -> None:
    value = game(n, n)
    whole = value[frozenset(range(n))] - value[frozenset()]
    assert sum(shapley(n, value)) == pytest.approx(whole)  # efficiency
    additive = {k: sum(0.1 * (i + 1) for i in k) for k in value}
    assert shapley(n, additive) == pytest.approx([0.1 * (i + 1) for i in range(n)])  # dummy and additivity


def test_sampled_values_sum_to_the_same_and_come_near_the_exact_ones() -> None:
    value = game(6)
    exact = shapley(6, value)
    rng = Random(1)
    orders = [order for _ in range(2000) for one in [tuple(rng.sample(range(6), 6))] for order in (one, one[::-1])]
    values, errors = sampled_shapley(6, orders, value)
    assert sum(values) == pytest.approx(sum(exact))
    assert max(abs(a - b) / error for a, b, error in zip(values, exact, errors, strict=True)) < 4
    assert max(errors) < 0.01


def test_long_solutions_need_few_judgements() -> None:
    orders, kept = needed(12, 16, Random(0))
    assert len(orders) == 32
    assert len(kept) <= 32 * 13 + 12
    assert frozenset() in kept
    assert frozenset(range(12)) in kept
    assert needed(EXACT, 16, Random(0))[0] == []


def solution(n: int, bad: int = -1) -> Trajectory:
    return Trajectory(f"s{n}-{bad}", "p", tuple(Step("bad" if i == bad else f"fine {i}") for i in range(n)), label=bad)


def judge(trajectory: Trajectory, step: int) -> float:
    return {"bad": 0.1, HIDDEN: 0.6}.get(trajectory.texts[step], 0.9)


@pytest.mark.parametrize("n", [4, 9])
async def test_a_bad_step_has_the_least_value(n: int) -> None:
    found = await credit([solution(n, bad) for bad in range(n)], Simulated(judge))
    assert found.numbers.keys() == NUMBERS.keys()
    assert found.numbers["localised"] == 1
    assert found.numbers["largest_error"] == pytest.approx(0, abs=1e-9)  # the score is a sum: every order says the same
    assert found.findings == ()
    first = found.details[0]
    assert first["values"] == pytest.approx((-0.5 / n, *[0.3 / n] * (n - 1)))
    assert first["alone"] == pytest.approx(first["values"])


async def test_a_critic_that_gives_the_same_score_with_everything_hidden_is_named() -> None:
    found = await credit([solution(3)], Simulated(lambda trajectory, step: 0.7))
    assert "no step contributes anything" in found.findings[0]
    assert found.numbers["localised"] is None


async def test_credit_beyond_the_sum_is_shared_out() -> None:
    """By the minimum, two bad steps share what both cost: hiding one alone changes nothing."""
    two = Trajectory("t", "p", (Step("bad"), Step("fine"), Step("bad")))
    found = await credit([two], Simulated(judge), CreditSettings(aggregation="min"))
    [detail] = found.details
    assert detail["alone"] == pytest.approx((0, 0, 0))
    assert detail["values"][0] == pytest.approx(detail["values"][2])
    assert detail["values"][0] < -0.2
    assert sum(detail["values"]) == pytest.approx(0.1 - 0.6)


async def test_a_solution_with_a_judgement_missing_is_left_out() -> None:
    critic = Simulated(lambda trajectory, step: None if trajectory.problem == "broken" and HIDDEN in trajectory.texts else 0.7)
    broken = Trajectory("b", "broken", (Step("x"), Step("y")))
    found = await credit([broken, solution(3)], critic)
    assert found.numbers["unscored"] == 0.5
    with pytest.raises(InputError, match="lacks a usable judgement"):
        await credit([broken], critic)


async def test_gold_is_not_shown() -> None:
    critic = Simulated(judge)
    await credit([solution(3, 1)], critic)
    assert all(t.label is None for t in critic.seen)


def test_too_few_orders() -> None:
    with pytest.raises(UsageError, match="at least 2"):
        CreditSettings(orders=1)
