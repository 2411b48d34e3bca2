"""Mixtures: shares, order and ids follow from weights and seed alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.records.reading import read_records, write_records
from critic_prm.datasets.mix import MixOptions, Source, mix, parse_sources
from critic_prm.errors import InputError, UsageError


@pytest.fixture
def files(tmp_path: Path, made: Any) -> list[Path]:
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    write_records(paths[0], (made.solution(n, label=-1) for n in range(100)))
    write_records(paths[1], (made.solution(n, label=0, **({"source": "elsewhere"} if n else {})) for n in range(50)))
    return paths


def run(files: list[Path], tmp_path: Path, *weights: float, **options: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    sources = [Source(str(path), weight) for path, weight in zip(files, weights, strict=True)]
    report = mix(sources, tmp_path / "out.jsonl", MixOptions(**options))
    return report, [record.data for record in read_records(tmp_path / "out.jsonl")]


def test_shares_are_exact_and_rows_are_shuffled(files: list[Path], tmp_path: Path) -> None:
    report, rows = run(files, tmp_path, 0.7, 0.3, total=50)
    labels = [row["label"] for row in rows]
    assert Counter(labels) == {-1: 35, 0: 15}
    assert report["sources"]["one.jsonl"] == {"rows": 100, "drawn": 35, "share": 0.7}
    assert labels != sorted(labels)
    assert len({row["id"] for row in rows}) == 50
    assert {row["source"] for row in rows} <= {"one", "two", "elsewhere"}
    assert report["by_class"] == {"erroneous": {"in": 50, "out": 15}, "correct": {"in": 100, "out": 35}}


def test_without_a_number_it_is_the_most_that_the_weights_allow(files: list[Path], tmp_path: Path) -> None:
    assert run(files, tmp_path, 1, 1)[0]["rows_out"] == 100
    assert run(files, tmp_path, 3, 1)[0]["rows_out"] == 133
    assert Counter(row["label"] for row in run(files, tmp_path, 3, 1)[1]) == {-1: 100, 0: 33}


def test_ids_that_two_sources_share_get_the_sources_name(files: list[Path], tmp_path: Path) -> None:
    _, rows = run(files, tmp_path, 2, 1)
    ids = Counter(row["id"] for row in rows)
    assert len(ids) == len(rows) == 150
    assert sum(":" in name for name in ids) == 50


def test_the_same_seed_gives_the_same_bytes(files: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    found = []
    for seed in (1, 1, 2):
        run(files, tmp_path, 1, 1, total=40, seed=seed)
        found.append((out.read_bytes(), Path(f"{out}.report.json").read_bytes()))
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]


def test_a_source_that_is_too_small_is_an_error_or_comes_again(files: list[Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it holds 100 rows, but 150 of 300 are its share"):
        run(files, tmp_path, 1, 1, total=300)
    report, rows = run(files, tmp_path, 1, 1, total=300, repeat=True)
    assert report["sources"]["two.jsonl"]["drawn"] == 150
    assert len({row["id"] for row in rows}) == 300
    texts = Counter(row["problem"] for row in rows if row["label"] == 0)
    assert set(texts.values()) == {3}


def test_weights_are_read_from_words() -> None:
    assert parse_sources(["a.jsonl=0.7", "b=c.jsonl=2", "d.jsonl"]) == [
        Source("a.jsonl", 0.7),
        Source("b=c.jsonl", 2.0),
        Source("d.jsonl", 1.0),
    ]
    for word, said in (
        ("a=x", "'a=x' is not FILE=WEIGHT"),
        ("a=0", "the weight of a is 0"),
        ("a=nan", "the weight of a is nan"),
    ):
        with pytest.raises(UsageError, match=said):
            parse_sources([word])
    with pytest.raises(UsageError, match="a file is named twice"):
        parse_sources(["a=1", "a=2"])
