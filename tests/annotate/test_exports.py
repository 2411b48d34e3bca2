"""Label Studio and Argilla get what their documentation describes, and Label Studio's export comes back as answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from critic_prm.annotate.label_studio import ERROR, NO_ERROR
from critic_prm.annotate.people import read_people
from critic_prm.data.label_rows import read_labels
from critic_prm.errors import InputError, UsageError
from tests import command
from tests.annotate.serving import lines
from tests.report.making import judged, saved


def labelled(folder: Path) -> Path:
    steps = ["one", {"text": "two 𝒙", "observation": "seen"}, "three <b> & ]]>"]
    rows = [judged(f"t{n}", steps, n - 1, critique=f"says {n}", gold_answer="7", final_answer="4") for n in range(3)]
    rows[1]["judgements"][0]["verdicts"][0]["p_correct"] = 0.25
    rows.append(judged("t3", steps, None, status="refused"))
    return saved(folder / "labels.jsonl", rows)


def tasks_of(folder: Path, *words: str) -> list[dict[str, Any]]:
    out, setup = folder / "tasks.json", folder / "config.xml"
    command.invoke(
        "labels", "export", labelled(folder), "--to", "label-studio", "-o", out, "--setup", setup, "--overwrite", *words
    )
    return list(json.loads(out.read_text()))


def exported(task: Mapping[str, Any], number: int, *annotations: Mapping[str, Any]) -> dict[str, Any]:
    """A task as Label Studio exports it: https://labelstud.io/guide/task_format."""
    times = {"created_at": "2026-03-09T21:52:49.513742Z", "updated_at": "2026-03-09T22:16:08.746926Z"}
    return {
        "id": number,
        **times,
        "project": 83,
        "data": task["data"],
        "annotations": [
            {
                "id": 1000 + place,
                "was_cancelled": False,
                "ground_truth": False,
                **times,
                "lead_time": 4.288,
                "result_count": 0,
                "task": number,
                "completed_by": 10,
                **annotation,
            }
            for place, annotation in enumerate(annotations)
        ],
        "predictions": [],
    }


def region(step: int, label: str, comment: str = "", to: int | None = None) -> list[dict[str, Any]]:
    """A marked region, as https://labelstud.io/tags/paragraphs shows its result, and the comment on it."""
    place = {"start": str(step), "end": str(step if to is None else to), "startOffset": 1, "endOffset": 2}
    both = {"id": f"region{step}", "to_name": "steps", "origin": "manual"}
    marked = {
        **both,
        "from_name": "verdict",
        "type": "paragraphlabels",
        "value": {**place, "text": "n", "paragraphlabels": [label]},
    }
    said = {**both, "from_name": "comment", "type": "textarea", "value": {**place, "text": [comment]}}
    return [marked, said] if comment else [marked]


def outcome(error: bool) -> dict[str, Any]:
    value = {"choices": [ERROR if error else NO_ERROR]}
    return {"id": "o", "from_name": "outcome", "to_name": "steps", "type": "choices", "value": value}


def test_tasks_fit_the_configuration(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path)
    tags = [{"tag": node.tag, **node.attrib} for node in ElementTree.parse(tmp_path / "config.xml").iter()]
    named = {tag["name"]: tag for tag in tags if "name" in tag}
    choices = {tag["value"] for tag in tags if tag["tag"] in ("Choice", "Label")}
    assert len(tasks) == 4
    for task in tasks:
        assert {tag["value"].removeprefix("$") for tag in named.values() if "value" in tag} <= task["data"].keys()
        for prediction in task.get("predictions", ()):
            assert prediction["model_version"] == "openai/gpt-5.4-mini"
            for one in prediction["result"]:
                control, value = named[one["from_name"]], one["value"]
                assert control["toName"] == one["to_name"]
                assert one["type"] == control["tag"].lower()
                assert {*value.get("choices", ()), *value.get("paragraphlabels", ())} <= choices
    found = [
        [(one["from_name"], one["id"]) for one in task.get("predictions", [{"result": []}])[0]["result"]] for task in tasks
    ]
    assert found == [
        [("outcome", "outcome")],
        [("outcome", "outcome"), ("verdict", "step_0"), ("comment", "step_0")],
        [("outcome", "outcome"), ("verdict", "step_1"), ("comment", "step_1")],
        [],  # refused
    ]
    shown = tasks[2]["data"]["steps"][1]
    assert shown == {
        "title": "Step 2", "text": "two 𝒙\n\n[Observation, not judged] seen", "step": "two 𝒙", "observation": "seen",
    }  # fmt: skip
    place = tasks[2]["predictions"][0]["result"][1]["value"]
    assert (place["start"], place["end"], place["startOffset"]) == (1, 1, 0)
    assert place["endOffset"] == len(shown["text"]) + 1  # a browser counts the italic x twice
    assert [task.get("predictions", [{}])[0].get("score") for task in tasks] == [None, 0.75, None, None]
    assert not any("predictions" in task for task in tasks_of(tmp_path, "--no-predictions"))


def test_what_people_did_in_label_studio_comes_back(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path)
    note = {"id": "n", "from_name": "note", "to_name": "problem", "type": "textarea", "value": {"text": ["hm", "well"]}}
    ada: list[dict[str, Any]] = [
        {"result": [*region(1, "incorrect", "no"), *region(2, "neutral"), outcome(True), note]},
        {"result": [], "was_cancelled": True},
        {"result": [outcome(False)]},
        {"result": [outcome(True)]},  # nothing is marked
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps([exported(task, n, one) for n, (task, one) in enumerate(zip(tasks, ada, strict=True))]))
    ((name, rows),) = read_people(path)
    answers = [row.answer for row in rows.values()]
    assert name == "user 10"
    assert [(one.first_error, one.skipped) for one in answers] == [(1, False), (None, True), (-1, False), (None, False)]
    assert [(v.value, v.critique) for v in answers[0].verdicts] == [("correct", ""), ("incorrect", "no"), ("neutral", "")]
    assert answers[0].note == "hm\nwell"
    final = tmp_path / "final.jsonl"
    done = command.invoke("labels", "import", tmp_path / "labels.jsonl", path, "-o", final)
    assert "4 rows: 2 answered by a person, 2 not answered yet" in done.stderr
    label = next(iter(read_labels(final))).label
    assert (label.first_error, label.p_correct) == (1, (1.0, 0.0, None))

    person = {"completed_by": {"id": 3, "email": "bob@example.com", "first_name": "Bob", "last_name": ""}}
    bob: list[dict[str, Any]] = [{**person, "result": [*region(0, "incorrect", to=1), outcome(True)]} for _ in tasks]
    bob[0]["result"] = region(1, "incorrect")
    both = [exported(task, n, *each) for n, (task, *each) in enumerate(zip(tasks, ada, bob, strict=True))]
    path.write_text(json.dumps(both))
    with pytest.raises(InputError, match=r"answers of user 10, bob@example\.com; merge them first"):
        command.invoke("labels", "import", tmp_path / "labels.jsonl", path, "-o", tmp_path / "x.jsonl")
    done = command.invoke("labels", "merge", path, "-o", tmp_path / "merged.jsonl", columns=120)
    assert "user 10 and bob@example.com" in done.stdout
    assert "agree: 1, disagree: 1, by one: 2" in done.stdout
    assert [row["human"]["first_error"] for row in lines(tmp_path / "merged.jsonl")] == [1, 0, None, 0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"data": {"problem": "another"}}, "not those that were exported"),
        ({"annotations": None}, 'no "annotations"'),
        ({"annotations": [{"result": ["x"]}]}, "a result is 'x'"),
        ({"annotations": [{"result": region(0, "right")}]}, "the label of step 0 is"),
        ({"annotations": [{"result": region(3, "correct")}]}, "a region is"),
        ({"annotations": [{"result": [*region(0, "correct"), *region(0, "neutral")]}]}, "marked correct and neutral"),
        ({"annotations": [{"result": [*region(0, "incorrect"), outcome(False)]}]}, "the outcome is 'No incorrect step'"),
        ({"data": {"steps": "x"}}, '"steps" is empty'),
        ({"data": {"steps": ["x"]}}, "a step is 'x'"),
    ],
)
def test_a_damaged_export_is_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    row = exported(tasks_of(tmp_path)[0], 1, {"result": []})
    row |= {**change, "data": {**row["data"], **change.get("data", {})}}
    (tmp_path / "export.json").write_text(json.dumps([row]))
    with pytest.raises(InputError, match=problem):
        read_people(tmp_path / "export.json")


def test_records_fit_the_settings(tmp_path: Path) -> None:
    out, setup = tmp_path / "records.json", tmp_path / "settings.json"
    command.invoke("labels", "export", labelled(tmp_path), "--to", "argilla", "-o", out, "--setup", setup)
    records, settings = json.loads(out.read_text()), json.loads(setup.read_text())
    fields = {field["name"] for field in settings["fields"]}
    options = {option["value"]: option["text"] for option in settings["questions"][0]["settings"]["options"]}
    assert options == {"none": "No error", "step_1": "Step 1", "step_2": "Step 2", "step_3": "Step 3"}
    questions = {question["name"] for question in settings["questions"]}
    for record in records:
        assert record.keys() == {"id", "fields", "metadata", "suggestions", "responses", "vectors"}
        assert record["fields"].keys() == fields
        assert record["suggestions"].keys() <= questions
    suggested = [record["suggestions"].get("first_error", {}).get("value") for record in records]
    assert suggested == ["none", "step_1", "step_2", None]
    assert records[2]["suggestions"]["comment"] == {"value": "says 2", "score": None, "agent": "openai/gpt-5.4-mini"}
    assert records[0]["fields"]["solution"].startswith("[Step 1] one\n\n[Step 2] two 𝒙\n[Observation] seen\n\n[Step 3]")
    long = saved(tmp_path / "long.jsonl", [{"problem": "p", "steps": ["s"] * 201}, {"problem": "q", "steps": ["s"]}])
    done = command.invoke("labels", "export", long, "--to", "argilla", "-o", out, "--overwrite")
    assert "left out: 1 solutions with more than 200 steps" in done.stderr
    assert len(json.loads(out.read_text())) == 1


def test_the_uncertain_ones_are_exported(tmp_path: Path) -> None:
    out = tmp_path / "tasks.json"
    words = ("--order", "uncertain", "--limit", "1")
    command.invoke("labels", "export", labelled(tmp_path), "--to", "label-studio", "-o", out, *words)
    assert [task["data"]["id"] for task in json.loads(out.read_text())] == ["t3"]


def test_a_file_that_neither_tool_reads_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ends in \.json"):
        command.invoke("labels", "export", labelled(tmp_path), "--to", "argilla", "-o", tmp_path / "records.jsonl")
