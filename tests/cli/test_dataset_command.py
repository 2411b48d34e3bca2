"""The dataset command: options reach the library, the table fits a terminal, stdout holds data alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from critic_prm.data.records.reading import write_records
from critic_prm.errors import UsageError
from tests import command


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    path = tmp_path / "gold.jsonl"
    write_records(
        path, ({"id": str(p), "problem": f"problem {p}", "steps": ["a", f"b{p}"], "label": p % 3 - 1} for p in range(90))
    )
    return path


def test_build_prints_a_table_and_writes_the_folder(gold: Path, tmp_path: Path) -> None:
    out = tmp_path / "set"
    argv = ["build", str(gold), "-o", str(out), "--gold", "--split", "0.6,0.2,0.2", "--balance", "first-error", "--seed", "4"]
    result = command.invoke("dataset", *argv)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "kept 70 of 90 rows" in result.stderr
    assert "balance" in result.stderr
    assert max(len(line) for line in result.stderr.splitlines()[1:]) <= 80
    summary = json.loads((out / "dataset.json").read_text())
    assert summary["options"]["balance"] == "first-error"
    assert summary["options"]["split"] == [0.6, 0.2, 0.2]
    assert summary["splits"]["train"]["erroneous"] == summary["splits"]["train"]["correct"]


def test_json_goes_to_stdout(gold: Path, tmp_path: Path) -> None:
    argv = ["build", str(gold), "-o", str(tmp_path / "set"), "--gold", "--json"]
    result = command.invoke("dataset", *argv)
    assert json.loads(result.stdout)["rows"] == 90


@pytest.mark.parametrize("split", ["a,b,c", "0.5,0.5", "0.5,0.5,0.5"])
def test_a_bad_split_is_said(split: str, gold: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the split is"):
        command.invoke("dataset", "build", gold, "-o", tmp_path / "s", "--split", split)
