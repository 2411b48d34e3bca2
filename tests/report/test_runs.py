"""What a report reads, and the numbers behind its charts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from critic_prm.critics.rules import RuleCritic
from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.report.runs import (
    align,
    cases_of,
    difference,
    figures,
    positions,
    read_runs,
    reliability,
    roc,
    source_of,
    steps_with_gold,
    usage_of,
)
from critic_prm.evaluate.run import evaluate, evaluation_to_json
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.metrics.scores import auroc
from tests.report.making import judged, saved


def test_a_label_file_is_a_run(tmp_path: Path) -> None:
    path = saved(tmp_path / "mine.labels.jsonl", [judged("a", ["x", "y"], 1, gold=1), judged("b", ["x"], -1, gold=-1)])
    (tmp_path / "mine.labels.jsonl.run.json").write_text(json.dumps({"cost_usd": 0.5, "seconds": 3}))
    (run,) = read_runs([path])
    assert (run.name, run.card["model"], len(run.rows)) == ("mine", "gpt-5.4-mini", 2)
    found = figures(run)
    assert found["counts"]["trajectories"] == 2
    assert found["counts"]["statuses"] == {"ok": 2}
    assert found["money"]["tokens"] == {"input": 2000, "cached": 0, "output": 200, "reasoning": 0}
    assert found["money"]["cost"] == pytest.approx(2 * usage_of(run.rows[0])[1])  # type: ignore[operator]
    assert found["money"]["bought"] == 0.5
    assert found["scores"]["mean"]["f1"][0] == 1.0


def test_an_unknown_price_is_unknown_and_not_nothing(tmp_path: Path) -> None:
    card = {"provider": "vllm", "model": "mine"}
    (run,) = read_runs([saved(tmp_path / "a.jsonl", [judged("a", ["x"], -1, card=card)])])
    assert figures(run)["money"]["cost"] is None


async def test_an_evaluation_joins_the_predictions_of_its_critic(tmp_path: Path) -> None:
    benchmark = [("s", Trajectory(str(n), f"p{n}", (Step(f"{n} + 1 = {n + 1 + n % 2}"),), label=n % 2 - 1)) for n in range(8)]
    rows: list[object] = []
    result = await evaluate(RuleCritic(), benchmark, EvaluationSettings(resamples=100), each=rows.append)
    write_records(tmp_path / "predictions.jsonl", rows)
    write_records(tmp_path / "eval.json", [evaluation_to_json(result)])
    write_records(tmp_path / "eval.jsonl", [evaluation_to_json(result)])
    (run,) = read_runs([tmp_path / "eval.json", tmp_path / "predictions.jsonl"])
    assert run.evaluation["mean"]["f1"]["value"] == result.scores.mean["f1"].value
    assert figures(run)["scores"]["subsets"][0]["name"] == "s"
    (alone,) = read_runs([tmp_path / "eval.jsonl"])
    assert (alone.name, len(alone.rows)) == ("eval", 0)
    assert figures(alone)["scores"]["mean"]["f1"][0] == result.scores.mean["f1"].value


async def test_intervals_are_those_of_the_command_line(tmp_path: Path) -> None:
    """The page resampled 1,000 times and `evaluate` 2,000 times, so the same labels had two intervals."""
    benchmark = [
        ("s", Trajectory(str(n), f"p{n // 2}", (Step(f"{n} + 1 = {n + 1 + (n % 3 == 0)}"),), label=n % 2 - 1))
        for n in range(24)
    ]
    rows: list[object] = []
    result = await evaluate(RuleCritic(), benchmark, each=rows.append)
    write_records(tmp_path / "predictions.jsonl", rows)
    shown = figures(read_runs([tmp_path / "predictions.jsonl"])[0])["scores"]["mean"]
    for name in ("f1", "accuracy_correct", "step_accuracy"):
        metric = result.scores.mean[name]
        assert shown[name] == [metric.value, metric.low, metric.high]
        assert metric.low is not None
        assert metric.low < metric.value < metric.high  # type: ignore[operator]


def test_runs_are_compared_where_only_one_names_the_source(tmp_path: Path) -> None:
    plain = [judged(str(n), ["x", "y"], n % 2 - 1, gold=n % 2 - 1) for n in range(20)]
    one, other = read_runs(
        [saved(tmp_path / "a.jsonl", plain), saved(tmp_path / "b.jsonl", [{**row, "benchmark": "sums"} for row in plain])]
    )
    found = difference(one, other)
    assert found is not None
    assert (found["matched"], found["difference"]) == (20, 0.0)


def test_what_is_no_label_file_is_refused(tmp_path: Path) -> None:
    write_records(tmp_path / "plain.jsonl", [{"id": "a", "problem": "p", "steps": ["s"]}])
    with pytest.raises(InputError, match="neither a label file nor an evaluation"):
        read_runs([tmp_path / "plain.jsonl"])
    with pytest.raises(UsageError, match="9 files"):
        read_runs(["a"] * 9)


def test_runs_are_aligned_by_id_and_content(tmp_path: Path) -> None:
    one = saved(tmp_path / "one.jsonl", [judged("a", ["x"], -1), judged("b", ["x"], -1)])
    other = saved(tmp_path / "two.jsonl", [judged("b", ["x"], 0), judged("a", ["another step"], 0)])
    rows = align(read_runs([one, other]))
    assert [(t.id, [label is not None for label in labels]) for t, labels in rows] == [
        ("a", [True, False]),
        ("b", [True, True]),
        ("a", [False, True]),
    ]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        saved(tmp_path / folder / "labels.jsonl", [judged("a", ["x"], -1)])
    assert [run.name for run in read_runs([tmp_path / "x/labels.jsonl", tmp_path / "y/labels.jsonl"])] == [
        "labels",
        "labels (2)",
    ]


def test_where_a_trajectory_comes_from() -> None:
    assert source_of(Trajectory("a", "p", (), extra={"benchmark": "gsm8k"}, meta={"source": "m"})) == "gsm8k"
    assert source_of(Trajectory("a", "p", (), meta={"source": "m"})) == "m"
    assert source_of(Trajectory("a", "p", ())) == ""


def test_the_roc_has_the_area_that_auroc_says() -> None:
    rng = np.random.default_rng(0)
    good = (rng.random(3000) < 0.7).astype(np.float64)
    p = np.round(np.clip(good * 0.3 + rng.random(3000) * 0.7, 0, 1), 2).astype(np.float64)
    points: NDArray[np.float64] = np.array(roc(good, p), dtype=np.float64)
    assert points[0].tolist() == [0, 0]
    assert points[-1].tolist() == [1, 1]
    assert np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(auroc(good, p), abs=2e-3)
    assert roc(np.ones(3), np.ones(3)) == []


def test_reliability_counts_every_step_once() -> None:
    good, p = np.array([1.0, 0, 1, 1]), np.array([0.05, 0.1, 0.95, 1.0])
    bins = reliability(good, p)
    assert [(b["n"], round(b["p"], 3), b["right"]) for b in bins] == [(2, 0.075, 0.5), (2, 0.975, 1.0)]


def test_first_errors_are_counted_by_step(tmp_path: Path) -> None:
    rows = [judged("a", ["x"] * 20, 19, gold=0), judged("b", ["x"], 0), judged("c", ["x"], -1), judged("d", ["x"], None)]
    (run,) = read_runs([saved(tmp_path / "a.jsonl", rows)])
    found = positions(run.rows)
    assert found["said"] is not None
    assert (found["said"][0], found["said"][-1], sum(found["said"])) == (1, 1, 2)
    assert found["gold"] is not None
    assert found["gold"][0] == 1


def test_two_runs_differ_by_the_f1_of_what_both_judged(tmp_path: Path) -> None:
    def rows(right: int) -> list[dict[str, object]]:
        return [judged(str(n), ["x", "y"], n % 2 - 1 if n < right else 1, gold=n % 2 - 1) for n in range(40)]

    one, other = read_runs([saved(tmp_path / "a.jsonl", rows(40)), saved(tmp_path / "b.jsonl", rows(20))])
    found = difference(one, other)
    assert found is not None
    assert found["difference"] == pytest.approx(0.5)
    assert found["interval"]["low"] > 0.2
    assert difference(one, read_runs([saved(tmp_path / "c.jsonl", [judged("z", ["x"], 0)])])[0]) is None


def test_steps_with_gold_are_those_with_both(tmp_path: Path) -> None:
    rows = [judged("a", ["x", "y", "z"], 1, gold=2), judged("b", ["x"], None, gold=0, status="refused")]
    (run,) = read_runs([saved(tmp_path / "a.jsonl", rows)])
    good, p = steps_with_gold(cases_of(run.rows))
    assert (good.tolist(), p.tolist()) == ([1.0, 1.0], [1.0, 0.0])
