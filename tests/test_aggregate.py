"""Aggregations against worked numbers, and what happens where a step has no score."""

from __future__ import annotations

import math

import pytest

from critic_prm.data.aggregate import (
    AGGREGATIONS,
    aggregate,
    jeffreys,
    lower_bounds,
    open_aggregation,
    posterior_cvar,
    spread,
    spread_bounds,
    weighted,
    wilson,
)
from critic_prm.errors import UsageError

P = (0.95, 0.9, 0.6, 0.97, 0.8)


@pytest.mark.parametrize(
    ("how", "want"),
    [
        ("min", 0.6),
        ("max", 0.97),
        ("mean", 0.844),
        ("sum", 4.22),
        ("last", 0.8),
        ("product", 0.398088),
        ("geometric_mean", 0.831756),
        ("mean_logit", 0.889132),
        ("cvar:0.2", 0.6),
        ("cvar:0.1", 0.6),
        ("cvar:0.3", 2 / 3),
        ("cvar:0.4", 0.7),
        ("cvar:1", 0.844),
        ("softmin:0.001", 0.6),
        ("softmin:1000000", 0.844),
        ("discounted:1", 0.844),
        ("discounted:0.000001", 0.8),
    ],
)
def test_worked_numbers(how: str, want: float) -> None:
    assert aggregate(P, how) == pytest.approx(want, abs=1e-6)


def test_softmin_and_discounted_weights() -> None:
    rewards = (0.9, 0.2, -0.6)
    assert aggregate(rewards, "softmin:0.1") == pytest.approx(-0.5997313, abs=1e-6)
    assert aggregate(rewards, "softmin:1") == pytest.approx(-0.1849475, abs=1e-6)
    assert aggregate((1.0, 0.0), "discounted:0.5") == pytest.approx(0.5 / 1.5)


def test_cvar_grows_with_alpha() -> None:
    values = [aggregate(P, f"cvar:{alpha / 20}") or 0 for alpha in range(1, 21)]
    assert values == sorted(values)


@pytest.mark.parametrize("how", AGGREGATIONS)
def test_every_aggregation_takes_one_step_and_extremes(how: str) -> None:
    assert aggregate([0.4], how) == pytest.approx(0.4)
    for extreme in ([0.0, 1.0], [1.0] * 30, [0.0] * 30):
        value = aggregate(extreme, how)
        assert value is not None
        assert math.isfinite(value)


def test_geometric_mean_of_a_thousand_steps_does_not_vanish() -> None:
    assert aggregate([0.1] * 1000, "geometric_mean") == pytest.approx(0.1)


def test_unscored_steps_are_skipped_or_fail_and_never_imputed() -> None:
    assert aggregate([0.9, None, 0.3, None]) == 0.3
    assert aggregate([0.9, None], "last") == 0.9
    assert aggregate([0.9, None, 0.3], "min", nulls="fail") is None
    assert aggregate([None, None]) is None
    assert aggregate([]) is None


def test_weighted_mean() -> None:
    assert weighted((1.0, 0.0), (3.0, 1.0)) == 0.75
    for weights in ((1.0,), (0.0, 0.0), (-1.0, 2.0)):
        with pytest.raises(UsageError, match="one of at least 0 for each"):
            weighted((1.0, 0.0), weights)


@pytest.mark.parametrize("how", ["median", "cvar:0", "cvar:2", "cvar:x", "softmin:0", "softmin:inf", "min:3", "discounted:1.5"])
def test_unknown_names_and_parameters_are_refused(how: str) -> None:
    with pytest.raises(UsageError, match=how.partition(":")[0]):
        open_aggregation(how)


def test_names_may_have_hyphens() -> None:
    assert aggregate(P, "geometric-mean") == aggregate(P, "geometric_mean")


@pytest.mark.parametrize(
    ("k", "n", "by_wilson", "by_jeffreys"),
    [
        (4, 4, 0.5965213, 0.6375132),
        (3, 4, 0.3561679, 0.3492928),
        (7, 8, 0.5888566, 0.6033268),
        (3, 3, 0.5258, 0.5559),
        (14, 16, 0.6838, 0.6950),
    ],
)
def test_lower_bounds(k: int, n: int, by_wilson: float, by_jeffreys: float) -> None:
    digits = 1e-6 if n not in (3, 16) else 5e-5
    assert wilson(k, n) == pytest.approx(by_wilson, abs=digits)
    assert jeffreys(k, n) == pytest.approx(by_jeffreys, abs=digits)


def test_bounds_of_nothing_and_two_sided() -> None:
    assert jeffreys(0, 4) == wilson(0, 4) == 0.0
    assert wilson(3, 4, z=1.959963984540054) == pytest.approx(0.3006418, abs=1e-6)


def test_posterior_cvar() -> None:
    assert jeffreys(4, 5, level=0.9) == pytest.approx(0.5160968, abs=1e-6)
    assert posterior_cvar(4, 5, 0.1) == pytest.approx(0.4171345, abs=1e-6)


def test_bounds_rank_many_votes_above_few() -> None:
    for how in ("wilson", "jeffreys"):
        few, many, none = lower_bounds([(3, 3), (14, 16), (0, 0)], how)
        assert few is not None
        assert many is not None
        assert none is None
        assert few < many


def test_correlated_votes_count_for_less() -> None:
    assert lower_bounds([(4, 4)], correlation=1.0) == [wilson(1, 1)]
    with pytest.raises(UsageError, match="no bound"):
        lower_bounds([(1, 1)], "agresti")


def test_the_worst_futures() -> None:
    futures = [1.0] * 9 + [0.0]
    assert aggregate(futures, "cvar:0.2") == pytest.approx(0.5)
    assert aggregate(futures, "cvar:1") == pytest.approx(0.9)


def test_an_ensemble_s_spread() -> None:
    members = [(0.9, 0.5, None), (0.7, None, None), (0.8, None, None)]
    assert spread(members) == [(pytest.approx(0.8), pytest.approx(0.1)), (0.5, 0.0), None]
    assert spread_bounds(members, z=1.0) == [pytest.approx(0.7), 0.5, None]
    assert spread_bounds([(0.1,), (0.9,)], z=2.0) == [0.0]
