"""A judge marks where steps begin: by numbers that are checked, through the cache, and never with a text of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from critic_prm.errors import InputError, UsageError
from critic_prm.label.segmenting import read_starts
from tests.command import invoke

PROSE = "We add 2 and 3. That is 5. Then we multiply by 4. So it is 20."


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(rows: list[dict[str, Any]], *replies: str) -> None:
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("replies.jsonl").write_text("".join(json.dumps({"text": reply}) + "\n" for reply in replies))


@pytest.mark.parametrize(
    ("reply", "starts"),
    [
        ("STEPS: 1, 3", [1, 3]),
        ("**STEPS:** 1,3,4", [1, 3, 4]),
        ("Perhaps STEPS: 1, 2\nNo.\nsteps: 3", [1, 3]),
        ("<think>STEPS: 1, 2</think>\nSTEPS: 1", [1]),
        ("STEPS: 1, 9", None),
        ("STEPS: 1, 3, 2", None),
        ("STEPS: 0, 2", None),
        ("STEPS: 1, 1", None),
        ("1, 3", None),
        ("", None),
        ("STEPS: " + "9" * 10_000, None),
    ],
)
def test_the_numbers_of_a_reply_are_checked(reply: str, starts: list[int] | None) -> None:
    assert read_starts(reply, 4) == starts


def test_convert_marks_steps_once() -> None:
    write([{"problem": "p", "solution": PROSE}], "The steps are these.\n\nSTEPS: 1, 3")
    words = (
        "convert",
        "in.jsonl",
        "--segment",
        "llm",
        "--segment-judge",
        "scripted/replies.jsonl",
        "--db",
        "cache.db",
        "-o",
        "-",
    )
    done = invoke(*words)
    row = json.loads(done.stdout)
    assert row["steps"] == ["We add 2 and 3. That is 5.", "Then we multiply by 4. So it is 20."]
    assert "1 solution, 2 steps each, split at the judge's marks" in done.stderr
    Path("replies.jsonl").write_text('{"text": "STEPS: 1"}\n')
    assert invoke(*words).stdout == done.stdout  # from the cache


def test_an_unusable_reply_is_counted_and_the_text_split_by_rules() -> None:
    write([{"problem": "p", "solution": PROSE}], "I would not divide this.")
    words = ("--segment", "llm", "--segment-judge", "scripted/replies.jsonl", "--db", "cache.db")
    done = invoke("convert", "in.jsonl", *words, "-o", "-")
    assert len(json.loads(done.stdout)["steps"]) == 4
    assert "split by rules instead, because the judge's marks could not be used: 1 solution\n" in done.stderr


def test_label_marks_steps_with_its_judge_and_then_judges_them() -> None:
    verdicts = "".join(f"Step {k}: It is right.\nThe step is \\boxed{{correct}}\n" for k in (1, 2))
    write([{"problem": "p", "solution": PROSE}], f"STEPS: 1, 3\n\n{verdicts}")
    words = (
        "label",
        "in.jsonl",
        "--judge",
        "scripted/replies.jsonl",
        "--db",
        "cache.db",
        "-o",
        "out.jsonl",
        "--segment",
        "llm",
    )
    assert invoke(*words).exit_code == 0
    row = json.loads(Path("out.jsonl").read_text())
    assert (len(row["steps"]), row["status"]) == (2, "ok")


def test_what_marking_cannot_do() -> None:
    write([{"problem": "p", "steps": [PROSE], "label": 0}], "STEPS: 1")
    marker = ("--segment-judge", "scripted/replies.jsonl", "--db", "cache.db")
    with pytest.raises(InputError, match="have labels"):
        invoke("convert", "in.jsonl", "--segment", "llm", *marker, "-o", "-")
    for words in (
        ("convert", "in.jsonl", "--segment", "llm"),
        ("convert", "in.jsonl", *marker),
        ("label", "in.jsonl", "--judge", "rules", *marker),
        ("label", "in.jsonl", "--judge", "rules", "--segment", "llm"),
    ):
        with pytest.raises(UsageError, match="--segment"):
            invoke(*words)
