"""A threshold chosen on one subset: the published protocol of ProcessBench for process reward models."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.benchmarks import open_benchmark, read_benchmarks
from critic_prm.evaluate.run import Evaluation, evaluate, evaluation_to_json
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.evaluate.threshold import ThresholdSource, choose, open_threshold_source
from critic_prm.metrics.scorecard import Case
from critic_prm.metrics.scores import first_below, first_error_f1
from tests.test_evaluate import Fake

Rows = list[dict[str, Any]]


def solutions(name: str, count: int, low: float) -> Rows:
    """Solutions of two steps whose texts carry the scores that a critic gives; wrong steps score from `low` to `low` + 0.3."""
    generator = np.random.default_rng(len(name))
    rows = []
    for i in range(count):
        first = i % 3 - 1
        scores = [float(np.round(generator.uniform(low, low + 0.3) if s == first else generator.uniform(0.6, 1), 3))
                  for s in range(2)]  # fmt: skip
        rows.append({"id": f"{name}-{i}", "problem": f"{name} {i}", "steps": [str(p) for p in scores], "label": first})
    return rows


def scores_of(trajectory: Trajectory, sample: int = 0) -> list[float]:
    return [float(step.text) for step in trajectory.steps]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_records(tmp_path / "gsm8k.jsonl", solutions("gsm8k", 30, 0.4))
    write_records(tmp_path / "math.jsonl", solutions("math", 60, 0.6))
    write_records(tmp_path / "omnimath.jsonl", [row for row in solutions("omnimath", 9, 0.5) if row["label"] < 0])
    return tmp_path


def run(critic: Fake, folder: Path, spec: str, files: str = "", limit: int | None = None) -> Evaluation:
    rows = read_benchmarks(open_benchmark(f"processbench:{folder}{files}"), limit)
    source = open_threshold_source(spec, limit)
    return asyncio.run(evaluate(critic, rows, EvaluationSettings(resamples=100), threshold_from=source))


def best(rows: Rows) -> float:
    gold = [row["label"] for row in rows]
    scores = [[float(step) for step in row["steps"]] for row in rows]
    taus = sorted({p for each in scores for p in each})
    middles = [(a + b) / 2 for a, b in pairwise(taus)]
    return max(first_error_f1(gold, [first_below(p, tau) for p in scores]).f1 or 0.0 for tau in middles)


def test_the_threshold_is_the_best_one_of_the_subset_and_is_used_for_all(folder: Path) -> None:
    critic = Fake(scores_of)
    result = run(critic, folder, f"processbench:{folder}#gsm8k")
    f1 = {subset.name: subset.metrics["f1"].value for subset in result.scores.subsets}
    assert f1["gsm8k"] == pytest.approx(best(solutions("gsm8k", 30, 0.4)))
    assert result.chosen is not None
    assert result.chosen.f1 == pytest.approx(f1["gsm8k"])
    assert result.chosen.solutions == 30
    tau, others = result.chosen.value, solutions("math", 60, 0.6)
    assert result.scores.threshold == tau
    predicted = [first_below([float(step) for step in row["steps"]], tau) for row in others]
    assert f1["math"] == pytest.approx(first_error_f1([row["label"] for row in others], predicted).f1)
    assert result.threshold == f"threshold {tau:.4g}, chosen on gsm8k (30 solutions)"
    row = evaluation_to_json(result)["threshold"]
    assert (row["from"], row["value"], row["words"]) == ("benchmark", tau, result.threshold)
    assert row["chosen"]["source"] == "gsm8k"


def test_solutions_that_are_also_in_the_benchmark_are_judged_once(folder: Path) -> None:
    critic = Fake(scores_of)
    result = run(critic, folder, f"processbench:{folder}#math")
    assert [subset.name for subset in result.scores.subsets] == ["gsm8k", "math", "omnimath"]
    assert [subset.solutions for subset in result.scores.subsets] == [30, 60, 3]
    assert sorted(t.id for t in critic.seen) == sorted(case.id for cases in result.cases.values() for case in cases)
    assert result.run["rows"] == 93
    apart = Fake(scores_of)
    other = run(apart, folder, f"processbench:{folder}#math", "/gsm8k.jsonl")
    assert [subset.name for subset in other.scores.subsets] == ["gsm8k"]
    assert len(apart.seen) == 90
    assert other.scores.threshold == result.scores.threshold
    assert all(t.label is None for t in critic.seen)


def test_the_order_of_predictions_is_that_of_the_benchmark(folder: Path) -> None:
    saved: list[Any] = []
    rows = list(read_benchmarks(open_benchmark(f"processbench:{folder}")))
    mixed = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    source = open_threshold_source(f"processbench:{folder}#gsm8k")
    asyncio.run(evaluate(Fake(scores_of), mixed, EvaluationSettings(resamples=100), threshold_from=source, each=saved.append))
    assert [row["id"] for row in saved] == [trajectory.id for _, trajectory in mixed]
    assert all(row["p_correct"] == [float(step) for step in row["steps"]] for row in saved)


def test_solutions_and_steps_without_a_score() -> None:
    """The index of a first error is that of the solution, and a solution without scores has no say."""

    def case(gold: int, *p: float | None) -> Case:
        return Case("", "", gold, (None,) * len(p), p, None, "ok")

    cases = [case(2, None, 0.9, 0.3), case(-1, 0.4, None), case(0, None, 0.2), case(0, None, None)]
    chosen = choose(ThresholdSource("x", {}), {"x": cases})
    assert 0.3 < chosen.value <= 0.4
    assert chosen.solutions == 3
    assert chosen.f1 == pytest.approx(2 / 3)  # half of the errors: a step without a score cannot be found


def test_a_whole_benchmark_is_averaged_over_its_subsets(folder: Path) -> None:
    result = run(Fake(scores_of), folder, f"processbench:{folder}")
    assert result.chosen is not None
    assert result.chosen.source == "gsm8k, math, omnimath"
    both = [subset.metrics["f1"].value or 0.0 for subset in result.scores.subsets[:2]]
    assert result.chosen.f1 == pytest.approx(np.mean(both))


def test_what_cannot_be_chosen_on(folder: Path) -> None:
    with pytest.raises(UsageError, match="no subset 'gsm'; available: gsm8k, math, omnimath"):
        open_threshold_source(f"processbench:{folder}#gsm")
    with pytest.raises(InputError, match="one kind only"):
        open_threshold_source(f"processbench:{folder}#omnimath")
    with pytest.raises(UsageError, match="gives verdicts only"):
        run(Fake(lambda t, n: [1.0, 0.0]), folder, f"processbench:{folder}#gsm8k")
    with pytest.raises(UsageError, match="gives verdicts only"):
        run(Fake(lambda t, n: "refused"), folder, f"processbench:{folder}#gsm8k")
