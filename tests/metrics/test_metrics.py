"""Metrics against worked numbers, and intervals that are as wide as the number of problems makes them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import orjson
import pytest

from critic_prm.metrics.bootstrap import (
    Clusters,
    cluster_bootstrap,
    interval_of,
    of_auroc,
    paired_bootstrap,
    replicate,
    two_sided,
)
from critic_prm.metrics.scores import (
    Array,
    auroc,
    binary_f1,
    brier,
    cohen_kappa,
    confusion_rows,
    ece,
    first_below,
    first_error_f1,
    first_error_rows,
    fleiss_kappa,
    log_loss,
    official_f1,
    plain_f1,
    prm_score,
    step_accuracy,
)

P = np.array([0.95, 0.9, 0.85, 0.7, 0.6, 0.55, 0.3, 0.2])
Y = np.array([1, 1, 0, 1, 0, 1, 0, 0])
RNG = np.random.default_rng(0)


def test_official_f1_of_the_worked_example() -> None:
    gold = [0] * 5 + [-1] * 10
    predicted = [0, 0, 0, 1, -1, *[-1] * 9, 3]
    score = first_error_f1(gold, predicted)
    assert score.f1 == pytest.approx(0.72, abs=1e-9)
    assert (score.erroneous, score.correct, score.n_erroneous, score.n_correct) == (0.6, 0.9, 5, 10)


def test_the_first_step_below_the_threshold() -> None:
    assert first_below((0.9, 0.4, 0.2), 0.5) == 1
    assert first_below((0.9, 0.5, 0.7), 0.5) == -1
    assert first_below((0.9, None, 0.2), 0.5) == 2
    assert first_below((0.9, 0.6, 0.55, 0.52), 0.5) == -1


def test_unusable_predictions_are_wrong() -> None:
    assert first_error_f1([1, -1], [None, None]).f1 == 0.0
    assert first_error_f1([1, 1, -1], [1, None, -1]).erroneous == 0.5
    assert first_error_f1([1, -1, -1], [1, -1, None]).correct == 0.5


def test_official_f1_needs_both_kinds() -> None:
    assert first_error_f1([1, 2], [1, 2]).f1 is None
    assert first_error_f1([1, 2], [1, 2]).correct is None
    assert first_error_f1([-1], [-1]).f1 is None
    assert first_error_f1([], []).f1 is None


def test_binary_f1_names_its_positive_class() -> None:
    gold = [0, 1, 2, -1, -1]
    predicted: list[int | None] = [3, 1, -1, -1, None]
    assert binary_f1(gold, predicted, "error") == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    assert binary_f1(gold, predicted, "correct") == pytest.approx(2 * 1 / (2 * 1 + 1 + 1))
    assert binary_f1([0], [-1], "correct") == 0.0
    assert binary_f1([0], [0], "correct") is None


@pytest.mark.parametrize(("wrong", "right", "published"), [(661, 339, 39.1), (759, 241, 32.7)])
def test_guessing_gives_the_published_row_only_with_correct_as_the_positive_class(
    wrong: int, right: int, published: float
) -> None:
    gold = [0] * (2 * wrong) + [-1] * (2 * right)
    guess: Sequence[int | None] = [0] * wrong + [-1] * wrong + [0] * right + [-1] * right
    assert 100 * (binary_f1(gold, guess, "correct") or 0) == pytest.approx(published, abs=1.5)
    assert abs(100 * (binary_f1(gold, guess, "error") or 0) - published) > 15


def test_calibration_of_the_worked_example() -> None:
    assert ece(Y, P, bins=5) == pytest.approx(0.20625, abs=1e-9)
    assert ece(Y, P, bins=4, mass="mass") == pytest.approx(0.16875, abs=1e-9)
    assert brier(Y, P) == pytest.approx(0.1896875, abs=1e-9)
    assert log_loss(Y, P) == pytest.approx(0.563049, abs=1e-6)
    cooled = 1 / (1 + np.exp(-np.log(P / (1 - P)) / 1.27417))
    assert log_loss(Y, cooled) == pytest.approx(0.556343, abs=1e-6)
    assert auroc(Y, cooled) == auroc(Y, P)


def test_calibrated_scores_have_next_to_no_error() -> None:
    p = RNG.random(100_000)
    assert (ece(RNG.random(100_000) < p, p) or 1) < 0.01


def test_bins_are_closed_above() -> None:
    assert ece([1, 1], [0.1, 0.05], bins=10) == pytest.approx(1 - 0.075)
    assert ece([1, 0], [0.3, 0.2], bins=10) == pytest.approx((0.7 + 0.2) / 2)
    assert ece([1, 0], [0.3, 0.300001], bins=10) == pytest.approx((0.7 + 0.300001) / 2)
    assert ece([0], [0.0]) == 0.0
    assert ece([1], [1.0]) == 0.0


def test_auroc_counts_ties_half() -> None:
    assert auroc([1, 0], [0.5, 0.5]) == 0.5
    assert auroc([1, 1, 0, 0], [0.9, 0.5, 0.5, 0.1]) == pytest.approx(3.5 / 4)
    assert auroc([1, 1], [0.2, 0.3]) is None
    assert auroc([], []) is None


def test_auroc_is_the_share_of_pairs() -> None:
    good, scores = RNG.random(60) < 0.6, np.round(RNG.random(60), 1)
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[good] for b in scores[~good]]
    assert auroc(good, scores) == pytest.approx(float(np.mean(pairs)), abs=1e-12)


def test_log_loss_of_certain_and_wrong_is_finite() -> None:
    assert log_loss([0], [1.0]) == pytest.approx(-math.log(1e-6))


def test_prm_score_is_the_mean_of_both_views() -> None:
    good, said = [1, 1, 1, 0, 0], [1, 1, 0, 0, 1]
    assert prm_score(good, said) == pytest.approx((2 * 2 / 6 + 2 * 1 / 4) / 2)
    assert step_accuracy(good, said) == 0.6


def test_nothing_to_measure_is_none() -> None:
    assert [brier([], []), log_loss([], []), ece([], []), step_accuracy([], []), prm_score([], [])] == [None] * 5


def test_cohen_kappa() -> None:
    one = ["y"] * 25 + ["n"] * 25
    other = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    assert cohen_kappa(one, other) == pytest.approx(0.4)
    assert cohen_kappa("abc", "abc") == 1.0
    assert cohen_kappa("aa", "aa") is None


def test_fleiss_kappa_of_the_textbook_table() -> None:
    table = [
        [0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7],
    ]  # fmt: skip
    assert fleiss_kappa(table) == pytest.approx(0.20993, abs=1e-5)
    assert fleiss_kappa([[3, 0], [3, 0]]) is None
    with pytest.raises(ValueError, match="same number of judges"):
        fleiss_kappa([[3, 0], [2, 0]])


def some_rows(n: int = 120) -> tuple[list[str], np.ndarray]:
    gold = RNG.integers(-1, 3, n).tolist()
    said = [g if RNG.random() < 0.6 else int(RNG.integers(-1, 3)) for g in gold]
    return [f"problem {i % (n // 2)}" for i in range(n)], first_error_rows(gold, said)


def test_repeating_every_row_leaves_the_interval_unchanged() -> None:
    problems, rows = some_rows()
    once = cluster_bootstrap(problems, rows, official_f1)
    thrice = cluster_bootstrap(problems * 3, np.tile(rows, (3, 1)), official_f1)
    assert thrice == once
    assert once.low is not None
    assert once.high is not None
    assert once.low < float(official_f1(rows.sum(axis=0))) < once.high
    iid = cluster_bootstrap(range(360), np.tile(rows, (3, 1)), official_f1)
    assert (iid.high or 0) - (iid.low or 0) < 0.75 * (once.high - once.low)


def test_row_order_does_not_matter() -> None:
    problems, rows = some_rows()
    order = RNG.permutation(len(rows))
    assert cluster_bootstrap([problems[i] for i in order], rows[order], official_f1) == cluster_bootstrap(
        problems, rows, official_f1
    )


def test_one_problem_has_no_interval_but_a_reason() -> None:
    interval = cluster_bootstrap(["a"] * 9, some_rows(18)[1][:9], official_f1)
    assert (interval.low, interval.high) == (None, None)
    assert "1 problem cannot show" in interval.reason


def test_a_constant_metric_has_zero_width() -> None:
    rows = first_error_rows([0, -1] * 20, [0, -1] * 20)
    interval = cluster_bootstrap(range(40), rows, official_f1)
    assert (interval.low, interval.high, interval.sd) == (1.0, 1.0, 0.0)


def test_resamples_without_a_class_are_drawn_again_and_counted() -> None:
    rows = first_error_rows([0, -1, -1], [0, -1, 1])
    interval = cluster_bootstrap(range(3), rows, official_f1)
    assert interval.redrawn > 500
    assert interval.low is not None
    hopeless = cluster_bootstrap(range(3), first_error_rows([-1, -1, -1], [0, -1, 1]), official_f1)
    assert "not defined" in hopeless.reason


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng, inside = np.random.default_rng(5), 0
    for trial in range(120):
        errors = rng.random(150) < 0.5
        hit = rng.random(150) < np.where(errors, 0.6, 0.9)
        rows = np.stack([errors, errors & hit, ~errors, ~errors & hit], axis=-1).astype(float)
        interval = cluster_bootstrap(range(150), rows, official_f1, replicates=400, seed=trial)
        inside += (interval.low or 0) <= 0.72 <= (interval.high or 0)
    assert 105 <= inside <= 120


def test_identical_predictions_differ_by_exactly_nothing() -> None:
    problems, rows = some_rows()
    same = paired_bootstrap(problems, rows, rows.copy(), official_f1)
    assert (same.difference, same.interval.low, same.interval.high, same.p) == (0.0, 0.0, 0.0, 1.0)


def test_a_better_critic_is_seen_in_the_difference() -> None:
    gold = RNG.integers(-1, 3, 200).tolist()
    good = [g if RNG.random() < 0.9 else 9 for g in gold]
    poor = [g if RNG.random() < 0.5 else 9 for g in gold]
    found = paired_bootstrap(range(200), first_error_rows(gold, good), first_error_rows(gold, poor), official_f1)
    assert found.interval.low is not None
    assert found.interval.low > 0
    assert found.p == pytest.approx(2 / 2001)
    single = paired_bootstrap(["a", "a"], first_error_rows([0, -1], [0, -1]), first_error_rows([0, -1], [0, 0]), official_f1)
    assert single.p is None
    assert single.difference == 1.0


def test_two_sided_p() -> None:
    assert two_sided(np.array([1.0, 2.0, 3.0])) == 0.5
    assert two_sided(np.zeros(3)) == 1.0


def test_resampled_auroc_is_the_auroc_of_the_resample() -> None:
    problems = [f"p{i % 7}" for i in range(80)]
    good, scores = RNG.random(80) < 0.6, np.round(RNG.random(80), 1)
    clusters = Clusters(problems)
    draws = RNG.multinomial(7, [1 / 7] * 7, size=20).astype(float)
    got = of_auroc(clusters, good, scores)(draws)
    for row, value in zip(draws, got, strict=True):
        picked = np.repeat(np.arange(80), row[clusters.index].astype(int))
        assert value == pytest.approx(auroc(good[picked], scores[picked]), abs=1e-12)
    values, _ = replicate(of_auroc(clusters, good, scores), 7, 500)
    interval = interval_of(values, 7)
    assert (interval.low or 1) < (auroc(good, scores) or 0) < (interval.high or 0)


def test_confusion_rows_add_up() -> None:
    rows = confusion_rows([1, 1, 0, 0], [1, 0, 1, 0])
    assert rows.sum(axis=0).tolist() == [1, 1, 1, 1]
    assert float(plain_f1(rows.sum(axis=0))) == 0.5


@pytest.mark.parametrize("values", [np.zeros(3), np.array([1.0, 2.0, 3.0]), np.linspace(-1, 9, 500), np.linspace(-9, 1, 500)])
def test_a_p_value_is_a_plain_float_which_every_json_writer_takes(values: Array) -> None:
    """`search -o` ended in a traceback as soon as p was below 1: numpy's float was no JSON to the writer of run.json."""
    assert type(two_sided(values)) is float
    orjson.dumps(two_sided(values))
