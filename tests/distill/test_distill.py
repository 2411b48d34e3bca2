"""Training sets become verifiers that load, score, judge and say what is wrong with them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError, UsageError
from distill.data import read_training_set
from distill.run import distill
from distill.verifier import load_verifier
from tests.distill.tiny import apples, folder_of, known


def test_a_verifier_scores_and_judges(verifier_folder: Path) -> None:
    verifier = load_verifier(verifier_folder)
    assert {p.name for p in verifier_folder.iterdir()} == {"verifier.json", "metrics.json", "README.md", "linear.safetensors"}
    scores = known(verifier.score("Ann has 3 apples and buys 4.", ["She has 3 + 4 = 7 apples.", "The answer is 7."]))
    assert len(scores) == 2
    assert all(0 <= p <= 1 for p in scores)
    steps = (Step("She has 3 + 4 = 7 apples."), Step("Then 7 + 5 = 12 apples."))
    trajectory = Trajectory("t", "Ann has 3 apples, buys 4 and then 5 more. How many has she?", steps)
    (judgement,) = asyncio.run(verifier.judge([trajectory]))
    expected = known(verifier.score(trajectory.problem, trajectory.texts))
    assert [v.p_correct for v in judgement.verdicts] == expected
    first = next((i for i, p in enumerate(expected) if p < verifier.threshold), -1)
    assert judgement.first_error == first
    assert verifier.stochastic is False


def test_same_seed_same_verifier(training_set: Path, verifier_folder: Path, tmp_path: Path) -> None:
    again = distill(training_set, tmp_path / "again").folder
    assert (again / "linear.safetensors").read_bytes() == (verifier_folder / "linear.safetensors").read_bytes()


def test_scores_do_not_depend_on_batch_or_later_steps(verifier_folder: Path) -> None:
    verifier = load_verifier(verifier_folder)
    items = [(row["prompt"], row["completions"]) for row in apples(30, 9)]
    together = verifier.score_many(items)
    for (problem, steps), scores in zip(items, together, strict=True):
        assert verifier.score(problem, steps) == pytest.approx(scores, abs=1e-12)
        assert verifier.score(problem, steps[:1]) == pytest.approx(scores[:1], abs=1e-12)


def test_unknown_student_lists_what_there_is(training_set: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="linear"):
        distill(training_set, tmp_path / "v", student="quantum:./base")
    with pytest.raises(InputError, match="quantum: its tokenizer"):
        distill(training_set, tmp_path / "v", student="quantum")  # a base alone
    assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": [1.0]}, "one entry for each of the 2 steps"),
        ({"labels": [1.5, 0.0]}, "P\\(correct\\) from 0 to 1"),
        ({"completions": []}, "at least one"),
        ({"weight": -1}, "from 0 upwards"),
        ({"prompt": 3}, "text of the problem"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = apples(10, 1)
    rows[4] |= change
    folder = folder_of(tmp_path / "d", train=rows, dev=apples(10, 2))
    with pytest.raises(InputError, match=rf"train.jsonl:5: .*{message}"):
        read_training_set(folder)


def test_one_class_is_refused(tmp_path: Path) -> None:
    rows = [row | {"labels": [1.0, 1.0]} for row in apples(10, 1)]
    with pytest.raises(InputError, match="20 steps are labelled correct and 0 incorrect"):
        read_training_set(folder_of(tmp_path / "d", train=rows, dev=apples(10, 2)))


def test_null_steps_carry_no_loss(tmp_path: Path) -> None:
    rows = apples(60, 1)
    changed = [
        row | {"completions": [row["completions"][0], "entirely different words"]} if row["labels"][1] is None else row
        for row in rows
    ]
    dev = apples(40, 2)
    one = distill(folder_of(tmp_path / "a", train=rows, dev=dev), tmp_path / "va").folder
    two = distill(folder_of(tmp_path / "b", train=changed, dev=dev), tmp_path / "vb").folder
    assert (one / "linear.safetensors").read_bytes() == (two / "linear.safetensors").read_bytes()


def test_damage_is_said(verifier_folder: Path, tmp_path: Path) -> None:
    import shutil

    with pytest.raises(InputError, match="no such folder"):
        load_verifier(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no verifier\.json"):
        load_verifier(tmp_path)
    copy = shutil.copytree(verifier_folder, tmp_path / "copy")
    weights = copy / "linear.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(InputError, match="does not fit into the file"):
        load_verifier(copy)
    info = json.loads((verifier_folder / "verifier.json").read_text())
    for change, message in [
        ({"format": "other"}, "not a verifier of this kind"),
        ({"version": 99}, "upgrade critic-prm"),
        ({"student": "gone"}, "does not know"),
        ({"decision": {"threshold": "high"}}, "from 0 to 1"),
        ({"calibration": {"method": "magic", "parameters": {}}}, "magic"),
    ]:
        damaged = shutil.copytree(verifier_folder, tmp_path / message)
        (damaged / "verifier.json").write_text(json.dumps(info | change))
        with pytest.raises(InputError, match=message):
            load_verifier(damaged)


def test_a_failed_run_leaves_the_old_verifier(training_set: Path, verifier_folder: Path, tmp_path: Path) -> None:
    import shutil

    from distill.store import new_verifier_folder

    copy = shutil.copytree(verifier_folder, tmp_path / "v")
    before = (copy / "verifier.json").read_bytes()

    def broken() -> None:
        with new_verifier_folder(copy) as path:
            (path / "verifier.json").write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match="No space left"):
        broken()
    assert (copy / "verifier.json").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["v"]


def test_a_folder_that_is_no_verifier_is_not_replaced(training_set: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(UsageError, match="is not a verifier"):
        distill(training_set, tmp_path / "home")
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"
