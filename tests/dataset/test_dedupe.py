"""Copies, exact and near: which row stays, what is listed, and how good the estimate of similarity is."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic_prm.data.records.reading import read_records, write_records
from critic_prm.datasets.duplicates import DedupeOptions, dedupe
from critic_prm.datasets.similarity import Signatures, bands, neighbours, shingles, signature, similarity
from critic_prm.datasets.words import masked, words
from critic_prm.errors import UsageError

LEXICON = [f"{a}{b}" for a in ("ba", "ko", "mi", "ru", "te", "zu", "la", "po") for b in ("rin", "dal", "mos", "ket", "vun")]


def text(rng: random.Random, length: int) -> list[str]:
    return [rng.choice(LEXICON) for _ in range(length)]


def test_the_estimate_of_similarity_is_as_good_as_it_says() -> None:
    rng = random.Random(3)
    errors = []
    for _ in range(300):
        one = text(rng, 120)
        other = list(one)
        for place in rng.sample(range(120), rng.randrange(25)):
            other[place] = rng.choice(LEXICON)
        a, b = shingles(one, 3), shingles(other, 3)
        true = len(np.intersect1d(a, b)) / len(np.union1d(a, b))
        errors.append(similarity(signature(a), signature(b)) - true)
    assert abs(np.mean(errors)) < 0.01
    assert np.std(errors) < 0.045


@pytest.mark.parametrize("threshold", [0.5, 0.8, 0.9, 0.95])
def test_near_pairs_are_met(threshold: float) -> None:
    count, size = bands(threshold)
    assert count * size <= 128
    assert 1 - (1 - threshold**size) ** count >= 0.99


def test_every_pair_of_near_copies_is_found_among_many() -> None:
    rng = random.Random(4)
    signatures = Signatures()
    texts = [text(rng, 100) for _ in range(2000)]
    for number in range(1, 2000, 100):
        texts[number] = [*texts[number - 1][:50], "changed", *texts[number - 1][51:]]
    for tokens in texts:
        signatures.add(shingles(tokens, 3))
    table = signatures.table()
    found = {
        (other, number)
        for number, near in neighbours(table, 0.9)
        for other in near
        if similarity(table[number], table[other]) >= 0.9
    }
    assert found == {(number - 1, number) for number in range(1, 2000, 100)}


def test_words_know_numbers_commands_and_operators() -> None:
    assert words(r"Then $\frac{1,000}{2.5} = 3x$, it's \(y-1\).") == [
        *("then", "\\frac", "1,000", "2.5", "=", "3", "x", "it's", "y", "-", "1"),
    ]
    assert masked("Mary Ann has twenty-five apples; she gives 3 to Bob.") == masked("Joe has 7 apples; he gives eleven to Sue.")
    assert masked("The 3-hour trip of 25-year-old Al") == masked("The two-hour trip of twenty-year-old Bea")
    assert masked("Solve x + 3 = 5") == masked("Solve y + 10 = 1")
    assert masked("Solve x + 3 = 5") != masked("Solve x - 3 = 5")
    assert words("???") == ["???"]


def listed(path: Path) -> list[dict[str, Any]]:
    return [record.data for record in read_records(path)]


def test_the_first_of_copies_stays_and_the_others_are_listed(tmp_path: Path, made: Any) -> None:
    rng = random.Random(5)
    long = [" ".join(text(rng, 40)) for _ in range(4)]
    near = [*long[:3], long[3] + " changed"]
    rows = [
        made.solution(0, label=1) | {"steps": long},
        made.solution(1, label=-1),
        made.solution(0, label=1) | {"id": "spaces", "steps": [step.upper() + "  " for step in long]},
        made.solution(0, label=1) | {"id": "near", "steps": near},
        made.solution(0, label=2) | {"id": "another error", "steps": [*near[:2], near[2] + " x", near[3]]},
        made.solution(0, label=-1) | {"id": "another label", "steps": long},
    ]
    write_records(tmp_path / "in.jsonl", rows)
    report = dedupe(tmp_path / "in.jsonl", tmp_path / "out.jsonl", removed=tmp_path / "gone.jsonl")
    assert listed(tmp_path / "out.jsonl") == [rows[0], rows[1], rows[4]]
    gone = listed(tmp_path / "gone.jsonl")
    assert [(row["id"], row["reason"], row["copy_of"], row["copy_of_row"]) for row in gone] == [
        ("spaces", "exact copy", "s0", 1),
        ("near", "near copy", "s0", 1),
        ("another label", "exact copy with another first error", "s0", 1),
    ]
    assert 0.9 <= gone[1]["similarity"] < 1
    assert report["near_copies_with_another_first_error_kept"] == 1
    assert report["by_class"] == {"erroneous": {"in": 4, "out": 2}, "correct": {"in": 2, "out": 1}}
    assert report["left_out"] == {
        "exact copy": {"erroneous": 1},
        "exact copy with another first error": {"correct": 1},
        "near copy": {"erroneous": 1},
    }
    dedupe(tmp_path / "in.jsonl", tmp_path / "out.jsonl", DedupeOptions(across_labels=True))
    assert len(listed(tmp_path / "out.jsonl")) == 2
    dedupe(tmp_path / "in.jsonl", tmp_path / "out.jsonl", DedupeOptions(near=None))
    assert len(listed(tmp_path / "out.jsonl")) == 4


def test_a_changed_operator_makes_no_copy(tmp_path: Path) -> None:
    rows = [{"problem": "p", "steps": [f"3 {sign} 1 = 4"], "label": -1} for sign in "+-"]
    write_records(tmp_path / "in.jsonl", rows)
    assert dedupe(tmp_path / "in.jsonl", tmp_path / "out.jsonl")["rows_out"] == 2


def test_one_row_a_problem(tmp_path: Path, made: Any) -> None:
    rows = [
        made.solution(0, label=1),
        made.solution(0, 5, label=-1) | {"id": "b", "problem": "what is the VALUE of thing $0$?"},
    ]
    write_records(tmp_path / "in.jsonl", [*rows, made.solution(1)])
    report = dedupe(tmp_path / "in.jsonl", tmp_path / "out.jsonl", DedupeOptions(by="problem"))
    assert [row["id"] for row in listed(tmp_path / "out.jsonl")] == ["s0", "s1"]
    assert report["left_out"] == {"exact copy": {"correct": 1}}


@pytest.mark.parametrize(
    ("options", "said"),
    [({"by": "id"}, "--by is 'id'"), ({"near": 0.1}, "--near is 0.1; it must be at least 0.3 and at most 1")],
)
def test_wrong_options_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        DedupeOptions(**options)
