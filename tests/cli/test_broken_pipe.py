"""Commands whose reader goes away, as in `critic-prm label ... | head -1`: they end without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.conftest import ROOT
from tests.effort import PATIENCE

COMMANDS = {
    "label": ("label", "in.jsonl", "--judge", "rules"),
    "score": ("score", "rules", "in.jsonl"),
    "convert": ("convert", "in.jsonl"),
    "cache export": ("cache", "export", "--db", str(ROOT / "cache.db.example")),
    "generate": ("generate", "logic", "-n", "20"),
}


@pytest.mark.parametrize("rows", [2, 2000])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_goes_away_ends_a_command_quietly(tmp_path: Path, name: str, rows: int) -> None:
    """With few rows the pipe is found broken only when what is buffered is written at the end."""
    row = {"problem": "What is 2 + 2?", "steps": ["2 + 2 = 4."]}
    (tmp_path / "in.jsonl").write_bytes(b"".join(orjson.dumps({"id": str(n), **row}) + b"\n" for n in range(rows)))
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "critic_prm", *COMMANDS[name]],
            cwd=tmp_path, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode in (0, 1), done.stderr
