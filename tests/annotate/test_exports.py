"""Label Studio and Argilla get what their documentation describes, and Label Studio's export comes back as answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from critic_prm.annotate.people import read_people
from critic_prm.data.label_rows import read_labels
from critic_prm.errors import InputError
from tests import command
from tests.annotate.serving import lines
from tests.report.making import judged, saved


def labelled(folder: Path) -> Path:
    steps = ["one", {"text": "two", "observation": "seen"}, "three <b> & ]]>"]
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


def expanded(config: str, data: Mapping[str, Any]) -> list[dict[str, str]]:
    """The attributes of all tags, the block of a Repeater once for each item, as https://labelstud.io/tags/repeater says."""
    found: list[dict[str, str]] = []

    def visit(node: ElementTree.Element, index: int | None) -> None:
        if node.tag == "Repeater":
            for number in range(len(data[node.attrib["on"].removeprefix("$")])):
                for child in node:
                    visit(child, number)
            return
        flag = "{{idx}}"
        found.append({"tag": node.tag, **{k: v.replace(flag, str(index)) for k, v in node.attrib.items()}})
        for child in node:
            visit(child, index)

    visit(ElementTree.fromstring(config), None)
    return found


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


def result(step: int, verdict: str, comment: str = "") -> list[dict[str, Any]]:
    chosen = {"from_name": f"verdict_{step}", "to_name": f"step_{step}", "type": "choices", "value": {"choices": [verdict]}}
    said = {"from_name": f"comment_{step}", "to_name": f"step_{step}", "type": "textarea", "value": {"text": [comment]}}
    return [{"id": f"x{step}", "origin": "manual", **chosen}, *([{"id": f"y{step}", **said}] if comment else [])]


def test_tasks_fit_the_configuration(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path)
    config = (tmp_path / "config.xml").read_text()
    assert len(tasks) == 4
    for task in tasks:
        tags = expanded(config, task["data"])
        named = {tag["name"]: tag for tag in tags if "name" in tag}
        assert len(named) == len([tag for tag in tags if "name" in tag]), "names are unique"
        for tag in named.values():
            assert "toName" not in tag or tag["toName"] in named
        for prediction in task.get("predictions", ()):
            assert prediction["model_version"] == "openai/gpt-5.4-mini"
            for one in prediction["result"]:
                assert named[one["from_name"]]["toName"] == one["to_name"]
                assert one["type"] == {"Choices": "choices", "TextArea": "textarea"}[named[one["from_name"]]["tag"]]
    assert {tag["value"] for tag in tags if tag["tag"] == "Choice"} == {"correct", "incorrect", "neutral"}
    assert tasks[0]["data"]["steps"][1] == {"title": "Step 2 of 3", "text": "two", "observation": "seen"}
    assert [task.get("predictions", [{}])[0].get("score") for task in tasks] == [None, 0.75, None, None]
    assert "predictions" not in tasks[3]  # refused
    assert "7" not in json.dumps([task["data"]["steps"] for task in tasks])
    assert not any("predictions" in task for task in tasks_of(tmp_path, "--no-predictions"))


def test_what_people_did_in_label_studio_comes_back(tmp_path: Path) -> None:
    tasks = tasks_of(tmp_path)
    note = {"id": "n", "from_name": "note", "to_name": "problem", "type": "textarea", "value": {"text": ["hm", "well"]}}
    ada: list[dict[str, Any]] = [
        {"result": [*result(1, "incorrect", "no"), *result(0, "correct"), *result(2, "neutral"), note]},
        {"result": [], "was_cancelled": True},
        {"result": [*result(0, "correct"), *result(1, "correct"), *result(2, "correct")]},
        {"result": [*result(1, "incorrect")]},  # the first step is open
    ]
    path = tmp_path / "export.json"
    path.write_text(json.dumps([exported(task, n, one) for n, (task, one) in enumerate(zip(tasks, ada, strict=True))]))
    ((name, rows),) = read_people(path)
    answers = [row.answer for row in rows.values()]
    assert name == "user 10"
    assert [(one.first_error, one.skipped) for one in answers] == [(1, False), (None, True), (-1, False), (None, False)]
    assert (answers[0].note, answers[0].verdicts[1].critique) == ("hm\nwell", "no")
    final = tmp_path / "final.jsonl"
    done = command.invoke("labels", "import", tmp_path / "labels.jsonl", path, "-o", final)
    assert "4 rows: 2 answered by a person, 2 not answered yet" in done.stderr
    label = next(iter(read_labels(final))).label
    assert (label.first_error, label.p_correct) == (1, (1.0, 0.0, None))

    person = {"completed_by": {"id": 3, "email": "bob@example.com", "first_name": "Bob", "last_name": ""}}
    bob: list[dict[str, Any]] = [{**person, "result": result(0, "incorrect")} for _ in tasks]
    bob[0]["result"] = [*result(0, "correct"), *result(1, "incorrect")]
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
        ({"annotations": [{"result": result(0, "right")}]}, "the choice for step 0 is"),
        ({"data": {"steps": "x"}}, '"steps" is empty'),
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
    assert records[0]["fields"]["solution"].startswith("[Step 1] one\n\n[Step 2] two\n[Observation] seen\n\n[Step 3]")
    long = saved(tmp_path / "long.jsonl", [{"problem": "p", "steps": ["s"] * 201}, {"problem": "q", "steps": ["s"]}])
    done = command.invoke("labels", "export", long, "--to", "argilla", "-o", out, "--overwrite")
    assert "left out: 1 solutions with more than 200 steps" in done.stderr
    assert len(json.loads(out.read_text())) == 1


def test_the_uncertain_ones_are_exported(tmp_path: Path) -> None:
    out = tmp_path / "tasks.json"
    words = ("--order", "uncertain", "--limit", "1")
    command.invoke("labels", "export", labelled(tmp_path), "--to", "label-studio", "-o", out, *words)
    assert [task["data"]["id"] for task in json.loads(out.read_text())] == ["t3"]
