"""The threshold is the one with the best official first-error F1."""

from __future__ import annotations

import numpy as np
import pytest

from critic_prm.metrics.scores import first_below
from distill.decision import choose_threshold


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
    assert f1(choice.decision.threshold) == pytest.approx(choice.f1)
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
    assert 0.2 < heavy.decision.threshold <= 0.3


def test_one_kind_of_solution_gives_nothing_to_choose_by() -> None:
    choice = choose_threshold([[0.3], [0.4]], [-1, -1])
    assert (choice.decision.threshold, choice.f1) == (0.5, None)
