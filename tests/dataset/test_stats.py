"""Counts of datasets, and the picture of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.judgement import Judgement
from critic_prm.data.records.reading import write_records
from critic_prm.datasets.describe import plot_statistics, statistics
from critic_prm.errors import ConfigError


def test_everything_is_counted(tmp_path: Path, made: Any) -> None:
    write_records(
        tmp_path / "labels.jsonl",
        [
            made.labelled(made.solution(0, label=1), made.judgement(3, 1, ["ab", "abcd"]), made.judgement(3, 1, ["", ""])),
            made.labelled(made.solution(1), made.judgement(3, -1)),
            made.labelled(made.solution(2), Judgement("refused")),
        ],
    )
    write_records(
        tmp_path / "gold.jsonl",
        [
            {**made.solution(0, 20, label=19), "source": "mine"},
            {**made.solution(0, 2), "step_labels": [0.25, None], "weight": 3.0},
            {**made.solution(0, 2), "id": "again", "step_labels": [0.75, None], "weight": 1.0},
        ],
    )
    found = statistics([tmp_path / "labels.jsonl", tmp_path / "gold.jsonl"])
    assert (found["rows"], found["problems"], found["distinct_solutions"]) == (6, 3, 5)
    assert found["classes"] == {"erroneous": 3, "correct": 1, "partial": 1, "unlabelled": 1}
    assert found["sources"] == {
        "gold": {"erroneous": 1, "partial": 1},
        "labels": {"erroneous": 1, "correct": 1, "unlabelled": 1},
        "mine": {"erroneous": 1},
    }
    assert found["steps"] == {"good": 4 + 19 + 1, "bad": 1 + 1 + 1, "unlabelled": 4 + 2}
    assert found["first_error_at_step"] == {"1": 1, "2": 1, "15+": 1}
    assert found["status"] == {"ok": 2, "refused": 1}
    assert found["judgements_a_row"] == {"1": 2, "2": 1}
    assert found["length"]["steps"] == {"mean": 33 / 6, "median": 3, "95%": 3, "most": 20}
    assert found["length"]["critique"]["most"] == len("checked number 0 by hand")
    assert found["p_correct"] == [2, 0, 1, 0, 0, 0, 0, 1, 0, 23]
    assert found["weights"] == {"rows": 2, "effective_rows": 1.6, "largest": 3.0}


def test_the_picture_is_drawn(tmp_path: Path, made: Any) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the extra plot")
    write_records(tmp_path / "x.jsonl", [made.solution(n, label=n % 3 - 1) for n in range(9)])
    summary = statistics([tmp_path / "x.jsonl"])
    for name in ("a.png", "b.png", "c.svg"):
        plot_statistics(summary, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert b"<svg" in (tmp_path / "c.svg").read_bytes()


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    write_records(tmp_path / "x.jsonl", [made.solution(0, label=0)])
    with pytest.raises(ConfigError, match=r"pip install .matplotlib"):
        plot_statistics(statistics([tmp_path / "x.jsonl"]), tmp_path / "a.png")
