"""Benchmarks: names and paths to subsets, in their order, a fixed sample, and the genuine files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.records.reading import write_records
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.benchmarks import headline_of, open_benchmark, read_benchmarks, sizes_of


def rows(count: int, name: str = "x", **fields: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"{name}-{i}", "problem": f"{name} {i}", "steps": ["a", "b"], "label": -1 if i >= count // 2 else 0, **fields}
        for i in range(count)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("processbench_omnimath", "processbench_gsm8k", "other"):
        write_records(tmp_path / f"{name}.jsonl", rows(6, name, final_answer_correct=False))
    (tmp_path / "README.md").write_text("not data")
    return tmp_path


def test_a_named_benchmark_takes_its_own_files_in_its_own_order(folder: Path) -> None:
    parts = open_benchmark(f"processbench:{folder}")
    assert [part.subset for part in parts] == ["gsm8k", "omnimath"]
    assert sizes_of(parts) == {"gsm8k": 400, "omnimath": 1000}
    assert Counter(name for name, _ in read_benchmarks(parts)) == {"gsm8k": 6, "omnimath": 6}


def test_a_path_alone_is_anything_with_gold_labels(folder: Path) -> None:
    assert [part.subset for part in open_benchmark(str(folder))] == ["other", "processbench_gsm8k", "processbench_omnimath"]
    (part,) = open_benchmark(str(folder / "other.jsonl"))
    assert [(name, t.label) for name, t in part.read()] == [("other", 0)] * 3 + [("other", -1)] * 3


def test_several_benchmarks_name_theirs_subsets_apart(folder: Path) -> None:
    parts = open_benchmark(f"processbench:{folder}") + open_benchmark(f"prmbench:{folder / 'other.jsonl'}")
    assert {name for name, _ in read_benchmarks(parts)} == {"processbench/gsm8k", "processbench/omnimath", "prmbench/other"}
    assert headline_of(parts) == "f1"
    assert headline_of(parts[2:]) == "prm_score"


def test_the_same_subset_twice_is_refused(folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    again.mkdir()
    write_records(again / "gsm8k.jsonl", rows(2))
    with pytest.raises(UsageError, match="both the subset 'gsm8k'"):
        list(read_benchmarks(open_benchmark(f"processbench:{folder}") + open_benchmark(f"processbench:{again}")))


def test_a_limit_samples_instead_of_taking_the_first(tmp_path: Path) -> None:
    path = tmp_path / "sorted.jsonl"
    write_records(path, rows(200))
    parts = open_benchmark(str(path))
    drawn = [t for _, t in read_benchmarks(parts, limit=40)]
    assert len(drawn) == 40
    assert 10 <= sum(t.label == 0 for t in drawn) <= 30
    assert [t.id for t in drawn] == [t.id for _, t in read_benchmarks(parts, limit=40)]
    assert [t.id for t in drawn] == sorted((t.id for t in drawn), key=lambda name: int(name.partition("-")[2]))
    assert {t.id for _, t in read_benchmarks(parts, limit=20)} < {t.id for t in drawn}
    assert len(list(read_benchmarks(parts, limit=999))) == 200


def test_a_file_may_hold_several_subsets(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    process = {"modified_process": ["a", "b"], "error_steps": [2], "modified_question": "q"}
    kinds = ["circular", "deception", "circular"]
    write_records(path, [{**process, "idx": str(i), "classification": kind} for i, kind in enumerate(kinds)])
    assert Counter(name for name, _ in read_benchmarks(open_benchmark(f"prmbench:{path}"))) == {"circular": 2, "deception": 1}


def test_redundant_steps_are_bad_ones_on_prmbench(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    row = {"modified_process": ["a", "b", "c"], "error_steps": [2], "modified_question": "q", "classification": "redundency"}
    write_records(path, [row])
    ((_, trajectory),) = open_benchmark(f"prmbench:{path}")[0].read()
    assert trajectory.gold() == (1.0, 0.0, 1.0)
    assert trajectory.first_error() == 1


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file or folder.*huggingface\.co/datasets/Qwen/ProcessBench"):
        open_benchmark("processbench:/no/such/place")
    with pytest.raises(InputError, match="has no file of processbench; its files are called gsm8k, math"):
        open_benchmark(f"processbench:{tmp_path}")
    with pytest.raises(UsageError, match="there is no benchmark 'procesbench'; available: agentprocessbench"):
        open_benchmark("procesbench:x")
    with pytest.raises(InputError, match=r"missing\.jsonl: there is no such file"):
        open_benchmark("missing.jsonl")


@pytest.mark.parametrize(
    ("spec", "subsets"),
    [
        ("processbench:processbench", ["gsm8k", "math", "olympiadbench", "omnimath"]),
        ("prmbench:prmbench", ["circular", "confidence", "missing_condition", "redundency", "multi_solutions"]),
        ("mrben:mrben", ["math", "physics", "coding"]),
        ("reasoneval:reasoneval", ["mr-math_invalid_errors", "perturbation"]),
        ("agentprocessbench:agentprocessbench", ["hotpotqa"]),
        (
            "bigbench_mistake:bbm",
            ["dyck_languages", "logical_deduction", "multistep_arithmetic", "tracking_shuffled_objects", "word_sorting"],
        ),
    ],
)
def test_genuine_files(shared_data: Path, spec: str, subsets: list[str]) -> None:
    name, _, path = spec.partition(":")
    found = list(read_benchmarks(open_benchmark(f"{name}:{shared_data / 'original' / path}")))
    assert list(dict.fromkeys(subset for subset, _ in found)) == subsets
    assert sum(t.first_error() is not None for _, t in found) > 0.9 * len(found)
