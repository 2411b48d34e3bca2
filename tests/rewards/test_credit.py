"""Credit assignment: the worked numbers of the papers, and the properties each form promises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from critic_prm.errors import UsageError
from critic_prm.serve.rewards import credit, guards

unit = st.floats(0, 1)


def test_progress_is_the_difference_of_values_and_telescopes() -> None:
    assert credit.progress([0.6, 0.2, 0.9], 0.5) == pytest.approx([0.1, -0.4, 0.7])


@pytest.mark.parametrize(("before", "after", "gain"), [(0.1, 0.2, 0.2465), (0.5, 0.6, 0.0369), (0.9, 0.95, 9.375e-5)])
def test_the_progress_of_a_best_of_four_prover(before: float, after: float, gain: float) -> None:
    assert credit.progress(credit.prover_values([after]), credit.prover_values([before])[0]) == pytest.approx([gain])


def test_pav_effective_reward() -> None:
    assert credit.effective_rewards([0.2], 0.1) == pytest.approx([0.32325])


def test_min_form_cold_is_the_minimum_and_hot_a_weighted_mean() -> None:
    r = [0.9, 0.2, -0.6]
    assert credit.min_form_weights(r) == pytest.approx([3.058e-7, 3.3535e-4, 0.9996643], rel=1e-3)
    assert sum(credit.min_form(r)) == pytest.approx(-0.5997313, abs=1e-7)
    assert credit.returns(credit.min_form(r)) == pytest.approx([-0.5997313, -0.5997315, -0.5997986], abs=1e-7)
    assert credit.min_form_weights(r, 1.0) == pytest.approx([0.133414, 0.268664, 0.597922], abs=1e-6)
    assert credit.returns(credit.min_form(r, 1.0)) == pytest.approx([-0.1849475, -0.3050204, -0.3587532], abs=1e-7)
    assert sum(credit.min_form(r, 1e9)) == pytest.approx(sum(r) / 3)
    assert credit.signed([0.95, 0.6, 0.2]) == pytest.approx(r)


@given(st.lists(unit, min_size=1, max_size=12), st.integers(1, 20))
def test_min_form_pays_nothing_for_more_good_steps(p: list[float], extra: int) -> None:
    r = credit.signed(p)
    least = min(r)
    padded = sum(credit.min_form([*r, *[1.0] * extra]))
    assert padded <= sum(credit.min_form(r)) + extra * (1 - least) * math.exp(-(1 - least) / 0.1) + 1e-9


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="above 0"):
        credit.min_form([0.1, 0.2], 0.0)


def test_shaping_by_hand() -> None:
    phi = [0.5, 0.6, 0.2, 0.0]
    assert credit.shaping(phi) == pytest.approx([0.1, -0.4, -0.2])
    discounted = credit.shaping(phi, 0.9)
    assert discounted == pytest.approx([0.04, -0.42, -0.2])
    assert sum(0.9**t * f for t, f in enumerate(discounted)) == pytest.approx(-0.5)


@given(st.lists(unit, min_size=2, max_size=30), unit, st.floats(0.5, 1))
def test_shaping_changes_every_return_by_the_same_amount(phi: list[float], outcome: float, gamma: float) -> None:
    """So the order of all policies from one state is what it was: shaping is policy-invariant."""
    steps = len(phi) - 1
    shaped = credit.shaped_rewards(phi, outcome, gamma)
    plain = [0.0] * (steps - 1) + [outcome]
    difference = sum(gamma**t * (a - b) for t, (a, b) in enumerate(zip(shaped, plain, strict=True)))
    assert difference == pytest.approx(-phi[0], abs=1e-9)


def test_shaping_leaves_the_best_policy_the_best_where_paying_for_scores_does_not() -> None:
    """In every two-step tree of choices: the argmax of the shaped return is that of the outcome; of summed scores it is not."""
    outcomes = {("a", "x"): 1.0, ("a", "y"): 0.0, ("b", "x"): 0.4, ("b", "y"): 0.6}
    value = {"": 0.3, "a": 0.1, "b": 0.95, ("a", "x"): 0.2, ("a", "y"): 0.9, ("b", "x"): 0.9, ("b", "y"): 0.8}
    paths = list(outcomes)

    def phi(path: tuple[str, str]) -> list[float]:
        return [value[""], value[path[0]], value[path]]

    shaped = {path: sum(credit.shaped_rewards(phi(path), outcomes[path])) for path in paths}
    naive = {path: sum(phi(path)[1:]) + outcomes[path] for path in paths}
    assert max(paths, key=lambda path: shaped[path]) == max(paths, key=lambda path: outcomes[path]) == ("a", "x")
    assert max(paths, key=lambda path: naive[path]) != ("a", "x")


def test_a_cut_episode_keeps_the_potential_of_its_last_state() -> None:
    assert credit.shaped_rewards([0.5, 0.6, 0.8], 1.0, ended=False) == pytest.approx([0.1, 0.2])


@pytest.mark.parametrize(
    ("trace", "gains", "targets"),
    [
        (0.95, [0.54175, 0.465, 0.7], [0.94175, 0.965, 1.0]),
        (0.0, [0.1, -0.2, 0.7], [0.5, 0.3, 1.0]),
        (1.0, [0.6, 0.5, 0.7], [1.0, 1.0, 1.0]),
    ],
)
def test_temporal_differences(trace: float, gains: list[float], targets: list[float]) -> None:
    rewards, values = [0.0, 0.0, 1.0], [0.5, 0.3, 0.7]
    assert credit.advantages(rewards, values, 0.4, trace=trace) == pytest.approx(gains)
    assert credit.value_targets(rewards, values, 0.4, trace=trace) == pytest.approx(targets)


def test_discounts_both_ways() -> None:
    assert credit.discounted_outcome(1.0, 3, discount="code") == pytest.approx([1.0, 0.975, 0.95125])
    assert credit.discounted_outcome(1.0, 3) == pytest.approx([0.95125, 0.975, 1.0])
    assert credit.discounted_outcome(0.0, 2) == pytest.approx([0.025, 0.0])


def test_kl_regularised_credit() -> None:
    assert credit.regularised([0.2, -0.1, 0.4, 0.1], 1.0, 200) == pytest.approx([0.997, 0.998, 0.9975, 0.9995])


def test_hazards_are_a_distribution_over_the_first_error() -> None:
    chances = credit.first_error_chances([0.02, 0.05, 0.5, 0.1])
    assert chances == pytest.approx([0.02, 0.049, 0.4655, 0.04655, 0.41895])
    assert sum(chances) == pytest.approx(1)


def test_step_rewards_land_on_the_last_token_of_their_step() -> None:
    assert credit.on_tokens([0.2, None, -0.1], [2, 3, 5], 6) == [0.0, 0.2, 0.0, 0.0, -0.1, 0.0]
    for ends in ([2, 2, 5], [0, 3, 5], [2, 3], [2, 3, 7]):
        with pytest.raises(UsageError, match="step ends"):
            credit.on_tokens([0.2, None, -0.1], ends, 6)


A, B = [2.0, -1.0, 3.0], [-2.0, 1.0, -4.0]


def test_implicit_rewards() -> None:
    assert credit.implicit_values(A)[-1] == pytest.approx(0.2)
    assert credit.implicit_values(B)[-1] == pytest.approx(-0.25)
    assert credit.implicit_step_rewards(A, [2, 3]) == pytest.approx([0.05, 0.15])
    assert credit.implicit_step_rewards(B, [2, 3]) == pytest.approx([-0.05, -0.2])
    assert credit.implicit_outcome_loss([A, B], [1, 0]) == pytest.approx(0.5870391, abs=1e-7)
    assert credit.implicit_outcome_loss([[0.0], [0.0]], [1, 0]) == pytest.approx(math.log(2))
    assert credit.implicit_outcome_loss([[1e6]], [0], beta=1.0) == pytest.approx(1e6)  # no overflow
    with pytest.raises(UsageError, match="must increase"):
        credit.implicit_step_rewards(A, [2])
    with pytest.raises(UsageError, match="must increase"):
        credit.implicit_step_rewards(A, [2, 2, 3])


def test_implicit_rewards_are_scaled_by_the_largest_return_to_go() -> None:
    assert credit.scale_by_returns([[1.0, -3.0], [0.5, 0.5]])[0] == pytest.approx([1 / 3, -1.0], abs=1e-6)


def test_process_advantages_in_both_forms() -> None:
    rewards = [credit.implicit_token_rewards(A), credit.implicit_token_rewards(B)]
    assert credit.process_advantages(rewards) == [
        pytest.approx([0.45, 0.2666667, 0.2333333], abs=1e-7),
        pytest.approx([-0.45, -0.2833333, -0.2666667], abs=1e-7),
    ]
    assert credit.process_advantages(rewards, form="prime")[0] == pytest.approx([0.45, 0.2333333, 0.3166667], abs=1e-7)


def test_outcomes_are_added_at_the_end() -> None:
    with_outcome = credit.process_advantages([[0.0, 0.0], [0.0]], [1.0, 0.0], gamma=0.5)
    assert with_outcome == [pytest.approx([0.5, 1.0]), pytest.approx([-1.0])]


def test_leave_one_out() -> None:
    assert credit.leave_one_out([1, 0, 0, 1]) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3])
    assert credit.leave_one_out([1.0, None, 0.0]) == [1.0, None, -1.0]
    assert credit.leave_one_out([None, 0.7]) == [None, 0.0]


@given(st.lists(unit, min_size=2, max_size=9))
def test_leave_one_out_sums_to_nothing(rewards: list[float]) -> None:
    assert sum(a or 0.0 for a in credit.leave_one_out(rewards)) == pytest.approx(0, abs=1e-9)


def test_min_form_advantages_against_the_others_by_hand() -> None:
    """One step each, so credit is the reward itself: by step 0.4 - (-0.2), by token 0.4 - 4 * (-0.2 / 2)."""
    assert credit.min_form_advantages([[0.4], [-0.2]]) == [pytest.approx([0.6]), pytest.approx([-0.6])]
    assert credit.min_form_advantages([[0.4], [-0.2]], [[4], [2]]) == [pytest.approx([0.8]), pytest.approx([-0.4])]


@pytest.mark.parametrize("function", [credit.process_advantages, credit.min_form_advantages])
@pytest.mark.parametrize("rewards", [[[0.1]], [[0.1], []]])
def test_groups_that_have_no_baseline_are_refused(function: object, rewards: list[list[float]]) -> None:
    with pytest.raises(UsageError, match="two or more"):
        function(rewards)  # type: ignore[operator]


def test_whitened_advantages_have_mean_0_and_deviation_1() -> None:
    flat = [value for row in credit.whiten([[1.0, 2.0], [5.0]]) for value in row]
    assert sum(flat) == pytest.approx(0)
    assert sum(value**2 for value in flat) / 3 == pytest.approx(1)


@given(st.lists(unit, min_size=1, max_size=10))
def test_delta_rewards_return_the_score_itself(p: list[float]) -> None:
    assert credit.returns(guards.delta(p)) == pytest.approx(p)


def test_clipped_rewards_pay_nothing_for_good_steps() -> None:
    assert guards.clipped([0.9, 0.3, 0.5], 0.5) == pytest.approx([0.0, -0.2, 0.0])


def test_length_is_allowed_within_bounds_and_falls_off_beyond() -> None:
    kept = [guards.within(n, 2, 10, 0.5) for n in (0, 1, 2, 10, 12, 15, 50)]
    assert kept == pytest.approx([0, 0, 1, 1, 0.6, 0, 0])


@given(st.floats(-2, 2), st.lists(st.sampled_from(["a b c d e", "x = 5", "so we add 1"]), min_size=1, max_size=40))
def test_no_guard_ever_raises_a_reward(reward: float, steps: list[str]) -> None:
    bound = guards.Guards(low=-1.0, high=1.0, least_steps=2, most_steps=10, most_characters=100)
    assert min(reward, -1.0) <= bound.apply(reward, steps) <= min(reward, 1.0)


def test_repeating_oneself_is_seen() -> None:
    steps = ["add the numbers 3 and 4", "the sum is 7 in all", "add the numbers 3 and 4", "x = 5"]
    assert guards.repetition(steps) == pytest.approx([0, 0, 1, 0])
    bound = guards.Guards()
    assert bound.repeated(steps) == [False, False, True, False]
    assert bound.apply(0.8, steps) == pytest.approx(0.6)
    assert guards.Guards(repeats=None).apply(0.8, steps) == pytest.approx(0.8)


def test_pay_for_length_is_seen_within_a_prompt() -> None:
    lengths, groups = [1, 2, 3, 7, 8, 9], ["a"] * 3 + ["b"] * 3
    assert guards.length_correlation([0.1, 0.2, 0.3, 0.1, 0.2, 0.3], lengths, groups) == pytest.approx(1)
    assert guards.length_correlation([0.3, 0.2, 0.1, 0.9, 0.8, 0.7], lengths, groups) == pytest.approx(-1)
    assert guards.length_correlation([0.1] * 3 + [0.9] * 3, lengths, groups) is None  # between prompts it means nothing
    assert guards.length_correlation([], [], []) is None


def test_bounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match="the lowest must be the smaller"):
        guards.Guards(low=1.0, high=0.0)
    with pytest.raises(UsageError, match="slack"):
        guards.Guards(slack=0.0)
