"""Calibrations do what their formulas say, and the one that generalises is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from critic_prm.metrics.scores import brier
from distill.calibration import Calibration, calibration_from_json, choose, fit, logit, sigmoid

P = np.array([0.95, 0.9, 0.85, 0.7, 0.6, 0.55, 0.3, 0.2])
Y = np.array([1.0, 1, 0, 1, 0, 1, 0, 0])
ONE = np.ones(8)


def nll(p: np.ndarray) -> float:
    return float(-np.mean(Y * np.log(p) + (1 - Y) * np.log(1 - p)))


def test_temperature_is_the_worked_example() -> None:
    calibration = fit("temperature", P, Y, ONE)
    assert calibration.parameters["temperature"][0] == pytest.approx(1.27417, abs=1e-4)
    assert nll(P) == pytest.approx(0.563049, abs=1e-6)
    assert nll(calibration(P)) == pytest.approx(0.556343, abs=1e-6)


def test_isotonic_pools_violators_keeps_off_the_walls_and_keeps_the_order() -> None:
    """At the centre of each pooled block it has the block's mean; between the centres it is a line."""
    fitted = fit("isotonic", P, Y, ONE)
    order = np.argsort(P)
    centres = [P[order[block]].mean() for block in (slice(0, 2), slice(2, 6), slice(6, 8))]
    assert fitted(np.array(centres)).tolist() == pytest.approx([1 / 16, 0.5, 15 / 16])
    assert (np.diff(fitted(np.linspace(0, 1, 101))) > 0).all()


@pytest.mark.parametrize("method", ["temperature", "platt", "beta"])
def test_parametric_methods_never_turn_the_ranking_round(method: str) -> None:
    generator = np.random.default_rng(3)
    p = generator.uniform(0.01, 0.99, 400)
    calibrated = fit(method, p, (generator.uniform(size=400) < 1 - p).astype(float), np.ones(400))(np.sort(p))
    assert (np.diff(calibrated) >= -1e-12).all()


def test_a_soft_label_counts_as_two_weighted_hard_ones() -> None:
    soft = fit("platt", P, np.full(8, 0.25), ONE)
    twice = fit("platt", np.tile(P, 2), np.repeat([1.0, 0.0], 8), np.repeat([0.25, 0.75], 8))
    assert soft(P) == pytest.approx(twice(P), abs=1e-5)


def test_platt_mends_scores_that_are_too_sure() -> None:
    generator = np.random.default_rng(0)
    truth = generator.uniform(0.05, 0.95, 4000)
    y = (generator.uniform(size=4000) < truth).astype(float)
    sure = sigmoid(3 * logit(truth))
    chosen, briers = choose(sure, y, np.ones(4000), [str(i) for i in range(4000)])
    assert chosen.method != "identity"
    assert np.abs(chosen(sure) - truth).mean() < 0.03
    assert briers[chosen.method] == min(briers.values())


def test_isotonic_is_not_chosen_for_fitting_noise() -> None:
    """On its own data isotonic looks better than it is, whatever the labels; problems held out show that."""
    generator = np.random.default_rng(1)
    p = generator.uniform(0.3, 0.7, 60)
    y = (generator.uniform(size=60) < 0.5).astype(float)
    chosen, held_out = choose(p, y, np.ones(60), [str(i) for i in range(60)])
    assert chosen.method != "isotonic"
    own = brier(y, fit("isotonic", p, y, np.ones(60))(p))
    assert own is not None
    assert own < held_out["isotonic"]
    assert held_out[chosen.method] < held_out["isotonic"]


@pytest.mark.parametrize("method", ["identity", "temperature", "platt", "beta", "isotonic"])
def test_a_calibration_survives_json(method: str) -> None:
    calibration = fit(method, P, Y, ONE)
    again = calibration_from_json(calibration.to_json())
    assert again(P).tolist() == calibration(P).tolist()
    assert isinstance(again, Calibration)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="magic"):
        calibration_from_json({"method": "magic", "parameters": {}})
