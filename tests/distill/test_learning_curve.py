"""Simulated judges err as the recorded ones do, their labels go through the pipeline, and the cost formulas are right."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.learning_curve import (
    Labeller,
    by_rules,
    decide,
    judgement_of,
    key,
    labelled_rows,
    left_out,
    one_judge,
    summary,
    targets,
    two_judges,
)
from bench.recorded_judges import EXAMPLES, Judge, Reading, confusion, excess_agreement, read_all, recorded
from bench.scale import (
    NETWORKS,
    Network,
    gpu_hours,
    judged,
    scoring_flops,
    tokens,
    training_flops,
    usd,
)
from distill.data import Row, TrainingSet, read_training_set
from distill.students.linear import Linear, LinearScorer, LinearSettings, features_of
from distill.transfer import Unseen, leave_out_groups

STRONG, LENIENT, STRICT = EXAMPLES


def solutions(count: int, steps: int = 9) -> list[Row]:
    """Half of them correct; the others have their first error neither in the first step nor in the last."""
    return [
        Row(f"{n}", f"problem {n}", ("a step",) * steps, labels(-1 if n % 2 else 1 + n // 2 % (steps - 2), steps), source="s")
        for n in range(count)
    ]


def labels(first: int, steps: int) -> tuple[float | None, ...]:
    return (1.0,) * steps if first < 0 else (*(1.0,) * first, 0.0, *(None,) * (steps - first - 1))


def first_errors(rows: list[Row]) -> list[int]:
    found = []
    for row in rows:
        wrong = [step for step, y in enumerate(row.labels) if y == 0.0]
        found.append(wrong[0] if wrong else -1)
    return found


def near(count: int, total: int, rate: float) -> bool:
    """Within four standard errors of a binomial count."""
    return abs(count - total * rate) <= 4 * math.sqrt(total * rate * (1 - rate)) + 1e-9


@pytest.mark.parametrize("judge", EXAMPLES, ids=lambda judge: judge.short)
def test_a_simulated_judge_has_the_recorded_confusion(judge: Judge) -> None:
    rows = solutions(4000)
    given = labelled_rows(rows, one_judge(judge), 1.0, seed=1)
    seen, unread = confusion("simulated", zip(first_errors(rows), first_errors(given), strict=True))
    assert (seen.erroneous, seen.correct, unread) == (2000, 2000, 0)
    for kind in ("miss", "early", "late", "false_alarm"):
        assert near(round(2000 * getattr(seen, kind)), 2000, getattr(judge, kind)), kind


def test_the_rates_are_those_of_the_recorded_replies(shared_data: Path) -> None:
    known = recorded(read_all(shared_data / "judge_outputs"))
    assert [known[judge.name][0] for judge in EXAMPLES] == list(EXAMPLES)


def test_where_no_earlier_step_is_the_error_is_put_later() -> None:
    judge = Judge("j", miss=0.1, early=0.2, late=0.3, false_alarm=0.4)
    assert judge.answers(1, 4) == pytest.approx([0.2, 0.4, 0.15, 0.15, 0.1])
    assert judge.answers(0, 3) == pytest.approx([0.4, 0.25, 0.25, 0.1])
    assert judge.answers(2, 3) == pytest.approx([0.25, 0.25, 0.4, 0.1])
    assert judge.answers(0, 1) == pytest.approx([0.9, 0.1])
    assert judge.answers(-1, 4) == pytest.approx([0.1, 0.1, 0.1, 0.1, 0.6])


def test_confusion_counts_every_kind_and_leaves_out_unreadable_replies() -> None:
    judge, unread = confusion("j", [(2, 2), (2, 1), (2, 3), (2, -1), (2, None), (-1, -1), (-1, 0), (-1, -1), (-1, None)])
    assert (judge.miss, judge.early, judge.late, judge.erroneous) == (0.25, 0.25, 0.25, 4)
    assert judge.false_alarm == pytest.approx(1 / 3)
    assert (judge.correct, unread) == (3, 2)
    assert judge.f1 == pytest.approx(2 * 0.25 * (2 / 3) / (0.25 + 2 / 3))


def test_excess_agreement_is_0_for_independent_judges_and_1_for_equal_ones() -> None:
    rows, found = solutions(4000, steps=60), {}
    for agreement in (0.0, 0.4, 1.0):
        readings = []
        for row, gold in zip(rows, first_errors(rows), strict=True):
            said = [judgement.first_error for judgement in two_judges(LENIENT, agreement)(row, 0)]
            readings += [Reading(name, row.id, gold, first) for name, first in zip("ab", said, strict=True)]
        found[agreement] = excess_agreement(readings, "a", "b")
    assert found[1.0] == 1.0
    assert found[0.0] == pytest.approx(0.0, abs=0.06)
    assert found[0.4] == pytest.approx(0.4, abs=0.06)


def test_a_judgement_becomes_the_labels_that_dataset_build_makes() -> None:
    assert targets([judgement_of(2, 5)], 5) == (1.0, 1.0, 0.0, None, None)
    assert targets([judgement_of(-1, 3)], 3) == (1.0, 1.0, 1.0)
    assert targets([judgement_of(1, 3), judgement_of(1, 3)], 3) == (1.0, 0.0, None)
    assert targets([judgement_of(1, 3), judgement_of(2, 3)], 3) == (None, None, None)  # no consensus
    sums = Row("r", "Add.", ("So 2 + 2 = 4.", "We go on.", "So 3 + 3 = 7.", "So 1 + 1 = 2."), (None,) * 4)
    assert targets(by_rules(sums, 0), 4) == (1.0, None, 0.0, None)


@pytest.mark.parametrize("labeller", [None, one_judge(STRICT), two_judges(STRICT, 0.3)])
def test_a_larger_share_has_the_labels_of_the_smaller_ones_and_more(labeller: Labeller | None) -> None:
    rows = solutions(400)
    some, more = (labelled_rows(rows, labeller, share, seed=3) for share in (0.1, 0.5))
    known = [at for at, row in enumerate(some) if any(y is not None for y in row.labels)]
    assert len(known) == 40 or labeller is not None
    assert 0 < len(known) <= 40
    assert [some[at].labels for at in known] == [more[at].labels for at in known]
    assert all(a.steps == b.steps for a, b in zip(some, rows, strict=True))


def test_decisions_see_the_given_labels_and_figures_the_gold_ones() -> None:
    """The given labels of a source decide nothing about it, and the gold labels decide nothing."""

    def sources(flip: str = "") -> list[Unseen]:
        out = []
        for number, name in enumerate("abc"):
            rows = solutions(120, steps=5)
            gold = first_errors(rows)
            scores = [np.where(np.arange(5) == first, 0.3, 0.8) + 0.01 * number for first in gold]
            given = [-1 if name == flip else first for first in gold]
            out.append(Unseen(name, number, [r.problem for r in rows], scores, [labels(f, 5) for f in given], given))
        return out

    truth = sources()
    assert left_out(truth, truth)["f1"] == pytest.approx(100.0)
    assert left_out(sources(flip="b"), truth)["f1"] == pytest.approx(100.0)
    assert left_out(truth, truth)["auroc"] == pytest.approx(1.0)
    decision, share = decide(truth)
    assert 0.3 < decision.threshold < 0.82
    assert 0.5 <= share < 1


def test_a_run_that_is_repeated_counts_once_and_seeds_are_averaged() -> None:
    plain = {"labels": "gold", "share": 0.1, "solutions": 10, "kept": 10, "right_steps": 1.0, "wrong_steps": 1.0}
    rows = [
        {**plain, "seed": seed, "left_out": {"auroc": auroc, "f1": 20.0, "f1_calibrated": 30.0}, "test": None}
        for seed, auroc in ((0, 0.6), (1, 0.7))
    ]
    cell = summary(rows, "left_out")["gold"][0.1]
    assert cell["auroc"] == pytest.approx(0.65)
    assert cell["auroc_sd"] == pytest.approx(0.0707, abs=1e-4)
    assert summary(rows, "test") == {}
    assert key(rows[0]) == ("gold", 0.1, 0)


def test_features_computed_before_give_the_same_student(training_set: Path) -> None:
    data = read_training_set(training_set)
    data = TrainingSet(data.folder, data.train[:80], data.dev, ())
    groups = leave_out_groups(data.train)
    steps = features_of([(row.problem, row.steps) for row in data.train], LinearSettings())
    plain, shared = (
        student.train_leaving_out(data, groups, seed=0, say=lambda line: None) for student in (Linear(), Linear(steps=steps))
    )
    assert isinstance(plain.scorer, LinearScorer)
    assert isinstance(shared.scorer, LinearScorer)
    items = [(row.problem, row.steps) for row in data.dev]
    assert np.array_equal(np.concatenate(plain.left_out), np.concatenate(shared.left_out))
    whole = np.concatenate(plain.scorer.score(items))
    assert np.array_equal(whole, shared.scorer.score_steps(features_of(items, LinearSettings())))


def test_the_weights_of_a_transformer() -> None:
    assert Network("tiny", layers=2, width=4, keys=2, inner=8).weights == 2 * (16 + 8 + 8 + 16 + 3 * 32)
    assert [network.weights for network in NETWORKS] == [1_310_195_712, 6_525_288_448]  # as published: 1.31 B and 6.53 B


def test_training_takes_6nd_and_scoring_2nd() -> None:
    assert tokens(3750) == pytest.approx(1000)
    assert training_flops(10, 1000) == pytest.approx(6 * 10 * 1000 * (873 / 3.75) * 3)
    assert scoring_flops(10, 1000) == pytest.approx(2 * 10 * 1000 * (1248 / 3.75))
    assert gpu_hours(989e12 * 3600, 1.0) == pytest.approx(1.0)
    assert gpu_hours(989e12 * 3600, 0.25) == pytest.approx(4.0)


def test_a_thousand_judgements_cost_their_tokens() -> None:
    usage = judged()
    assert (usage.input, usage.output) == (656, 189)
    online = usd("openai", "gpt-6-sol", usage=usage)  # 2 and 10 USD per million tokens
    assert online == pytest.approx(1000 * (656 * 2 + 189 * 10) / 1e6)
    assert usd("openai", "gpt-6-sol", batch=True, usage=usage) == pytest.approx(online / 2 if online else None)
