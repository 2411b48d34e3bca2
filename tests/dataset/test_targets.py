"""What a labelled trajectory teaches: consensus over ok judgements, neutral steps as asked, nothing after the first error."""

from __future__ import annotations

from typing import Any

import pytest

from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.datasets.build import Targets, from_gold, from_label
from critic_prm.errors import InputError

WORDS = {"+": "correct", "-": "incorrect", "0": "neutral"}


def judgement(marks: str, steps: int, sample: int = 0, status: Any = "ok", p: float | None = None) -> Judgement:
    verdicts = tuple(Verdict(i, WORDS[m], p_correct=p) for i, m in enumerate(marks))  # type: ignore[arg-type]
    first = marks.index("-") if "-" in marks else (-1 if len(marks) == steps else None)
    return Judgement(status, verdicts, first, sample)


def targets(*marks: str, steps: int = 3, **options: Any) -> Targets | str:
    return from_label(combine([judgement(m, steps, i) for i, m in enumerate(marks)], steps), **options)


def test_the_vote_and_its_agreement() -> None:
    got = targets("++-", "++-", "+-", "+++")
    assert isinstance(got, Targets)
    assert got.labels == (1.0, 0.75, 1 / 3)
    assert got.votes == ((4, 4), (3, 4), (1, 3))
    assert (got.first_error, got.agreement, got.kind) == (2, 0.5, "erroneous")


def test_hard_labels_follow_from_the_first_error_and_nothing_follows_it() -> None:
    assert targets("+-+", "+-+", "+++", soft=False) == Targets((1.0, 0.0, None), ((3, 3), (1, 3), (3, 3)), 1, 2 / 3)
    assert targets("+-+", "+-+", "+++") == Targets((1.0, 1 / 3, None), ((3, 3), (1, 3), (3, 3)), 1, 2 / 3)
    assert targets("+++", soft=False) == Targets((1.0, 1.0, 1.0), ((1, 1),) * 3, -1, 1.0)


def test_a_tie_and_unread_replies_teach_nothing() -> None:
    assert targets("++-", "+++") == "tie"
    assert from_label(combine([judgement("+++", 3, status="truncated")], 3)) == "truncated"
    assert from_label(combine([], 3)) == "provider_error"


def test_unread_replies_do_not_vote() -> None:
    bad = [judgement("-", 3, i, status="count_mismatch") for i in range(3)]
    got = from_label(combine([judgement("+++", 3), *bad], 3))
    assert got == Targets((1.0, 1.0, 1.0), ((1, 1),) * 3, -1, 1.0)


def test_probabilities_are_kept_when_soft() -> None:
    got = from_label(combine([judgement("+++", 3, p=0.9)], 3))
    assert isinstance(got, Targets)
    assert got.labels == (0.9, 0.9, 0.9)


@pytest.mark.parametrize(
    ("neutral", "labels", "votes", "first"),
    [
        ("drop", (1.0, None, 1.0), ((1, 1), (0, 0), (1, 1)), -1),
        ("good", (1.0, 1.0, 1.0), ((1, 1),) * 3, -1),
        ("bad", (1.0, 0.0, None), ((1, 1), (0, 1), (1, 1)), 1),
    ],
)
def test_neutral_verdicts(neutral: Any, labels: Any, votes: Any, first: int) -> None:
    assert targets("+0+", neutral=neutral) == Targets(labels, votes, first, 1.0)
    gold = Trajectory("a", "p", (Step("x"),) * 3, step_labels=(1.0, "neutral", 1.0))
    assert from_gold(gold, neutral=neutral) == Targets(labels, ((0, 0),) * 3, first)


def test_neutral_as_bad_comes_before_a_later_error_only() -> None:
    got = targets("-0+", neutral="bad")
    assert isinstance(got, Targets)
    assert got.first_error == 0


def test_judgements_without_an_outcome_are_partial() -> None:
    got = targets("++")
    assert isinstance(got, Targets)
    assert (got.labels, got.first_error, got.kind) == ((1.0, 1.0, None), None, "partial")


def test_a_slimmed_label_keeps_its_totals_but_not_its_neutral_verdicts() -> None:
    full = combine([judgement("++-", 3)], 3)
    slim = combine([], 3).__class__(full.p_correct, full.votes, full.first_error, "ok", ())
    assert from_label(slim) == Targets((1.0, 1.0, 0.0), ((1, 1), (1, 1), (0, 1)), 2, None)
    with pytest.raises(InputError, match="here: the row has no judgements"):
        from_label(slim, neutral="good", where="here")


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"label": -1}, ((1.0, 1.0, 1.0), -1)),
        ({"label": 1}, ((1.0, 0.0, None), 1)),
        ({"step_labels": (1.0, 0.25, 0.75)}, ((1.0, 0.25, None), 1)),
        ({"step_labels": (1.0, None, 1.0)}, ((1.0, None, 1.0), None)),
        ({"step_labels": (1.0, None, 0.0)}, ((1.0, None, 0.0), None)),
        ({"step_labels": (None, 0.0, 1.0)}, ((None, 0.0, None), None)),
    ],
)
def test_gold_labels(fields: Any, want: Any) -> None:
    got = from_gold(Trajectory("a", "p", (Step("x"),) * 3, **fields))
    assert isinstance(got, Targets)
    assert (got.labels, got.first_error) == want
    assert got.votes == ((0, 0),) * 3


def test_hard_gold_labels() -> None:
    got = from_gold(Trajectory("a", "p", (Step("x"),) * 3, step_labels=(0.9, 0.6, 0.4)), soft=False)
    assert isinstance(got, Targets)
    assert got.labels == (1.0, 1.0, 0.0)


def test_no_gold_label_is_said() -> None:
    assert from_gold(Trajectory("a", "p", (Step("x"),) * 3)) == "no gold label"
