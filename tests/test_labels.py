"""Label-file rows there and back: nothing that came in is lost, gold stays where it was, broken rows are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.data.judgement import Judgement, Verdict, combine
from critic_prm.data.label_rows import LABEL_FIELDS, label_row, labelled_from_json, read_labels, without_labels
from critic_prm.data.trajectory import trajectory_from_json, trajectory_to_json
from critic_prm.errors import InputError

CARD = {"provider": "openai", "model": "m", "style": "stepwise"}
NATIVE: dict[str, Any] = {
    "id": "a",
    "problem": "1+1?",
    "steps": ["1+1=2", {"text": "look it up", "observation": "2"}],
    "gold_answer": "2",
    "label": 1,
    "step_labels": [1.0, 0.25],
    "meta": {"tier": "A"},
    "subject": "sums",
}


def judgement(*values: str, status: Any = "ok", sample: int = 0, first: int | None = None) -> Judgement:
    verdicts = tuple(Verdict(i, v, f"step {i} is {v}", 0.75 if v == "correct" else None) for i, v in enumerate(values))  # type: ignore[arg-type]
    return Judgement(status, verdicts, first, sample, keys=("k" * 64,), notes=("forgave a comma",))


def test_a_row_goes_there_and_back() -> None:
    trajectory = trajectory_from_json(NATIVE, "here")
    label = combine([judgement("correct", "incorrect", first=1), judgement("correct", "correct", sample=1, first=-1)], 2)
    row = orjson.loads(orjson.dumps(label_row(trajectory, label, CARD)))
    back = labelled_from_json(row, "here")
    assert back.trajectory == trajectory
    assert back.label == label
    assert back.critic == CARD
    assert row["label"] == 1
    assert row["first_error"] is None
    assert row["p_correct"] == [0.75, 0.375]
    assert row["votes"] == [[2, 2], [1, 2]]
    assert {k: row[k] for k in NATIVE} == NATIVE


def test_labelling_a_label_file_again_replaces_the_old_label() -> None:
    trajectory = trajectory_from_json(NATIVE, "here")
    old = label_row(trajectory, combine([judgement("correct", "correct", first=-1)], 2), {"model": "old"})
    again = label_row(trajectory_from_json(old, "here"), combine([], 2), CARD)
    assert again["status"] == "provider_error"
    assert again["critic"] == CARD
    assert "before_labelling" not in again
    assert labelled_from_json(again, "here").trajectory == trajectory


def test_fields_of_the_same_name_that_came_in_are_kept() -> None:
    row = {**NATIVE, "status": "draft", "critic": "J. Doe", "input": {"x": 1}}
    trajectory = trajectory_from_json(row, "here")
    written = label_row(trajectory, combine([judgement("correct", "correct", first=-1)], 2), CARD)
    assert written["status"] == "ok"
    assert written["before_labelling"] == {"status": "draft", "critic": "J. Doe"}
    assert labelled_from_json(written, "here").trajectory == trajectory


def test_without_labels_leaves_other_trajectories_alone() -> None:
    trajectory = trajectory_from_json({**NATIVE, "status": "draft"}, "here")
    assert without_labels(trajectory) is trajectory
    labelled = trajectory_from_json(label_row(trajectory, combine([], 2), CARD), "here")
    assert trajectory_to_json(without_labels(labelled)) == trajectory_to_json(trajectory)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"status": "fine"}, "status"),
        ({"p_correct": [1.0]}, "p_correct"),
        ({"p_correct": [1.5, None]}, "p_correct"),
        ({"p_correct": [True, None]}, "p_correct"),
        ({"votes": [[2, 1], [0, 0]]}, "votes"),
        ({"votes": None}, "votes"),
        ({"first_error": 2}, "first_error"),
        ({"judgements": [{"status": "ok"}]}, "judgements"),
        ({"judgements": [{"status": "ok", "verdicts": [{"step": 9, "verdict": "correct"}]}]}, "unknown status or step"),
        ({"critic": "me"}, "critic"),
    ],
)
def test_a_broken_label_is_named_with_its_line(change: dict[str, Any], word: str) -> None:
    row = label_row(trajectory_from_json(NATIVE, "x"), combine([judgement("correct", "correct", first=-1)], 2), CARD)
    with pytest.raises(InputError, match=word) as error:
        labelled_from_json({**row, **change}, "file.jsonl:7")
    assert str(error.value).startswith("file.jsonl:7: ")


def test_a_slim_file_without_judgements_is_read() -> None:
    row = label_row(trajectory_from_json(NATIVE, "x"), combine([judgement("correct", "correct", first=-1)], 2), CARD)
    del row["judgements"]
    assert labelled_from_json(row, "x").label.votes == ((1, 1), (1, 1))


def test_a_file_is_streamed(tmp_path: Path) -> None:
    row = label_row(trajectory_from_json(NATIVE, "x"), combine([judgement("correct", "correct", first=-1)], 2), CARD)
    path = tmp_path / "labels.jsonl"
    path.write_bytes(orjson.dumps(row) + b"\n" + orjson.dumps({**row, "id": "b", "status": "?"}) + b"\n")
    rows = read_labels(path)
    assert next(rows).trajectory.id == "a"
    with pytest.raises(InputError, match=r"labels\.jsonl:2"):
        next(rows)


def test_the_label_fields_are_those_of_the_contract() -> None:
    assert LABEL_FIELDS == ("p_correct", "p_from", "votes", "first_error", "status", "judgements", "critic")
