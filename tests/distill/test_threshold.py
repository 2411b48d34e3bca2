"""The threshold is the one with the best official first-error F1."""

from __future__ import annotations

import numpy as np
import pytest

from distill.threshold import choose_threshold, first_below, robust_threshold


def test_the_first_step_below_is_the_error_and_equality_is_good() -> None:
    assert first_below([0.9, 0.4, 0.2], 0.5) == 1
    assert first_below([0.5, 0.6], 0.5) == -1
    assert first_below([], 0.5) == -1


def test_it_agrees_with_trying_every_threshold() -> None:
    generator = np.random.default_rng(0)
    scores = [generator.uniform(size=int(n)).round(2).tolist() for n in generator.integers(1, 7, 60)]
    gold = [int(generator.integers(-1, len(s))) for s in scores]

    def f1(tau: float) -> float:
        a = np.mean([first_below(s, tau) == g for s, g in zip(scores, gold, strict=True) if g >= 0])
        c = np.mean([first_below(s, tau) == g for s, g in zip(scores, gold, strict=True) if g < 0])
        return float(2 * a * c / (a + c)) if a + c else 0.0

    choice = choose_threshold(scores, gold)
    assert choice.f1 == pytest.approx(max(f1(t / 1000) for t in range(1001)))
    assert f1(choice.threshold) == pytest.approx(choice.f1)
    assert choice.solutions == 60


def test_harmonic_mean_of_the_two_accuracies() -> None:
    scores = [[0.9, 0.1]] * 3 + [[0.9, 0.95]] * 2 + [[0.9]] * 9 + [[0.1]]
    gold = [1] * 5 + [-1] * 10
    choice = choose_threshold(scores, gold)
    assert (choice.erroneous, choice.correct) == (0.6, 0.9)
    assert choice.f1 == pytest.approx(0.72)


def test_weights_and_unknown_first_errors() -> None:
    scores, gold = [[0.2], [0.3], [0.25], [0.9]], [0, -1, None, -1]
    assert choose_threshold(scores, gold).solutions == 3
    heavy = choose_threshold([[0.2], [0.3], [0.1]], [0, -1, -1], [1.0, 1.0, 1e-9])
    assert 0.2 < heavy.threshold <= 0.3


def test_one_kind_of_solution_gives_nothing_to_choose_by() -> None:
    assert choose_threshold([[0.3], [0.4]], [-1, -1]).threshold == 0.5


def test_the_robust_threshold_prefers_a_plateau_to_a_spike() -> None:
    plateau = [[0.2], [0.6], [0.61], [0.62], [0.63], [0.19]]
    gold = [0, -1, -1, -1, -1, 0]
    spiked = [*plateau, [0.7], [0.71]]
    choice = robust_threshold(spiked, [*gold, 0, -1], ["s"] * 8)
    assert 0.2 < choice.threshold <= 0.6
    assert choice.solutions == 8


def test_the_robust_threshold_weighs_sources_that_have_both_kinds() -> None:
    """Pooled, the one-sided source decides; on its own curve it has no say."""
    fair = [([0.3], 0), ([0.35], 0), ([0.25], 0), ([0.5], -1), ([0.55], -1), ([0.6], -1)]
    one_sided = [([0.51 + i / 10000], 0) for i in range(40)]
    scores, gold = zip(*(fair + one_sided), strict=True)
    sources = ["fair"] * 6 + ["one-sided"] * 40
    assert 0.35 < robust_threshold(scores, gold, sources).threshold <= 0.5
    assert robust_threshold(scores, gold, ["pool"] * 46).threshold > 0.5


def test_the_robust_threshold_without_both_kinds() -> None:
    assert robust_threshold([[0.3], [0.4]], [0, 0], ["a", "b"]).threshold == 0.5
