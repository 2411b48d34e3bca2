"""Answers are on disk before they count, survive a crash and a second tab, and become labels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from critic_prm.annotate.answers import AnswerFile
from critic_prm.annotate.server import AnnotationServer
from critic_prm.annotate.solutions import Selection, Solutions, uncertainty
from critic_prm.cli import annotate as command_module
from critic_prm.data.human import (
    HumanAnswer,
    answer_from_json,
    answer_key,
    answer_to_json,
    read_annotations,
    read_answers,
    with_gold,
)
from critic_prm.data.judgement import Label, Verdict
from critic_prm.data.label_rows import read_labels
from critic_prm.data.trajectory import trajectory_from_json
from critic_prm.errors import InputError, UsageError
from tests import command
from tests.annotate.serving import lines, request, served
from tests.report.making import judged, saved

ROW = {"id": "a", "problem": "1+1?", "steps": ["1+1=2", "so 3"]}


def verdicts(*values: str | None) -> list[dict[str, Any]]:
    return [{"step": step, "verdict": value, "critique": ""} for step, value in enumerate(values)]


def test_an_answer_goes_there_and_back() -> None:
    said = (Verdict(0, "correct"), Verdict(2, "incorrect", "1 + 1 is 2"))
    answer = HumanAnswer(
        None, "ada", "hm", said, {1: "unclear"}, seen=("judge",), looked=("judge", "reference"), at="2026-01-01"
    )
    assert answer_from_json(answer_to_json(answer), 3, "here") == answer


@pytest.mark.parametrize(
    "wrong",
    [
        {"verdicts": "correct"},
        {"verdicts": [{"step": 2, "verdict": "correct"}]},
        {"verdicts": [{"step": True, "verdict": "correct"}]},
        {"verdicts": [{"step": 0, "verdict": "right"}]},
        {"verdicts": [*verdicts("correct"), *verdicts("correct")]},
        {"verdicts": [{"step": 0, "verdict": None, "critique": 3}]},
        {"verdicts": ["correct", "correct"]},
        {"first_error": 0, "verdicts": verdicts("correct", "incorrect")},
    ],
)
def test_a_damaged_answer_is_refused_by_its_place(wrong: dict[str, Any], tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jsonl", [{**ROW, "human": wrong}])
    with pytest.raises(InputError, match=r"a\.jsonl:1"):
        read_annotations(path)


def test_the_last_answer_counts_and_verdicts_become_gold(tmp_path: Path) -> None:
    file = AnswerFile(tmp_path / "ada.jsonl", "ada")
    key = answer_key(trajectory_from_json(ROW, "here"))
    assert file.write(key, ROW, HumanAnswer(-1, "ada", verdicts=(Verdict(0, "correct"), Verdict(1, "correct")))) == 1
    late = HumanAnswer(0, "ada", verdicts=(Verdict(0, "incorrect"), Verdict(1, "neutral")), at="now")
    assert file.write(key, ROW, late) == 2
    file.close()
    first, second = lines(tmp_path / "ada.jsonl")
    assert (first["problem"], "problem" in second) == ("1+1?", False)
    (row,) = read_annotations(tmp_path / "ada.jsonl").values()
    assert row.answer == late
    gold = with_gold(row.trajectory, row.answer)
    assert (gold.label, gold.step_labels) == (0, (0.0, "neutral"))


def test_a_crash_loses_nothing_that_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = saved(tmp_path / "in.jsonl", [ROW]), tmp_path / "ada.jsonl"
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    with served(source, out) as server:
        status, reply, _ = request(server, "mark", {"at": 0, "revision": 0, "verdicts": verdicts("correct", "incorrect")})
        assert (status, reply["state"], reply["counts"]) == (200, 2, [0, 0, 1, 0])
        assert synced == [out.stat().st_size]
    whole = out.read_bytes()
    for torn in (b'{"id":"a","key"', b'{"id":"a","human":{"first_error":null'):
        out.write_bytes(whole + torn)
        with served(source, out) as server:
            assert request(server, "solution?at=0")[1]["human"]["first_error"] == 1
        assert out.read_bytes() == whole
    out.write_bytes(whole.rstrip(b"\n"))
    AnswerFile(out, "ada").close()
    assert out.read_bytes() == whole


def test_a_full_disk_leaves_a_file_that_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = saved(tmp_path / "in.jsonl", [ROW]), tmp_path / "ada.jsonl"
    write, once = os.write, [True]

    def half(file: int, data: bytes) -> int:
        if len(data) < 100:
            return write(file, data)
        if once.pop():
            once.append(False)
            return write(file, data[:50])
        raise OSError(28, "No space left on device")

    with served(source, out) as server:
        monkeypatch.setattr(os, "write", half)
        status, reply, _ = request(server, "mark", {"at": 0, "revision": 0, "verdicts": verdicts("correct", "correct")})
        assert (status, "No space left" in reply["problem"]) == (422, True)
        assert out.read_bytes() == b""
        monkeypatch.setattr(os, "write", write)
        assert request(server, "mark", {"at": 0, "revision": 0, "verdicts": verdicts("correct", "correct")})[0] == 200
    assert read_answers(out).open == 0


def test_a_second_tab_cannot_overwrite_what_it_has_not_seen(tmp_path: Path) -> None:
    source, out = saved(tmp_path / "in.jsonl", [ROW]), tmp_path / "ada.jsonl"
    with served(source, out) as server:
        assert request(server, "mark", {"at": 0, "revision": 0, "verdicts": verdicts("incorrect")})[0] == 200
        status, reply, _ = request(server, "mark", {"at": 0, "revision": 0, "verdicts": verdicts("correct", "correct")})
        assert status == 409
        assert reply["current"]["human"]["verdicts"] == verdicts("incorrect")
        assert len(lines(out)) == 1
        with pytest.raises(UsageError, match="open in another critic-prm annotate"):
            AnswerFile(out, "ada")


def test_somebody_else_s_file_is_left_alone(tmp_path: Path) -> None:
    out = saved(tmp_path / "ada.jsonl", [{**ROW, "human": {"first_error": 1, "by": "ada", "at": "2026-01-01T00:00:00Z"}}])
    with pytest.raises(UsageError, match="'ada', not 'bob'"):
        AnswerFile(out, "bob")
    labels = saved(tmp_path / "labels.jsonl", [ROW])
    before = labels.read_bytes()
    with pytest.raises(InputError, match='"human" is None'):
        AnswerFile(labels, "bob")
    assert labels.read_bytes() == before
    with pytest.raises(UsageError, match="is FILE itself"):
        command.invoke("annotate", labels, "-o", labels)


def test_what_was_seen_before_the_answer_is_told_from_what_was_seen_after(tmp_path: Path) -> None:
    rows = [judged(name, ["x", "y"], 1, gold_answer="7", critique=f"says {name}") for name in "ab"]
    source, out = saved(tmp_path / "in.jsonl", rows), tmp_path / "ada.jsonl"
    with served(source, out) as server:
        shown = request(server, "solution?at=0")[1]
        assert shown["hidden"] == ["judge", "reference"]
        assert "says a" not in str(shown)
        assert "7" not in str(shown["steps"])
        reply = request(server, "reveal", {"at": 0, "revision": 0, "what": "judge"})[1]
        assert reply["shown"][0]["verdicts"][1] == [1, "incorrect", None, "says a"]
        request(server, "mark", {"at": 0, "revision": reply["revision"], "verdicts": verdicts("incorrect")})
        reply = request(server, "mark", {"at": 1, "revision": 0, "verdicts": verdicts("incorrect")})[1]
        reply = request(server, "reveal", {"at": 1, "revision": reply["revision"], "what": "reference"})[1]
        assert reply["shown"] == "7"
        request(server, "mark", {"at": 1, "revision": reply["revision"], "verdicts": verdicts("incorrect"), "note": "hm"})
    before, after = (row.answer for row in read_annotations(out).values())
    assert (before.seen, before.looked) == (("judge",), ("judge",))
    assert (after.seen, after.looked, after.note) == ((), ("reference",), "hm")


def test_the_most_uncertain_come_first(tmp_path: Path) -> None:
    rows = [judged(name, ["x", "y"], -1, samples=4, problem=name) for name in "abcd"]
    rows[1] |= {"p_correct": [0.75, 1.0], "votes": [[3, 4], [4, 4]]}
    rows[2]["judgements"][0]["verdicts"][0]["spread"] = 0.5
    rows[3] = judged("d", ["x", "y"], None, status="refused", problem="d")
    source = saved(tmp_path / "in.jsonl", [*rows, {**rows[0], "id": "e"}])
    with served(source, tmp_path / "o.jsonl", selection=Selection(order="uncertain", limit=3)) as server:
        entries = request(server, "rows?start=0")[1]["rows"]
        assert [entry[1] for entry in entries] == ["c", "d", "b"]
        assert server.session.solutions.duplicates == 1
    with pytest.raises(UsageError, match="no label is uncertain"):
        Solutions([trajectory_from_json(ROW, "here")], Selection(order="uncertain"))


def test_uncertainty_worked() -> None:
    def label(*p: float | None, first: int | None = -1) -> Label:
        return Label(tuple(p), ((1, 1),) * len(p), first, "ok", ())

    assert uncertainty(label(0.9, 0.6)) == pytest.approx(0.8)
    assert uncertainty(label(0.9, 0.2, 0.5, first=1)) == pytest.approx(0.4)  # later steps do not move the first error
    assert uncertainty(label(1.0, 0.0, first=0), [(0, 0.3), (1, 0.5)]) == pytest.approx(0.6)
    assert uncertainty(label(1.0, None)) == 0.0


def test_an_escalation_file_is_annotated_and_imported(tmp_path: Path) -> None:
    rows = [{"id": str(n), "problem": f"p{n}", "steps": ["2 + 2 = 4", "so 5", "so 6"]} for n in range(3)]
    facts = {"steps": [1], "first_critic": 2, "p_correct": [0.9, 0.5, 0.1], "judges": [{"judge": "m", "status": "refused"}]}
    blank = {"first_error": None, "by": "", "note": ""}
    answers = [blank, blank, {**blank, "first_error": -1, "by": "bob"}]
    filled = [{**row, "escalated": facts, "human": answer} for row, answer in zip(rows, answers, strict=True)]
    escalate = saved(tmp_path / "escalate.jsonl", filled)
    labels, out = tmp_path / "labels.jsonl", tmp_path / "ada.jsonl"
    saved(tmp_path / "in.jsonl", rows)
    command.invoke("label", tmp_path / "in.jsonl", "-o", labels)
    with served(escalate, out) as server:
        shown = request(server, "solution?at=0")[1]
        assert (shown["doubt"], shown["human"]) == ([1], None)
        marks = [*verdicts("correct", "incorrect"), {"step": 2, "verdict": None, "critique": "follows from step 2"}]
        marks[1]["critique"] = "2 + 2 is 4"
        assert request(server, "mark", {"at": 0, "revision": 0, "verdicts": marks})[1]["state"] == 2
        assert request(server, "mark", {"at": 1, "revision": 0, "verdicts": [], "skipped": True})[1]["counts"] == [0, 0, 2, 1]
    done = command.invoke("labels", "import", labels, out, "-o", tmp_path / "final.jsonl")
    assert "3 rows: 2 answered by a person, 1 not answered yet" in done.stderr
    first, second, third = read_labels(tmp_path / "final.jsonl")
    assert (first.label.first_error, first.label.p_correct, first.critic) == (
        1,
        (1.0, 0.0, None),
        {"provider": "human", "by": "ada"},
    )
    assert [v.critique for v in first.label.judgements[0].verdicts] == ["", "2 + 2 is 4"]
    assert (second.critic["provider"], third.critic["by"], third.label.first_error) == ("rules", "bob", -1)


@pytest.mark.parametrize(
    ("source", "name", "path"),
    [
        ("a/labels.jsonl", "ada", "a/labels.ada.jsonl"),
        ("x.jsonl.gz", "../J. Doe", "x.J.-Doe.jsonl"),
        ("-", "", "annotations.annotator.jsonl"),
    ],
)
def test_answers_lie_beside_the_file(source: str, name: str, path: str) -> None:
    assert command_module._beside(source, name) == Path(path)


def test_the_command_says_where_and_how_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = saved(tmp_path / "labels.jsonl", [judged("a", ["x"], -1), judged("b", ["x"], -1), judged("a2", ["x"], -1)])
    places = iter(range(2))

    def interrupted(server: AnnotationServer) -> None:
        server.session.mark(next(places), 0, {"verdicts": verdicts("correct")})
        raise KeyboardInterrupt

    monkeypatch.setattr(AnnotationServer, "serve_forever", interrupted)
    words = ("annotate", source, "--annotator", "ada", "--limit", 2)
    first, again = command.invoke(*words), command.invoke(*words)
    out = tmp_path / "labels.ada.jsonl"
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert f"2 solutions; 0 decided in {out}" in first.stderr
    assert "open http://127.0.0.1:" in first.stderr
    assert f"2 solutions; 1 decided in {out}" in again.stderr
    assert f"2 of 2 decided, 0 skipped: {out}" in again.stderr
    for wrong in ("", "x" * 101):
        with pytest.raises(UsageError, match="--annotator is"):
            command.invoke("annotate", source, "--annotator", wrong)


def test_answers_are_not_written_through_a_link(tmp_path: Path) -> None:
    """A folder from somebody else had a link under the name of the answers, and a file of the user got their lines."""
    elsewhere, out = tmp_path / "profile", tmp_path / "labels.ada.jsonl"
    out.symlink_to(elsewhere)
    with pytest.raises(InputError, match="this is a link"):
        AnswerFile(out, "ada")
    assert not elsewhere.exists()
    os.mkfifo(elsewhere)
    with pytest.raises(InputError, match="not a regular file"):
        AnswerFile(elsewhere, "ada")


@pytest.mark.parametrize("verdict", [{"spread": 0.5}, {"step": "x", "spread": 0.5}])
def test_the_order_of_damaged_judgements_is_that_of_their_labels(verdict: dict[str, Any]) -> None:
    row = judged("a", ["x", "y"], 1)
    row["judgements"][0]["verdicts"] = [verdict]
    with pytest.raises(UsageError, match="no label is uncertain"):
        Solutions([trajectory_from_json(row, "a")], Selection("uncertain"))
