"""Scorecards: thresholds and where they come from, unusable judgements, oracle intervals, comparison of two critics."""

from __future__ import annotations

import numpy as np
import pytest

from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import UsageError
from critic_prm.metrics.scorecard import Case, case_of, compare, has_gold, score
from critic_prm.metrics.scores import first_below, first_error_f1


def case(place: int, gold: int | None, p: tuple[float | None, ...], verdict: int | None = -1, status: str = "ok") -> Case:
    error = len(p) if gold in (None, -1) else gold
    steps = tuple(None if gold is None or i > error else float(i != error) for i in range(len(p)))
    return Case(f"c{place}", f"problem {place // 2}", gold, steps, p, verdict, status)


def cases(n: int = 80, seed: int = 0, skill: float = 2.0) -> list[Case]:
    """Solutions of four steps, half of them wrong, with scores that know something of it."""
    rng = np.random.default_rng(seed)
    made = []
    for place in range(n):
        gold = int(rng.integers(0, 4)) if place % 2 else -1
        logits = rng.normal(1.5, 1, 4) - np.array([skill * (i == gold) for i in range(4)])
        p = tuple((1 / (1 + np.exp(-logits))).tolist())
        made.append(case(place, gold, p, verdict=first_below(p, 0.5)))
    return made


def test_verdicts_are_used_unless_a_threshold_is_given() -> None:
    made = cases()
    by_verdict = score({"a": made}, own=0.5)
    assert (by_verdict.threshold, by_verdict.threshold_from) == (None, "verdicts")
    same = score({"a": made}, threshold=0.5)
    assert same.threshold_from == "given"
    assert same.mean["f1"] == by_verdict.mean["f1"]
    assert score({"a": made}, threshold=0.9).mean["f1"] != same.mean["f1"]
    gold = [c.gold for c in made if c.gold is not None]
    assert same.mean["f1"].value == first_error_f1(gold, [c.predicted(0.5) for c in made]).f1


def test_steps_are_called_good_by_the_critics_own_threshold() -> None:
    made = [case(0, 0, (0.3,), verdict=-1), case(2, -1, (0.4,), verdict=-1)]
    assert score({"a": made}, own=0.35).subsets[0].metrics["step_accuracy"].value == 1.0
    assert score({"a": made}).subsets[0].metrics["step_accuracy"].value == 0.5


def test_the_oracle_is_named_and_at_least_as_good_as_any_threshold() -> None:
    subsets = {"a": cases(seed=1), "b": cases(seed=2, skill=1.0)}
    card = score(subsets, oracle=True)
    assert "f1" not in card.mean
    assert card.threshold_from == "oracle"
    best = max(score(subsets, threshold=t, replicates=100).mean["f1"].value or 0 for t in np.linspace(0.05, 0.95, 19))
    assert (card.mean["f1_oracle"].value or 0) >= best - 1e-12
    assert card.threshold is not None
    again = score(subsets, threshold=card.threshold, replicates=100).mean["f1"].value
    assert card.mean["f1_oracle"].value == pytest.approx(again)


def test_oracle_intervals_choose_the_threshold_again_in_every_resample() -> None:
    subsets = {"a": cases(seed=1)}
    card = score(subsets, oracle=True)
    fixed = score(subsets, threshold=card.threshold)
    assert (card.mean["f1_oracle"].high or 0) > (fixed.mean["f1"].high or 0)


def test_unusable_judgements_are_wrong_and_counted_by_status() -> None:
    made = [
        case(0, -1, (None,), None, "refused"),
        case(2, 0, (None,), None, "truncated"),
        case(4, -1, (1.0,)),
        case(6, 0, (0.0,), 0),
    ]
    (subset,) = score({"a": made}).subsets
    assert subset.unusable == {"refused": 1, "truncated": 1}
    assert subset.metrics["f1"].value == 0.5
    assert subset.metrics["binary_f1_error"].value == 0.5
    assert (subset.steps, subset.judged) == (4, 2)


def test_undecided_labels_are_unusable_by_verdict_but_not_by_threshold() -> None:
    verdicts = [(Verdict(0, "incorrect"),), (Verdict(0, "correct"), Verdict(1, "correct"))]
    firsts = (0, -1)
    label = combine([Judgement("ok", v, f, i) for i, (v, f) in enumerate(zip(verdicts, firsts, strict=True))], 2)
    tied = case_of(Trajectory("t", "p", (Step("a"), Step("b")), label=1), label)
    assert (tied.status, tied.verdict, tied.p_correct) == ("undecided", None, (0.5, 1.0))
    assert tied.predicted(None) is None
    assert tied.predicted(0.6) == 0


def test_what_was_not_read_leaves_no_scores() -> None:
    judgement = Judgement("truncated", (Verdict(0, "correct"),), None)
    cut = case_of(Trajectory("t", "p", (Step("a"),), label=0), combine([judgement], 1))
    assert (cut.status, cut.p_correct, cut.predicted(0.5)) == ("truncated", (None,), None)


def test_neutral_gold_steps_count_neither_way() -> None:
    trajectory = Trajectory("t", "p", (Step("a"), Step("b"), Step("c")), step_labels=(1.0, "neutral", 0.0))
    made = case_of(trajectory, combine([], 3))
    assert made.steps == (1.0, None, 0.0)
    assert made.gold == 2
    assert has_gold(trajectory)
    assert not has_gold(Trajectory("t", "p", (Step("a"),)))
    assert not has_gold(Trajectory("t", "p", (Step("a"),), step_labels=(None,)))


def test_a_metric_that_a_subset_lacks_has_no_mean() -> None:
    card = score({"a": cases(), "right": [case(i, -1, (0.9,)) for i in range(9)]})
    assert card.mean["f1"].value is None
    assert card.mean["f1"].reason == "not defined for right"
    assert card.mean["accuracy_correct"].value is not None


def test_the_mean_is_unweighted() -> None:
    card = score({"a": cases(20, 1), "b": cases(200, 2)})
    a, b = (subset.metrics["f1"] for subset in card.subsets)
    assert card.mean["f1"].value == pytest.approx(((a.value or 0) + (b.value or 0)) / 2)
    width = (card.mean["f1"].high or 0) - (card.mean["f1"].low or 0)
    assert width < (a.high or 0) - (a.low or 0)


def test_one_problem_gives_values_without_intervals() -> None:
    (subset,) = score({"a": [case(0, 0, (0.1,), 0), case(1, -1, (0.9,))]}).subsets
    assert subset.metrics["f1"].value == 1.0
    assert subset.metrics["f1"].low is None
    assert "1 problem" in subset.metrics["f1"].reason
    assert score({"a": [case(0, 0, (0.1,), 0), case(1, -1, (0.9,))]}, oracle=True).mean["f1_oracle"].value == 1.0


def test_all_right_steps_alone_make_a_prm_score() -> None:
    (subset,) = score({"multi": [case(i, -1, (0.9, 0.2)) for i in range(4)]}).subsets
    assert subset.metrics["prm_score"].value == pytest.approx(2 / 3)


def test_the_same_seed_gives_the_same_intervals() -> None:
    assert score({"a": cases()}, seed=3) == score({"a": cases()}, seed=3)
    assert score({"a": cases()}, seed=3).mean["f1"] != score({"a": cases()}, seed=4).mean["f1"]


def test_comparing_a_critic_with_itself_finds_exactly_nothing() -> None:
    made = cases()
    same = compare({"a": made, "b": cases(seed=4)}, {"b": cases(seed=4), "a": made[::-1]})
    for difference in (*same.subsets.values(), same.mean):
        assert (difference.difference, difference.interval.low, difference.interval.high, difference.p) == (0.0, 0.0, 0.0, 1.0)
    assert (same.matched, same.unmatched) == (160, 0)


def test_comparing_sees_the_better_one() -> None:
    better, worse = cases(200, seed=7, skill=4.0), cases(200, seed=7, skill=0.5)
    found = compare({"a": better[:-2]}, {"a": worse[2:]})
    assert found.mean.interval.low is not None
    assert found.mean.interval.low > 0
    assert found.mean.p is not None
    assert found.mean.p < 0.01
    assert (found.matched, found.unmatched) == (196, 4)
    assert compare({"a": better}, {"a": better}, threshold=0.99).mean.difference != 0.0


def test_nothing_to_compare_is_said() -> None:
    with pytest.raises(UsageError, match="share no subset"):
        compare({"a": cases()}, {"b": cases()})
