"""A short run of the fuzzer of bench/hostile_replies.py: mutated replies cost their own rows and nothing else."""

from __future__ import annotations

from pathlib import Path

from bench.hostile_replies import fuzz


def test_mutated_replies_cost_their_own_rows(tmp_path: Path) -> None:
    found = fuzz(tmp_path, rows=300, bad=100, seed=1)
    assert (found.code, found.tracebacks, found.rows, found.differing) == (3, 0, 300, 0)
    assert found.failed <= 100
