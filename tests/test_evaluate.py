"""Evaluation of any critic: it never sees gold, everything it says is scored, and predictions can be saved and read again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Step, Trajectory, blind
from critic_prm.errors import InputError
from critic_prm.evaluate.run import Evaluation, evaluate, evaluation_to_json, read_predictions
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.metrics.scorecard import compare


@dataclass
class Fake(Critic):
    """A critic made by hand: `say` gives the first error and scores, or a status, for a solution and a sample."""

    say: Callable[[Trajectory, int], Any]
    batch: int = 4
    stochastic: bool = False
    named: Mapping[str, Any] = field(default_factory=lambda: {"model": "fake"})
    seen: list[Trajectory] = field(default_factory=list)

    @property
    def card(self) -> Mapping[str, Any]:
        return self.named

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        self.seen += trajectories
        return [self._one(t, sample) for t in trajectories]

    def _one(self, trajectory: Trajectory, sample: int) -> Judgement:
        said = self.say(trajectory, sample)
        if isinstance(said, str):
            return Judgement(said, sample=sample)  # type: ignore[arg-type]
        verdicts = tuple(Verdict(i, "correct" if p >= 0.5 else "incorrect", p_correct=p) for i, p in enumerate(said))
        return Judgement("ok", verdicts, first_error_of(verdicts, len(trajectory.steps)), sample)

    async def close(self) -> None: ...


def bench(n: int = 12) -> list[tuple[str, Trajectory]]:
    """Solutions of two steps: a third right, a third wrong at 0, a third wrong at 1; the texts carry what a critic may know."""
    rows = []
    for i in range(n):
        label = i % 3 - 1
        rows.append(
            (
                "even" if i % 2 == 0 else "odd",
                Trajectory(
                    f"t{i}",
                    f"problem {i}",
                    (Step(f"first {label}", "tool"), Step("second")),
                    final_answer="7",
                    gold_answer="SECRET",
                    label=label,
                    step_labels=tuple(0.0 if j == label else 1.0 for j in range(2)),
                    tools=({"name": "search"},),
                    meta={"note": "SECRET"},
                    extra={"final_answer_correct": "SECRET", "source": "x"},
                ),
            )
        )
    return rows


def knows(trajectory: Trajectory, sample: int = 0) -> list[float]:
    label = int(trajectory.steps[0].text.split()[1])
    return [0.1 if i == label else 0.9 for i in range(2)]


def run(critic: Any, rows: Any = None, each: Any = None, **options: Any) -> Evaluation:
    return asyncio.run(evaluate(critic, rows or bench(), EvaluationSettings(**options), each=each))


def test_a_critic_never_sees_gold() -> None:
    critic = Fake(knows)
    run(critic)
    assert len(critic.seen) == 12
    for trajectory in critic.seen:
        assert (trajectory.label, trajectory.step_labels, trajectory.gold_answer) == (None, None, None)
        assert not trajectory.meta
        assert not trajectory.extra
        assert "SECRET" not in repr(trajectory)
    hidden = blind(bench()[0][1])
    assert (hidden.id, hidden.final_answer, hidden.steps[0].observation) == ("t0", "7", "tool")
    assert hidden.tools


def test_a_perfect_critic_is_perfect() -> None:
    result = run(Fake(knows))
    assert [s.name for s in result.scores.subsets] == ["even", "odd"]
    assert result.scores.mean["f1"].value == 1.0
    assert result.scores.mean["auroc"].value == 1.0
    assert result.scores.mean["brier"].value == pytest.approx(0.01)
    assert result.threshold == "the critic's own verdicts"
    assert result.run["labels"] == {"ok": 12}


def test_a_verifiers_own_threshold_is_named() -> None:
    card = {"provider": "verifier", "threshold": 0.4321, "rule": "lowest-step", "threshold_from": "data/dev"}
    critic = Fake(knows, named=card)
    assert run(critic).threshold == "the verifier's own rule, lowest-step, with threshold 0.4321 (data/dev)"
    unchosen = Fake(knows, named={"provider": "verifier", "threshold": 0.5, "threshold_chosen": False})
    assert "no data to choose it on" in run(unchosen).threshold
    assert run(critic, threshold=0.95).threshold == "threshold 0.95, given by hand"
    assert run(critic, threshold=0.95).scores.mean["accuracy_correct"].value == 0.0
    assert "upper bound" in run(critic, oracle_threshold=True).threshold


def test_unusable_judgements_are_shown_by_status() -> None:
    result = run(Fake(lambda t, s: "refused" if t.id in ("t0", "t2") else knows(t)))
    assert result.scores.subsets[0].unusable == {"refused": 2}
    assert result.scores.subsets[0].metrics["accuracy_correct"].value == 0.5


def test_samples_are_asked_for_and_voted_on() -> None:
    critic = Fake(lambda t, s: knows(t) if s < 2 else [0.1, 0.9], stochastic=True, batch=1)
    result = run(critic, samples=3)
    assert result.samples == 3
    assert len(critic.seen) == 36
    assert result.scores.mean["f1"].value == 1.0
    assert run(Fake(knows), samples=3).samples == 1


def test_solutions_without_gold_are_not_judged() -> None:
    critic = Fake(knows)
    rows = [*bench(), ("even", Trajectory("none", "p", (Step("first 0"),)))]
    assert run(critic, rows).without_gold == 1
    assert len(critic.seen) == 12
    with pytest.raises(InputError, match="none of its 1 solutions has a gold label"):
        run(critic, rows[-1:])


def test_step_labels_without_a_first_error_still_count_for_steps() -> None:
    partial = Trajectory("part", "p", (Step("first 0"), Step("b")), step_labels=(0.9, None))
    rows = [("even", t) for _, t in bench()] + [("even", partial)]
    subset = run(Fake(knows), rows).scores.subsets[0]
    assert (subset.solutions, subset.erroneous + subset.correct, subset.steps) == (13, 12, 25)


def test_predictions_are_saved_and_compared(tmp_path: Path) -> None:
    saved: list[Mapping[str, Any]] = []
    first = run(Fake(knows), each=saved.append)
    path = tmp_path / "saved.jsonl"
    write_records(path, saved)
    assert saved[0]["label"] == -1
    assert saved[0]["first_error"] == -1
    assert saved[0]["benchmark"] == "even"
    assert saved[0]["critic"] == {"model": "fake"}
    again = read_predictions(path)
    assert again == first.cases
    same = compare(first.cases, again)
    assert (same.mean.difference, same.mean.interval.low, same.mean.interval.high) == (0.0, 0.0, 0.0)
    write_records(path, [{k: v for k, v in row.items() if k != "benchmark"} for row in saved])
    with pytest.raises(InputError, match="do not name a benchmark"):
        read_predictions(path)


def test_the_json_says_it_all() -> None:
    row = orjson.loads(orjson.dumps(evaluation_to_json(run(Fake(knows), threshold=0.5))))
    assert row["threshold"] == {"value": 0.5, "from": "given", "words": "threshold 0.5, given by hand"}
    assert row["intervals"]["replicates"] == 2000
    assert row["subsets"][0]["metrics"]["f1"] == {"value": 1.0, "low": 1.0, "high": 1.0, "reason": ""}
    assert set(row["mean"]) >= {"f1", "binary_f1_error", "binary_f1_correct", "auroc", "ece", "brier", "prm_score"}
    oracle = evaluation_to_json(run(Fake(knows), oracle_threshold=True))
    assert "f1" not in oracle["mean"]
    assert oracle["mean"]["f1_oracle"]["value"] == 1.0


def test_an_error_that_stops_the_critic_stops_the_evaluation() -> None:
    from critic_prm.errors import BudgetError

    def broke(trajectory: Trajectory, sample: int) -> Any:
        raise BudgetError("no money")

    with pytest.raises(BudgetError, match="no money"):
        run(Fake(broke))
