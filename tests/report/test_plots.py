"""PNG files for papers."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from critic_prm.evaluate.report.plots import write_plots
from critic_prm.evaluate.report.runs import read_runs
from tests.report.making import judged, saved


def test_every_chart_is_a_png_of_the_asked_size(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are an extra: pip install 'critic-prm[plot]'")
    rows = [judged(str(n), ["x", "y"], n % 3 - 1, gold=n % 2 - 1, source="ab"[n % 2]) for n in range(30)]
    runs = read_runs([saved(tmp_path / f"{name}.jsonl", rows) for name in ("one", "two")])
    paths = write_plots(runs, tmp_path / "plots", dpi=100)
    assert [path.name for path in paths] == ["reliability.png", "roc.png", "f1.png", "first-errors.png"]
    for path in paths:
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">II", head[16:24]) == (340, 270)


def test_without_gold_there_is_only_what_needs_none(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots are an extra: pip install 'critic-prm[plot]'")
    runs = read_runs([saved(tmp_path / "a.jsonl", [judged("a", ["x"], 0)])])
    assert [path.name for path in write_plots(runs, tmp_path, dpi=72)] == ["first-errors.png"]
