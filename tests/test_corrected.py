"""A step that the solution itself corrects: from the judge's reply to labels, training rows, formats and people's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.formats.common import Corrected, Options, Report
from critic_prm.data.formats.convert import read_trajectories, writable, write_trajectories
from critic_prm.data.human import HumanAnswer, with_gold
from critic_prm.data.judgement import Judgement, Label, Verdict, VerdictValue, combine, first_error_of
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.datasets.build import from_gold, from_label, training_row
from critic_prm.datasets.export import export
from critic_prm.datasets.filters import FilterOptions, judgement_rules
from critic_prm.datasets.rows import Row, read_rows
from critic_prm.errors import InputError
from critic_prm.providers.provider import Reply, TokenLogprob
from critic_prm.styles.prompt import expect, open_style
from critic_prm.styles.reader import read_reply
from distill.data import row_from_json
from tests.command import invoke

WORDS: Mapping[str, VerdictValue] = {"+": "correct", "-": "incorrect", "c": "corrected", "0": "neutral"}
TRACE = Trajectory("t", "What is 6*7?", tuple(Step(text) for text in ("6*7=41.", "Wait, that is 42.", "So 42.")))
REPLY = "\n\n".join(
    f"Step {number}: {said}\nThe step is \\boxed{{{verdict}}}"
    for number, said, verdict in (
        (1, "Wrong, step 2 repairs it.", "corrected"),
        (2, "It is.", "correct"),
        (3, "Yes.", "correct"),
    )
)


def judgement(marks: str, steps: int = 3, sample: int = 0) -> Judgement:
    verdicts = tuple(Verdict(step, WORDS[mark], f"critique of {step}") for step, mark in enumerate(marks))
    return Judgement("ok", verdicts, first_error_of(verdicts, steps), sample)


def label(*marks: str) -> Label:
    return combine([judgement(each, 3, sample) for sample, each in enumerate(marks)], 3)


def gold(*labels: StepLabel) -> Trajectory:
    return Trajectory("t", "p", tuple(Step(f"s{n}") for n in range(len(labels))), step_labels=labels)


def test_the_style_for_traces_offers_the_verdict_and_stops_at_an_error_that_stands() -> None:
    style = open_style("trace")
    reading = read_reply(style, expect(style, TRACE), Reply(REPLY, "stop", {}))
    assert (reading.status, [v.value for v in reading.verdicts]) == ("ok", ["corrected", "correct", "correct"])
    stopped = REPLY.replace("boxed{correct}", "boxed{incorrect}", 1)
    reading = read_reply(style, expect(style, TRACE), Reply(stopped, "stop", {}))
    assert (reading.status, [v.value for v in reading.verdicts]) == ("ok", ["corrected", "incorrect"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("agent", "It took that back.\n\nVerdict: corrected"),
        ("json", '{"steps": [{"step": 1, "critique": "taken back", "verdict": "corrected"}]}'),
        ("stepwise", "Step 1: taken back.\nThe step is \\boxed{\\text{Withdrawn}}"),
    ],
)
def test_every_reader_with_verdict_words_reads_it(name: str, text: str) -> None:
    style, one = open_style(name), Trajectory("t", "p", (Step("s"),))
    reading = read_reply(style, expect(style, one, 0 if style.per == "step" else None), Reply(text, "stop", {}))
    assert [v.value for v in reading.verdicts] == ["corrected"]


def test_its_probability_is_that_of_not_being_wrong() -> None:
    start = "Taken back.\n\nVerdict:"
    laid = (TokenLogprob(start, 0.0), TokenLogprob(" corrected", -0.3567, ((" correct", -2.3026), (" incorrect", -1.6094))))
    style, one = open_style("agent"), Trajectory("t", "p", (Step("s"),))
    (verdict,) = read_reply(style, expect(style, one, 0), Reply(f"{start} corrected", "stop", {}, logprobs=laid)).verdicts
    assert verdict.p_correct == pytest.approx(0.8, abs=1e-3)


def test_a_corrected_vote_is_one_for_correct_and_never_an_error() -> None:
    assert label("c++") == Label((1.0,) * 3, ((1, 1),) * 3, -1, "ok", (judgement("c++"),), "votes")
    mixed = label("c++", "-", "0+-")
    assert (mixed.p_correct, mixed.votes, mixed.first_error) == ((0.5, 1.0, 0.5), ((1, 2), (2, 2), (1, 2)), None)


@pytest.mark.parametrize(
    ("corrected", "labels", "votes"),
    [
        ("keep", (1.0, 1.0, 1.0), ((2, 2),) * 3),
        ("flip", (0.5, 0.0, 1.0), ((1, 2), (0, 2), (2, 2))),
        ("drop", (1.0, None, 1.0), ((1, 1), (0, 0), (2, 2))),
    ],
)
def test_training_targets(corrected: Corrected, labels: Any, votes: Any) -> None:
    got = from_label(label("cc+", "+c+"), corrected=corrected)
    assert not isinstance(got, str)
    assert (got.labels, got.votes, got.first_error, got.kind) == (labels, votes, -1, "correct")
    row = training_row(TRACE, got, "x")
    assert row.get("first_error") == (None if corrected == "keep" else -1)
    assert row_from_json(row, "here").first_error() == -1


@pytest.mark.parametrize(("corrected", "second"), [("keep", 1.0), ("flip", 0.0), ("drop", None)])
@pytest.mark.parametrize("soft", [True, False])
def test_targets_from_gold_labels(corrected: Corrected, second: float | None, soft: bool) -> None:
    got = from_gold(gold(1.0, "corrected", 0.0, 1.0), corrected=corrected, soft=soft)
    assert not isinstance(got, str)
    assert (got.labels, got.first_error) == ((1.0, second, 0.0, None), 2)


def test_a_flipped_step_does_not_become_the_error_of_a_solution_whose_error_is_unknown() -> None:
    got = from_gold(gold(1.0, "corrected", None), corrected="flip")
    assert not isinstance(got, str)
    assert (got.labels, got.first_error) == ((1.0, None, None), None)


def test_a_file_without_judgements_has_already_counted_it() -> None:
    full = label("c++")
    slim = Label(full.p_correct, full.votes, full.first_error, "ok", ())
    assert from_label(slim) == from_label(slim, corrected="keep")
    with pytest.raises(InputError, match=r"here: the row has no judgements.*--corrected keep"):
        from_label(slim, corrected="flip", where="here")


SOLUTION: tuple[StepLabel, ...] = (1.0, "corrected", 1.0)


@pytest.mark.parametrize("name", sorted({*writable()} - {"native", "chat", "thinkprm"}))
@pytest.mark.parametrize("corrected", ["keep", "flip", "drop", None])
def test_no_format_makes_it_the_reason_for_an_unsound_row(tmp_path: Path, name: str, corrected: Corrected | None) -> None:
    """What is written reads back as the option says, up to what the format cannot hold; the loss is counted."""
    path, report = tmp_path / "x.jsonl", Report()
    needs = {"messages": [{"role": "user", "content": "p"}]} if name == "agentprocessbench" else {}
    one = Trajectory("t", "p", tuple(Step(f"s{n}") for n in range(3)), step_labels=SOLUTION, meta=needs)
    write_trajectories(path, [one], name, Options(corrected=corrected), report)
    counted = {**report.unsaid, **report.hidden, **report.dropped}
    what = {"keep": "written as correct", "flip": "written as incorrect"}.get(str(corrected), "without a label")
    assert counted[f"corrected steps ({what})"] == 1
    if report.written:
        (back,) = read_trajectories(path, name, Options(after_error="keep"))
        second = back.gold()[1] if len(back.gold()) > 1 else None
        assert second != "corrected"
        if corrected == "keep":
            assert (back.first_error(), second) == (-1, 1.0)
        if back.first_error() == 1:
            assert corrected == "flip", "only a flipped step is incorrect"


@pytest.mark.parametrize(("corrected", "second"), [(None, "corrected"), ("keep", "corrected"), ("flip", 0.0), ("drop", None)])
def test_a_native_file_keeps_it_and_the_first_error_beside_it(tmp_path: Path, corrected: Any, second: StepLabel) -> None:
    path = tmp_path / "x.jsonl"
    write_trajectories(path, [gold(*SOLUTION)], "native", Options(corrected=corrected))
    (back,) = read_trajectories(path)
    assert (back.step_labels, back.first_error()) == ((1.0, second, 1.0), -1)


def saved(path: Path, *rows: Mapping[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Labels of `critic-prm label` for a trace that corrects itself and for one that does not."""
    texts = [step.text for step in TRACE.steps]
    rows = [{"id": name, "problem": f"{name}: {TRACE.problem}", "steps": texts} for name in ("fine", "bad")]
    bad = "Step 1: Wrong.\nThe step is \\boxed{incorrect}"
    source = saved(tmp_path / "in.jsonl", *rows)
    replies = saved(tmp_path / "replies.jsonl", {"contains": "fine:", "text": REPLY}, {"contains": "bad:", "text": bad})
    out = tmp_path / "labels.jsonl"
    words = ("label", source, "-o", out, "--db", tmp_path / "c.db", "--judge", f"scripted/{replies}", "--style", "trace")
    done = invoke(*words)
    assert done.exit_code == 0, done.stderr
    return out


def test_label_build_and_export(labelled: Path, tmp_path: Path) -> None:
    fine, bad = map(json.loads, labelled.read_text("utf-8").splitlines())
    assert (fine["first_error"], fine["p_correct"], bad["first_error"]) == (-1, [1.0, 1.0, 1.0], 0)
    assert fine["judgements"][0]["verdicts"][0]["verdict"] == "corrected"
    shown = invoke("explain", labelled, "fine")
    assert "corrected" in shown.stdout
    for corrected, first in (("keep", 1.0), ("flip", 0.0), ("drop", None)):
        folder = tmp_path / corrected
        done = invoke("dataset", "build", labelled, "-o", folder, "--split", "1,0,0", "--corrected", corrected)
        assert done.exit_code == 0, done.stderr
        (row,) = (
            row for row in map(json.loads, (folder / "train.jsonl").read_text("utf-8").splitlines()) if row["id"] == "fine"
        )
        assert row["labels"] == [first, 1.0, 1.0]
        kinds = {row.id: (row.kind, row.first_error) for row in read_rows(folder / "train.jsonl")}
        assert kinds == {"fine": ("correct", -1), "bad": ("erroneous", 0)}
        done = invoke(
            "dataset", "export", labelled, "--to", "fover", "-o", tmp_path / f"{corrected}.jsonl", "--corrected", corrected
        )
        assert done.exit_code == 0, done.stderr
        row = json.loads((tmp_path / f"{corrected}.jsonl").read_text("utf-8").splitlines()[0])
        assert row["error_labels"] == [None if first is None else bool(first), True, True]


def test_a_chain_ends_at_an_error_so_only_keep_can_write_it(labelled: Path, tmp_path: Path) -> None:
    report = export(labelled, "thinkprm", tmp_path / "x.jsonl")
    assert report["left_out"] == {"a corrected verdict in the chain": {"correct": 1}}
    export(labelled, "thinkprm", tmp_path / "x.jsonl", Options(corrected="keep"))
    chain = json.loads((tmp_path / "x.jsonl").read_text("utf-8").splitlines()[0])["cot"]
    assert chain.startswith("Step 1: Wrong, step 2 repairs it. The step is \\boxed{correct}")


def test_gold_of_a_person_keeps_the_word() -> None:
    answer = HumanAnswer(-1, "ada", verdicts=(Verdict(0, "corrected"), Verdict(1, "correct"), Verdict(2, "correct")))
    marked = with_gold(TRACE, answer)
    assert (marked.label, marked.step_labels, marked.first_error()) == (-1, ("corrected", 1.0, 1.0), -1)


def test_a_corrected_step_agrees_with_gold_where_gold_has_no_error() -> None:
    rule = judgement_rules(FilterOptions(matches_gold=True))["matches gold"]
    trajectory = gold(1.0, 1.0, 1.0)
    row = Row("here", {}, "label file", trajectory, (None,) * 3, -1, -1)
    assert rule(row, judgement("c++")) == ""
