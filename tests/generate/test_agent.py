"""The reward of a run shared out among its steps: the worked numbers of both AgentPRMs, and runs that share histories."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from critic_prm.cli import build
from critic_prm.data.trajectory import Step, Trajectory, trajectory_from_json
from critic_prm.errors import InputError, UsageError
from critic_prm.generate.agent import AgentStats, credited, discounted, reward_of, td_lambda
from critic_prm.generate.options import CreditOptions


def test_promise_and_progress_worked_example() -> None:
    start, values, rewards = 0.4, (0.5, 0.3, 0.7), (0, 0, 1)
    advantages, promise = td_lambda(start, values, rewards, 0.95, 1.0)
    assert advantages == pytest.approx([0.54175, 0.465, 0.7])
    assert promise == pytest.approx([0.94175, 0.965, 1.0])
    assert td_lambda(start, values, rewards, 0.0, 1.0)[0] == pytest.approx([0.1, -0.2, 0.7])
    assert td_lambda(start, values, rewards, 0.0, 1.0)[1] == pytest.approx([0.5, 0.3, 1.0])
    assert td_lambda(start, values, rewards, 1.0, 1.0)[1] == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize("seed", range(20))
def test_with_lambda_1_the_promise_is_the_discounted_return(seed: int) -> None:
    rng = Random(seed)
    n, gamma = rng.randint(1, 9), rng.choice([1.0, 0.9, 0.5])
    values, rewards = [rng.random() for _ in range(n)], [rng.random() for _ in range(n)]
    _, promise = td_lambda(rng.random(), values, rewards, 1.0, gamma)
    for t in range(n):
        assert promise[t] == pytest.approx(sum(gamma**k * rewards[t + k] for k in range(n - t)))


def test_both_ways_to_discount_worked_example() -> None:
    assert discounted(1.0, 3, 0.95, "elapsed") == pytest.approx([1.0, 0.975, 0.95125])
    assert discounted(1.0, 3, 0.95, "to-go") == pytest.approx([0.95125, 0.975, 1.0])
    assert discounted(0.0, 3, 0.95, "to-go") == pytest.approx([0.04875, 0.025, 0.0])


def run(name: str, actions: str, reward: Any, **fields: Any) -> Trajectory:
    """Actions as letters; each is answered with itself."""
    steps = tuple(Step(f"do {a}", f"saw {a}") for a in actions)
    return Trajectory(name, "the task", steps, meta={"reward": reward}, **fields)


def shares(found: Trajectory, name: str) -> Any:
    return pytest.approx(found.meta["agent"][name])


def test_progress_from_labelled_runs_worked_example() -> None:
    one = run("a", "xyz", 1, extra={"p_correct": [0.5, 0.3, 0.7]})
    others = [run(f"{i}", "u", reward, extra={"p_correct": [0.5]}) for i, reward in enumerate([1, 0, 0, 0])]
    found = credited([one, *others], CreditOptions(values="labels"))[0]
    assert shares(found, "start") == 0.4
    assert shares(found, "promise") == [0.94175, 0.965, 1.0]
    assert shares(found, "progress") == [0.54175, 0.02325, 0.035]
    assert sum(found.meta["agent"]["progress"]) == pytest.approx(0.6)
    gae = credited([one, *others], CreditOptions(values="labels", progress="gae"))[0]
    assert shares(gae, "progress") == [0.54175, 0.465, 0.7]
    with pytest.raises(InputError, match="p_correct"):
        credited([run("b", "x", 1)], CreditOptions(values="labels"))


def test_runs_with_the_same_history_are_averaged() -> None:
    runs = [run("a", "xy", 1), run("b", "xz", 0), run("c", "w", 0), run("d", "xy", 1)]
    account = AgentStats()
    found = credited(runs, CreditOptions(method="returns"), account)
    assert [f.meta["agent"]["promise"] for f in found] == [
        [pytest.approx(2 / 3), 1],
        [pytest.approx(2 / 3), 0],
        [0],
        [pytest.approx(2 / 3), 1],
    ]
    assert found[0].meta["agent"]["runs"] == [3, 2]
    assert found[0].meta["agent"]["start"] == 0.5
    assert list(found[0].step_labels or ()) == [pytest.approx(2 / 3), 1.0]
    by_progress = credited(runs, CreditOptions(method="returns", labels="progress"))
    assert [f.step_labels for f in by_progress] == [(1.0, 1.0), (1.0, 0.0), (0.0,), (1.0, 1.0)]
    assert account.counts["shared"] == 5
    # By TD, the step at which a run parted for the worse loses the most.
    td = credited(runs, CreditOptions())[1].meta["agent"]["progress"]
    assert td[1] < 0
    # An observation that differs parts the histories only after its own step.
    other = Trajectory("e", "the task", (Step("do x", "saw nothing"), Step("do y", "saw y")), meta={"reward": 0})
    assert credited([*runs, other], CreditOptions(method="returns"))[4].meta["agent"]["runs"] == [4, 1]


def test_where_the_reward_is_found() -> None:
    assert reward_of(run("a", "x", True)) == 1.0
    assert reward_of(run("a", "x", None, extra={"success": False})) == 0.0
    assert reward_of(run("a", "x", None, extra={"mine": 0.25}), "mine") == 0.25
    assert reward_of(run("a", "x", None)) is None
    assert reward_of(run("a", "x", None, final_answer="3", gold_answer="3.0")) == 1.0
    with pytest.raises(InputError, match="from 0 to 1"):
        reward_of(run("a", "x", 7))
    for wrong in ({"gamma": 2}, {"prior": -1}, {"method": "returns", "progress": "gae"}, {"discount": "never"}):
        with pytest.raises(UsageError):
            CreditOptions(**wrong)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"id": str(i), "problem": "t", "steps": [{"text": "a", "observation": "o"}, "b"], "reward": i % 2} for i in range(4)
    ] + [{"id": "x", "problem": "t", "steps": ["a"]}]
    (tmp_path / "in.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    out = tmp_path / "out.jsonl"
    build()(["generate", "agent", str(tmp_path / "in.jsonl"), "-o", str(out)], standalone_mode=False)
    found = [trajectory_from_json(orjson.loads(line), "out") for line in out.read_bytes().splitlines()]
    assert len(found) == 4
    assert all(t.step_labels for t in found)
    assert "4 runs of 1 tasks, 2 of them successes; 1 left out without a reward" in capsys.readouterr().err


def test_real_runs(shared_data: Path) -> None:
    from critic_prm.data.formats.convert import read_trajectories

    runs = list(read_trajectories(str(shared_data / "open" / "agentprocessbench_hotpotqa.jsonl")))
    account = AgentStats()
    found = credited(runs, CreditOptions(), account)
    assert len(found) + account.counts["without a reward"] == len(runs)
    assert found
    for t in found:
        assert t.step_labels is not None
        assert all(isinstance(p, float) and 0 <= p <= 1 for p in t.step_labels)
