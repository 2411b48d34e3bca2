"""Recorded replies of other people's judges, where they are at hand: read as their sources read them, or not at all."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / "read_replies.py"
    spec = importlib.util.spec_from_file_location("read_replies", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["read_replies"] = module
    spec.loader.exec_module(module)
    return module


def test_recorded_replies_are_read(bench: ModuleType, shared_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main([str(shared_data / "judge_outputs")]) == 0, capsys.readouterr().out
    rows = capsys.readouterr().out.split("\n\n")[0].splitlines()
    table = {tuple(row.split()[:2]): row for row in rows}
    assert "step accuracy 79.4%" in table["parc_step_verdicts", "llama-3.1-70b"]
    assert "F1 of first errors 48.9%" in table["mr_math_gpt", "gpt4"]
    assert "accuracy 95.5%" in table["planbench_verification", "gpt-4_chat"]


def test_scores_are_what_they_say(bench: ModuleType) -> None:
    pairs = [(True, True), (True, False), (False, True), (False, True)]
    assert bench.figure("F1 of first errors", pairs) == "66.7%"
    assert bench.figure("accuracy", pairs) == "75.0%"
    assert bench.figure("F1 of first errors", pairs[:2]) == "50.0% (one class)"
    assert bench.figure("accuracy", []) == "-"


def test_what_disagrees_is_listed_and_fails(bench: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = (
        '{"id": "r1", "model": "m", "prompt_style": "parc_step_verdict_text", "response_text": "So.\\n\\nVerdict: CORRECT",'
        ' "gold": {"step_correct": true}, "source_parse": {"verdict": "%s"}}\n'
    )
    (tmp_path / "rows.jsonl").write_text(row % "CORRECT")
    assert bench.main([str(tmp_path)]) == 0
    (tmp_path / "rows.jsonl").write_text(row % "LOGICAL_INCONSISTENCY")
    assert bench.main([str(tmp_path)]) == 1
    assert "r1: correct, its own parse incorrect" in capsys.readouterr().out
    (tmp_path / "rows.jsonl").write_text(row % "Unknown")
    assert bench.main([str(tmp_path)]) == 1
    assert "its own parse has no verdict" in capsys.readouterr().out
