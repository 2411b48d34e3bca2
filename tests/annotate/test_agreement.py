"""Agreement by worked numbers; what people agree on is merged, what they do not goes back to the page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from critic_prm.annotate.agreement import compare, merge
from critic_prm.data.human import Annotated, HumanAnswer, answer_to_json, read_annotations
from critic_prm.data.judgement import Verdict
from critic_prm.data.trajectory import Step, Trajectory
from tests import command
from tests.annotate.serving import lines, request, served
from tests.report.making import judged, saved


def said(name: str, marks: Mapping[str, str | None], **more: Any) -> dict[str, Annotated]:
    """Answers by solution: "cci" is correct, correct, incorrect; None is skipped. All solutions have four steps."""
    words: dict[str, Any] = {"c": "correct", "i": "incorrect", "n": "neutral"}
    found = {}
    for key, letters in marks.items():
        verdicts = tuple(Verdict(step, words[letter]) for step, letter in enumerate(letters or ""))
        first = None if letters is None else letters.find("i")
        trajectory = Trajectory(key, f"problem {key}", tuple(Step(f"{key} {n}") for n in range(4)))
        found[key] = Annotated(trajectory, HumanAnswer(first, name, "", verdicts, skipped=letters is None, **more))
    return found


ADA = {"p": "cccc", "q": "cci", "r": "i", "s": "cccc", "t": None}
BOB = {"p": "cccc", "q": "cci", "r": "ccci", "s": "cncc", "t": "i"}


def test_agreement_worked() -> None:
    steps, first, erroneous = compare(said("ada", ADA), said("bob", BOB), replicates=400)
    # steps: p 4 of 4, q 3 of 3, r 0 of 1, s 3 of 4
    assert steps.items == 12
    assert steps.alike == pytest.approx(10 / 12)
    # ada: 10 c, 2 i; bob: 10 c, 1 i, 1 n; by chance (100 + 2) of 144
    assert steps.kappa == pytest.approx((10 * 12 - 102) / (144 - 102))
    # ada: -1, 2, 0, -1; bob: -1, 2, 3, -1; by chance (4 + 1) of 16
    assert (first.items, first.alike) == (4, 0.75)
    assert first.kappa == pytest.approx((3 * 4 - 5) / (16 - 5))
    assert (erroneous.alike, erroneous.kappa) == (1.0, 1.0)
    assert steps.alike_interval.low is not None
    assert steps.alike_interval.low < 10 / 12 < (steps.alike_interval.high or 0)
    nothing = compare(said("ada", {"t": None}), said("bob", BOB))
    assert [(one.items, one.alike, one.kappa) for one in nothing] == [(0, None, None)] * 3


def test_intervals_of_kappa_cover_it() -> None:
    """Two people who are alike on half of the solutions and independent on the others: kappa is one half."""
    kinds = ("cccc", "i", "ci", "cci")
    ada = {str(n): kinds[n % 4] for n in range(320)}
    bob = {str(n): kinds[n % 4] if n < 160 else kinds[n // 4 % 4] for n in range(320)}
    _, first, _ = compare(said("ada", ada), said("bob", bob), replicates=400)
    assert first.kappa == pytest.approx(0.5)
    assert first.kappa_interval.low == pytest.approx(0.43, abs=0.02)
    assert first.kappa_interval.high == pytest.approx(0.57, abs=0.02)


def test_merged_where_people_agree() -> None:
    ada, bob = said("ada", {**ADA, "u": "cci"}), said("bob", BOB)
    carl = said("carl", {"p": "cccc", "q": "ccin"})
    merged = merge([("ada", ada), ("bob", bob), ("carl", carl)])
    answers = {row["id"]: row["human"] for row in merged.rows}
    assert merged.counts == {"agree": 2, "disagree": 2, "by one": 2}
    assert {key: answer["first_error"] for key, answer in answers.items()} == {
        "p": -1, "q": 2, "r": None, "s": None, "t": 0, "u": 2,
    }  # fmt: skip
    assert answers["p"]["by"] == "ada, bob, carl"
    assert [verdict["verdict"] for verdict in answers["q"]["verdicts"]] == ["correct", "correct", "incorrect", "neutral"]
    assert [row["id"] for row in merged.disagreements] == ["r", "s"]
    ruled = merge([("ada", ada), ("bob", bob)], said("eve", {"r": "ci", "p": "i"}))
    by = {row["id"]: (row["human"]["by"], row["human"]["first_error"]) for row in ruled.rows}
    assert (by["r"], by["p"], by["s"]) == (("eve", 1), ("ada, bob", -1), ("", None))


def test_comments_of_both_are_kept() -> None:
    one, other = said("ada", {"p": "ci"}), said("bob", {"p": "ci"})
    for name, answers, text in (("ada", one, "sign"), ("bob", other, "factor")):
        row = answers["p"]
        verdicts = (row.answer.verdicts[0], Verdict(1, "incorrect", text))
        answers["p"] = Annotated(row.trajectory, HumanAnswer(1, name, f"by {name}", verdicts, {3: text}))
    (merged,) = merge([("ada", one), ("bob", other)]).rows
    assert merged["human"]["verdicts"][1]["critique"] == "ada: sign\nbob: factor"
    assert merged["human"]["verdicts"][2] == {"step": 3, "verdict": None, "critique": "ada: sign\nbob: factor"}
    assert merged["human"]["note"] == "ada: by ada\nbob: by bob"


def written(path: Path, rows: list[dict[str, Any]], answers: dict[str, int | None], by: str) -> Path:
    """The file of a person's answers: the first error by id."""
    wanted = [row for row in rows if row["id"] in answers]
    bare = [{name: row[name] for name in ("id", "problem", "steps")} for row in wanted]
    return saved(path, [{**row, "human": answer_to_json(HumanAnswer(answers[row["id"]], by))} for row in bare])


def test_two_people_a_third_and_gold_labels(tmp_path: Path) -> None:
    rows = [judged(f"t{n}", ["x", "y", "z"], n % 3 - 1) for n in range(6)]
    labels = saved(tmp_path / "labels.jsonl", rows)
    ada = written(tmp_path / "ada.jsonl", rows, {"t0": -1, "t1": 0, "t2": 1, "t3": None}, "ada")
    bob = written(tmp_path / "bob.jsonl", rows, {"t0": -1, "t1": 2, "t2": 1, "t4": 0}, "bob")
    merged, open_ = tmp_path / "merged.jsonl", tmp_path / "open.jsonl"
    done = command.invoke("labels", "merge", ada, bob, "-o", merged, "--disagreements", open_, columns=120)
    assert "ada and bob, with 95% intervals by problem" in done.stdout
    assert "first error" in done.stdout
    assert "66.7" in done.stdout
    assert "agree: 2, disagree: 1, by one: 1, undecided: 1" in done.stdout
    assert [row["id"] for row in lines(open_)] == ["t1"]

    with served(open_, tmp_path / "open.eve.jsonl", by="eve") as server:
        shown = request(server, "solution?at=0")[1]
        assert [(one["name"], one["first_error"]) for one in shown["people"]] == [("ada", 0), ("bob", 2)]
        assert shown["human"] is None
        marks = [{"step": 0, "verdict": "correct"}, {"step": 1, "verdict": "correct"}, {"step": 2, "verdict": "incorrect"}]
        reply = request(server, "mark", {"at": 0, "revision": 0, "verdicts": marks})[1]
        assert reply["human"]["seen"] == ["people"]

    words = ["labels", "merge", ada, bob, "-o", merged, "--adjudicated", tmp_path / "open.eve.jsonl", "--overwrite", "--json"]
    found = json.loads(command.invoke(*words).stdout)
    assert found["solutions"] == {"agree": 2, "adjudicated": 1, "undecided": 1, "by one": 1}
    assert found["agreement"]["ada and bob"][1]["alike"] == pytest.approx(2 / 3)
    assert read_annotations(merged).keys() == {*read_annotations(ada), *read_annotations(bob)}

    gold = tmp_path / "gold.jsonl"
    told = command.invoke("labels", "import", labels, merged, "--gold", "-o", gold)
    assert "4 rows: 4 answered by a person, 1 not answered yet" in told.stderr
    got = lines(gold)
    assert {row["id"]: row["label"] for row in got} == {"t0": -1, "t1": 2, "t2": 1, "t4": 0}
    assert got[1]["step_labels"] == [1.0, 1.0, 0.0]
    assert (got[1]["first_error"], got[1]["critic"]["model"]) == (0, "gpt-5.4-mini")  # the judge's label is still there
