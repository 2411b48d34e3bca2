"""The benchmark of boundaries runs on files of any format, and its bars can be missed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import segments


def test_the_benchmark_of_boundaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = ["Step 1: We add 2 and 3, which is 5.", "Step 2: Then we multiply by 4.", "So it is $20$."]
    rows = [{"id": str(n), "problem": f"p{n}", "steps": steps, "label": -1} for n in range(12)]
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(sys, "argv", ["segments", "--data", str(tmp_path), "--half", "develop"])
    assert segments.main() == 0
    shown = capsys.readouterr().out
    assert "| space | 1.000 | 1.000 |" in shown
    assert "0 of " in shown
    monkeypatch.setattr(segments, "segment", lambda text: ([text], "none"))
    assert segments.main() == 1
