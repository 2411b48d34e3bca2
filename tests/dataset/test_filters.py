"""The rules of a filter: what each takes out, what is left of a row, and how it is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.judgement import Judgement, Verdict
from critic_prm.data.label_rows import labelled_from_json
from critic_prm.data.records.reading import read_records, write_records
from critic_prm.datasets.filters import FilterOptions, fault, filter_rows, loops, preset_rules, reply_tokens, rule_lines
from critic_prm.errors import InputError, UsageError


def run(tmp_path: Path, rows: list[dict[str, Any]], options: FilterOptions) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    write_records(tmp_path / "in.jsonl", rows)
    report = filter_rows(tmp_path / "in.jsonl", tmp_path / "out.jsonl", options)
    out = tmp_path / "out.jsonl"
    return report, [record.data for record in read_records(out)] if out.stat().st_size else []


STEP = "Multiply both sides by seven, which gives forty two apples in the basket."


@pytest.mark.parametrize(
    ("critique", "found"),
    [
        ("The product of six and seven is indeed forty two.", ""),
        ("", "empty critique"),
        (" \n ", "empty critique"),
        ("OK", "short critique"),
        (STEP, "copied critique"),
        ("multiply both sides by seven which gives forty two apples", "copied critique"),
        ("Wait, let me check this once more. " * 4, "looping critique"),
        ("so it is right and " * 20, "looping critique"),
        ("Multiplying by seven is allowed here, as seven is not zero; the result holds.", ""),
    ],
)
def test_a_critique_says_something_of_its_own(critique: str, found: str) -> None:
    assert fault(critique, STEP, 3) == found


def test_long_critiques_that_go_on_are_no_loops() -> None:
    text = " ".join(f"Term {n} is {n * n}, and adding it to the sum before gives {n * (n + 1)}." for n in range(40))
    assert not loops(text)


def test_genuine_critiques_pass(shared_data: Path) -> None:
    """Recorded replies of a 70B and an 8B judge: few faults, and those found are what they are called."""
    faults = {"": 0}
    for record in read_records(shared_data / "judge_outputs" / "parc_step_verdicts.jsonl"):
        critique = record.data["response_text"].partition("Verdict:")[0].removeprefix("Reasoning:")
        reason = fault(critique, record.data["step"], 3)
        faults[reason] = faults.get(reason, 0) + 1
    assert faults[""] / sum(faults.values()) > 0.95


def test_rules_about_rows(tmp_path: Path, made: Any) -> None:
    unread = made.labelled(made.solution(5), Judgement("refused"))
    rows = [
        made.judged(made.solution(0, 3, final_answer="1"), -1),
        made.judged(made.solution(1, 9, final_answer="1"), -1),
        made.judged(made.solution(2, 1, final_answer="1"), 0),
        made.judged({**made.solution(3, final_answer="1"), "steps": ["a", " ", "b"]}, -1),
        made.judged({**made.solution(4, final_answer="1"), "steps": ["Step 1: a\nStep 2: b", "c"]}, 1),
        unread,
        made.judged(made.solution(6), 1),
        made.judged(made.solution(7, final_answer="1"), 0, 0, 1, 2),
    ]
    options = FilterOptions(
        status=True, min_agreement=0.75, min_steps=2, max_steps=8, max_chars=400, well_formed=True, answered=True
    )
    report, out = run(tmp_path, rows, options)
    assert [row["id"] for row in out] == ["s0"]
    assert {reason: sum(kinds.values()) for reason, kinds in report["left_out"].items()} == {
        "refused": 1,
        "low agreement": 1,
        "too many steps": 1,
        "too few steps": 1,
        "empty step": 1,
        "several steps in one": 1,
        "no final answer": 1,
    }
    assert [(one["rule"], one["rows_in"], one["rows_out"]) for one in report["rules"]] == [
        ("status", 8, 7),
        ("agreement", 7, 6),
        ("length", 6, 4),
        ("well formed", 4, 2),
        ("answered", 2, 1),
    ]
    assert report["rules"][2]["by_class"] == {"erroneous": {"in": 3, "out": 2}, "correct": {"in": 3, "out": 2}}
    assert out[0] == rows[0]


def test_too_long_a_text(tmp_path: Path, made: Any) -> None:
    report, _ = run(tmp_path, [made.judged(made.solution(0), -1)], FilterOptions(max_chars=20))
    assert report["left_out"] == {"too long": {"correct": 1}}


def test_a_judgement_that_fails_leaves_the_row_to_the_others(tmp_path: Path, made: Any) -> None:
    good, silent = made.judgement(3, 1), made.judgement(3, -1, ["", "", ""], sample=1)
    failed = Judgement("truncated", sample=2)
    row = made.labelled(made.solution(0), good, silent, failed, prior="jeffreys")
    report, (out,) = run(tmp_path, [row], FilterOptions(critiques="all"))
    assert [one["sample"] for one in out["judgements"]] == [0, 2]
    label = labelled_from_json(out, "out").label
    assert (label.first_error, label.votes) == (1, ((1, 1), (0, 1), (0, 0)))
    assert label.p_correct == (0.75, 0.25, None)
    (rule,) = report["rules"]
    assert (rule["judgements_in"], rule["judgements_out"], rule["faults"]) == (2, 1, {"empty critique": 1})
    assert rule_lines(report) == [
        "critiques: 1 rows in, 1 out (100.0% of the partial); judgements 2 in, 1 out: 1 empty critique"
    ]


def test_only_the_critique_of_the_error_may_be_asked_for(tmp_path: Path, made: Any) -> None:
    row = made.labelled(made.solution(0), made.judgement(3, 1, ["", "that is seven, not eight"]))
    assert len(run(tmp_path, [row], FilterOptions(critiques="error"))[1]) == 1
    assert len(run(tmp_path, [row], FilterOptions(critiques="all"))[1]) == 0


@pytest.mark.parametrize(
    ("first", "verdicts", "gold", "stays"),
    [
        (2, (1, 1, 0), 2, True),
        (-1, (1, 1, 1), -1, True),
        (1, (1, 0), 1, True),
        (1, (1, 0), 2, False),
        (-1, (1, 1, 1), 2, False),
        (2, (1, 1, 0), -1, False),
        (-1, (1, 1), -1, False),
        (None, (1, 1), 2, False),
        (1, (1, 0), None, True),
    ],
)
def test_thinkprms_chains(
    tmp_path: Path, made: Any, first: int | None, verdicts: tuple[int, ...], gold: int | None, stays: bool
) -> None:
    said = tuple(Verdict(i, "correct" if good else "incorrect", "some words on it") for i, good in enumerate(verdicts))
    row = made.solution(0, **({} if gold is None else {"label": gold}))
    options = FilterOptions(complete=True, matches_gold=True)
    _, out = run(tmp_path, [made.labelled(row, Judgement("ok", said, first))], options)
    assert bool(out) == stays


def test_the_gold_label_of_every_step_up_to_the_first_error_counts(tmp_path: Path, made: Any) -> None:
    row = made.solution(0, step_labels=[1, "neutral", 0])
    same = made.labelled(row, made.judgement(3, 2))
    assert len(run(tmp_path, [same], FilterOptions(matches_gold=True))[1]) == 1


def test_a_neutral_verdict_is_not_golds(tmp_path: Path, made: Any) -> None:
    said = (Verdict(0, "correct", "x"), Verdict(1, "neutral", "y"), Verdict(2, "correct", "z"))
    row = made.labelled(made.solution(0, label=-1), Judgement("ok", said, -1))
    report, _ = run(tmp_path, [row], FilterOptions(matches_gold=True))
    assert report["left_out"] == {"neutral where gold is not": {"correct": 1}}


def test_the_preset_of_thinkprm(tmp_path: Path, made: Any) -> None:
    """Gold, length and completeness of chains; then the classes are made equal."""
    rows = []
    for number in range(40):
        first = 0 if number % 4 == 0 else -1
        chain = made.judgement(3, first, tokens=5000 if number in (1, 4) else 900)
        wrong = made.judgement(3, 1, sample=1, tokens=900)
        rows.append(made.labelled(made.solution(number, label=first), chain, wrong))
    options = preset_rules("thinkprm", FilterOptions())
    report, out = run(tmp_path, rows, options)
    firsts = [row["first_error"] for row in out]
    assert firsts.count(0) == firsts.count(-1) == 9
    assert all(len(row["judgements"]) == 1 for row in out)
    assert report["left_out"]["balance"] == {"correct": 20}
    by_name = {one["rule"]: one for one in report["rules"]}
    assert (by_name["reply length"]["judgements_in"], by_name["reply length"]["judgements_out"]) == (80, 78)
    assert by_name["matches gold"]["judgements_out"] == 38
    assert preset_rules("thinkprm", FilterOptions(max_tokens=100, critiques="all")).max_tokens == 100
    with pytest.raises(UsageError, match="there is no preset 'x'; available: thinkprm"):
        preset_rules("x", FilterOptions())


def test_tokens_are_estimated_where_none_are_recorded(tmp_path: Path, made: Any) -> None:
    said = made.judgement(1, -1, ["x" * 400])
    assert reply_tokens(said) == 100
    report, _ = run(tmp_path, [made.labelled(made.solution(0, 1), said)], FilterOptions(max_tokens=200))
    assert report["replies_with_estimated_tokens"] == 1


def test_a_reading_that_had_to_forgive_is_not_plain(tmp_path: Path, made: Any) -> None:
    rows = [
        made.labelled(made.solution(0), made.judgement(3, -1, notes=("a number was missing",))),
        made.labelled(made.solution(1), made.judgement(3, -1)),
    ]
    report, out = run(tmp_path, rows, FilterOptions(forgiven=False))
    assert [row["id"] for row in out] == ["s1"]
    assert report["left_out"] == {"read with forgiveness": {"correct": 1}}


def test_rows_without_judgements_pass_rules_about_them_and_are_said(tmp_path: Path, made: Any) -> None:
    write_records(tmp_path / "in.jsonl", [made.solution(0, label=1)])
    told: list[str] = []
    report = filter_rows(tmp_path / "in.jsonl", tmp_path / "o.jsonl", FilterOptions(critiques="all"), told.append)
    assert report["rows_out"] == report["rows_without_judgements"] == 1
    assert told == ["1 of 1 rows have no judgements; critiques do not apply to them"]
    slim = {**made.judged(made.solution(0), 1), "judgements": []}
    with pytest.raises(InputError, match="their agreement is unknown"):
        run(tmp_path, [slim], FilterOptions(min_agreement=0.5))


def test_training_rows_and_published_formats_are_filtered_as_well(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "completions": ["a"] * n, "labels": [True] * n} for n in (1, 2, 3)]
    _, out = run(tmp_path, rows, FilterOptions(max_steps=2))
    assert out == rows[:2]
    tagged = [{"input": "p Step 1: s ки\nStep 2: t ки", "label": "p Step 1: s +\nStep 2: t -", "task": "GSM8K"}]
    _, out = run(tmp_path, tagged, FilterOptions(max_steps=2))
    assert (out[0]["problem"], out[0]["steps"], out[0]["label"]) == ("p", ["s", "t"], 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no rule is asked for"),
        ({"critiques": "some"}, "--critiques is 'some'"),
        ({"max_steps": 0}, "--max-steps is 0; it must be at least 1"),
        ({"min_agreement": 2}, "--min-agreement is 2; it must be at least 0 and at most 1"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        filter_rows(tmp_path / "in", tmp_path / "out", FilterOptions(**options))
