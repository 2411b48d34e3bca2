"""Data in a dozen usual shapes is read with one command each, and its steps are what a person would call steps."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.data.formats.convert import read_trajectories
from tests.command import invoke

SHAPES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("shapes.toml").read_text("utf-8"))
PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"
READ = ("problem", "steps", "label", "final_answer", "gold_answer", "first_error")


def written(shape: dict[str, Any], folder: Path) -> None:
    """Write the file of a shape."""
    path = folder / shape["file"]
    if "columns" in shape:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(shape["columns"]), path)
    elif "json" in shape:
        path.write_text(json.dumps(json.loads(shape["json"], strict=False), ensure_ascii=False) + "\n")
    else:
        path.write_text(shape["text"])


@pytest.mark.parametrize("name", SHAPES)
def test_one_command_reads_it_and_the_manual_shows_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES[name]
    monkeypatch.chdir(tmp_path)
    written(shape, tmp_path)
    result = invoke(*shlex.split(shape["command"])[1:])
    assert result.exit_code == 0, result.stderr
    row = orjson.loads(result.stdout.splitlines()[0])
    shown = {key: row[key] for key in READ if key in row}
    assert shown == {key: shape[key] for key in READ if key in shape}
    assert f"$ {shape['command']}\n{json.dumps(shown, ensure_ascii=False)}\n" in PAGE.read_text("utf-8")


@pytest.mark.parametrize(("file", "rows"), [("gsm8k/train.jsonl", 25), ("problems/math500_test500.jsonl", 25)])
def test_the_own_files_of_gsm8k_and_math_have_sensible_steps(shared_data: Path, file: str, rows: int) -> None:
    found = list(read_trajectories(shared_data / "original" / file))
    assert len(found) == rows
    sizes = sorted(len(trajectory.steps) for trajectory in found)
    assert 2 <= sizes[rows // 2] <= 8
    assert sizes[-1] <= 30
    for trajectory in found:
        for text in trajectory.texts:
            assert "####" not in text
            assert file.startswith("problems") or "\n" not in text
            assert text.count("\\[") == text.count("\\]"), "display mathematics is cut"
