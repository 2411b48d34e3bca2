"""Which solutions are split when they are read, what is said about it, and that a judge is not paid for undivided ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.formats.common import Options, Report
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.data.segment.rows import Segment
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError, UsageError
from tests.command import invoke

THREE = "First 15 * 16 = 240.\n\nThen 240 - 2 = 238.\n\nSo the answer is 238."
PAID = ("--judge", "openai/x", "--base-url", "http://127.0.0.1:9/v1", "--dry-run", "--db", "cache.db", "-o", "out.jsonl")


def chat(*turns: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": "What is 15*16-2?"}]
    for turn in turns:
        messages += [{"role": "assistant", "content": turn}, {"role": "user", "content": "go on"}]
    return {"messages": messages[:-1]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "k")


def write(*rows: dict[str, Any]) -> str:
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "in.jsonl"


def read(row: dict[str, Any], segment: Segment = "auto") -> Trajectory:
    (made,) = read_trajectories(write(row), options=Options(segment=segment))
    return made


@pytest.mark.parametrize(
    ("row", "steps"),
    [
        (chat(THREE), 3),
        (chat(THREE, "Yes.\n\nIt is 238."), 2),
        ({"problem": "p", "solution": THREE}, 3),
        ({"problem": "p", "solution": THREE.replace("\n\n", "\n")}, 3),
        ({"problem": "p", "solution": THREE.replace("\n\n", " ")}, 3),
        ({"question": "p", "answer": "15*16=240\n240-2=238\n#### 238"}, 2),
        ({"problem": "p", "steps": [THREE]}, 3),
        ({"problem": "p", "steps": [THREE], "label": -1}, 1),
        ({"problem": "p", "steps": [THREE], "step_labels": [1.0]}, 1),
        ({"problem": "p", "steps": [THREE], "p_correct": [0.9], "status": "ok"}, 1),
        ({"problem": "p", "steps": [{"text": THREE, "observation": "o"}]}, 1),
        ({"problem": "p", "steps": [THREE, "Done.\n\nReally."]}, 2),
    ],
)
def test_auto_splits_texts_and_leaves_given_steps(row: dict[str, Any], steps: int) -> None:
    assert len(read(row).steps) == steps


def test_a_method_splits_again_what_is_there() -> None:
    row = {"problem": "p", "steps": ["It is 5. We add 2.", {"text": "That is 7. Done.", "observation": "o"}, "Yes."]}
    made = read(row, "sentences")
    assert made.texts == ["It is 5.", "We add 2.", "That is 7.", "Done.", "Yes."]
    assert [step.observation for step in made.steps] == [None, None, None, "o", None]
    assert read(row, "none").texts == ["It is 5. We add 2.", "That is 7. Done.", "Yes."]
    assert len(read(chat(THREE, THREE), "paragraphs").steps) == 6
    assert len(read({"problem": "p", "solution": THREE}, "none").steps) == 1


def test_a_method_does_not_split_labelled_steps() -> None:
    with pytest.raises(InputError, match=r"in.jsonl:1: the steps of a have labels, so --segment lines cannot split them again"):
        read({"id": "a", "problem": "p", "steps": [THREE], "label": 0}, "lines")


def test_labels_of_a_mapped_text_refer_to_its_steps() -> None:
    path = write({"prompt": "p", "log": THREE, "bad": 1})
    (made,) = read_trajectories(path, options=Options(map=("problem=prompt,steps=log,label=bad",)))
    assert (len(made.steps), made.label) == (3, 1)


def test_the_same_solution_has_the_same_id_in_another_file() -> None:
    row = {"problem": "p", "solution": THREE}
    many = list(read_trajectories(write(row, {"problem": "q", "solution": "One. Two."})))
    assert read(row) == many[0]


def test_it_says_once_what_was_done() -> None:
    rows = [{"problem": f"p{i}", "solution": THREE + "\n\nYes." * (i % 2)} for i in range(30)]
    done = invoke("convert", write(*rows), "-o", "out.jsonl")
    assert "30 solutions, 3 to 4 steps, median 3, split at paragraphs\n" in done.stderr
    assert "warning" not in done.stderr
    done = invoke("label", "in.jsonl", *PAID)
    assert done.stderr.count("30 solutions, 3 to 4 steps, median 3, split at paragraphs\n") == 1
    assert "solutions" not in invoke("label", "in.jsonl", "--quiet", *PAID).stderr
    rows[3]["solution"] = THREE.replace("\n\n", "\n")
    assert "split at paragraphs (29), lines (1)" in invoke("convert", write(*rows), "-o", "-").stderr


def test_doubtful_splits_are_warnings() -> None:
    rows = [{"problem": f"p{i}", "solution": THREE if i else "5"} for i in range(10)]
    assert "warning" not in invoke("convert", write(*rows), "-o", "-").stderr
    rows[1]["solution"] = rows[2]["solution"] = "6"
    done = invoke("convert", write(*rows), "-o", "-")
    assert "warning: 3 of 10 solutions have one step; if they have more, say where to split: --segment lines" in done.stderr
    assert "warning" not in invoke("convert", "in.jsonl", "-o", "-", "--segment", "none").stderr
    rows[3]["solution"] = "\n".join(f"Add {n}." for n in range(130))
    assert "warning: 1 solution with more than 100 steps, up to 130" in invoke("convert", write(*rows), "-o", "-").stderr


@pytest.mark.parametrize("more", [(), ("--batch",)])
def test_a_judge_is_not_paid_for_undivided_solutions(more: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    path = write(*({"problem": f"p{i}", "solution": str(i)} for i in range(30)))
    problem = r"every solution has one step, so a judge would be paid for verdicts on whole solutions; .* --segment none"
    with pytest.raises(UsageError, match=problem):
        invoke("label", path, *PAID, *more)
    with pytest.raises(UsageError, match=problem):
        invoke("batch", "export", path, "requests.jsonl", *PAID[:4])
    assert "warning" not in capsys.readouterr().err
    assert invoke("label", path, *PAID, "--segment", "none").exit_code == 0
    assert not Path("requests.jsonl").exists()


def test_a_free_critic_labels_undivided_solutions() -> None:
    rows = [{"problem": f"p{i}", "solution": "5"} for i in range(3)]
    done = invoke("label", write(*rows), "--judge", "rules", "-o", "out.jsonl")
    assert done.exit_code == 0
    assert "warning: 3 of 3 solutions have one step" in done.stderr
    done = invoke("label", "in.jsonl", "--judge", "rules", "-o", "out2.jsonl", "--limit", "2")
    assert "warning" not in done.stderr
    assert invoke("label", "in.jsonl", *PAID, "--limit", "2").exit_code == 0


def test_the_rows_read_ahead_are_not_lost_from_stdin() -> None:
    path = write(*({"problem": f"p{i}", "solution": "5" if i < 5 else THREE} for i in range(70)))
    done = invoke("label", "-", *PAID, stdin=Path(path).read_text())
    assert done.exit_code == 0
    assert ": 70 rows, 70 requests" in done.stdout
    only = write(*({"problem": f"p{i}", "solution": "5" if i < 64 else THREE} for i in range(70)))
    with pytest.raises(UsageError, match="the first 64 solutions have one step"):
        invoke("label", only, *PAID)


def test_a_bad_row_is_reported_by_the_run_itself() -> None:
    Path("in.jsonl").write_text('{"problem": "p", "solution": "5"}\n{"problem"\n')
    done = invoke("label", "in.jsonl", *PAID, catch=True)
    assert "in.jsonl:2" in str(done.exception)


def test_the_fields_that_a_chat_keeps_survive() -> None:
    report = Report()
    (made,) = read_trajectories(write(chat(THREE) | {"id": "a", "k": 1}), report=report)
    assert (made.id, made.meta, len(made.steps)) == ("a", {"k": 1}, 3)
    assert report.steps.sizes == {3: 1}
