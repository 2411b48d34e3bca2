"""The benchmark keeps training and test problems apart, and its figures are the official ones."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from distill.data import read_training_set


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / "linear.py"
    spec = importlib.util.spec_from_file_location("bench_linear", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(problem: str, label: int = -1) -> dict[str, Any]:
    return {"id": problem[:9], "source": "s", "problem": problem, "steps": ["a", "b", "c"], "label": label}


def test_problems_of_the_test_set_leave_the_training_set(bench: ModuleType) -> None:
    test = "Janet's ducks lay 16 eggs per day. She eats three for breakfast every morning. How many are left?"
    rows = [
        row(test),
        row("JANET'S DUCKS lay $16$ eggs per day!! She eats three for breakfast, every morning. How many are left"),
        row(test + " Explain your answer step by step."),
        row("A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total does it take?"),
        row("What is 2 + 3?"),
    ]
    assert bench.without_problems_of(rows, [test, "What is 2 + 4?"]) == rows[3:]


def test_the_training_set_is_in_the_contract_and_split_by_problem(bench: ModuleType, tmp_path: Path) -> None:
    rows = [row(f"Problem number {n // 2}?", n % 4 - 1) for n in range(200)]
    bench.write_training_set(rows, tmp_path / "set", 0)
    data = read_training_set(tmp_path / "set")
    assert len(data.train) + len(data.dev) == 200
    assert not {r.problem for r in data.train} & {r.problem for r in data.dev}
    assert len(data.dev) == 30
    first = json.loads((tmp_path / "set" / "train.jsonl").read_text().splitlines()[1])
    assert first["labels"] == [0.0, None, None]


def test_auroc_with_ties_and_weights(bench: ModuleType) -> None:
    generator = np.random.default_rng(0)
    p = generator.integers(0, 9, 300) / 9
    y = generator.uniform(size=300) < p
    w = generator.integers(0, 3, 300).astype(float)
    assert bench.weighted_auroc(p, y, w) == pytest.approx(roc_auc_score(y, p, sample_weight=w))
