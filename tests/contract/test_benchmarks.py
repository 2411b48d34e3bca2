"""Every benchmark in the table can be opened by its name, and its definition is complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from critic_prm.data.records.writing import write_records
from critic_prm.evaluate.benchmarks import SUFFIXES, benchmarks, headline_of, open_benchmark, read_benchmarks, sizes_of

ROW = {"problem": "p", "steps": ["a", "b"], "label": 1}


@pytest.mark.parametrize("name", benchmarks())
def test_a_benchmark_reads_a_folder_of_its_own_files(name: str, tmp_path: Path) -> None:
    benchmark = benchmarks()[name]
    assert benchmark.name == name
    assert benchmark.source
    assert set(benchmark.sizes.values()) <= set(range(10_000))
    subsets = list(benchmark.sizes) or ["any"]
    for place, subset in enumerate(reversed(subsets)):
        write_records(tmp_path / f"{benchmark.prefixes[0] if benchmark.prefixes else ''}{subset}{SUFFIXES[place % 3]}", [ROW])
    parts = open_benchmark(f"{name.replace('_', '-')}:{tmp_path}")
    assert [part.subset for part in parts] == subsets
    assert [(subset, trajectory.first_error()) for subset, trajectory in read_benchmarks(parts)] == [(s, 1) for s in subsets]
    assert sizes_of(parts) == {subset: size for subset, size in benchmark.sizes.items() if size}
    assert headline_of(parts) == benchmark.headline
