"""Runs on two Ray nodes: the same label files as one process, whoever is lost on the way; limits hold for all workers."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from dataclasses import replace
from typing import Any

import pytest

from bench.runs import trajectories
from bench.server import Behaviour, Judge
from critic_prm.critics.remote import RemoteCritic
from critic_prm.data.critic import Critic
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.engine.ray import workers
from critic_prm.engine.ray.sender import RemoteSender
from critic_prm.errors import BudgetError, ConfigError
from critic_prm.label.progress import RunStats
from tests.cluster.conftest import Nodes, Run, together
from tests.effort import until_async

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The judge's end of a connection whose other end was killed is collected as it is."""

TWO = RayOptions(workers=2)


def pool_of(critic: Any) -> Any:
    if isinstance(critic, RemoteCritic):
        return critic.pool
    assert isinstance(critic.client.sender, RemoteSender)
    return critic.client.sender.pool


def kill_one(critic: Any) -> None:
    """End the process of a worker that is at work."""
    pool = pool_of(critic)
    os.kill(pool.places[next(iter(pool.workers))][1], signal.SIGKILL)


async def test_the_label_file_is_that_of_one_process(two: Nodes, judge: Judge, run: Run) -> None:
    """Failures of the server included, byte for byte; what is known is not sent again."""
    marked = Behaviour(latency=0.05, size=300, marked={"Order 3:": "400", "Order 7:": "length", "Order 9:": "refusal"})
    judge.behave(marked)
    one = await run.go("openai/bench", run.judging(judge), 60)
    asked = judge.seen.stats()
    judge.behave(marked)
    judging = run.judging(judge, TWO)
    spread = await run.go("openai/bench", judging, 60)
    assert spread.rows == one.rows
    assert spread.counts == one.counts
    assert spread.counts["row"] == 1
    assert judge.seen.stats()["requests"] == asked["requests"]
    kept = "SELECT key, raw, text, model, provider, base_url, input_tokens, output_tokens FROM reply ORDER BY key"
    files = [sqlite3.connect(run.folder / f"{number}.db").execute(kept).fetchall() for number in (1, 2)]
    assert files[0] == files[1]


async def test_what_the_cache_can_answer_needs_no_cluster(judge: Judge, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    judging = run.judging(judge)
    first = await run.go("openai/bench", judging, 5)

    def refuse(cluster: RayOptions) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(workers, "join", refuse)
    run.done -= 1
    spread = await run.go("openai/bench", run.judging(judge, TWO), 5)
    assert spread.rows == first.rows


async def test_a_limit_of_requests_holds_for_all_workers_and_jobs(two: Nodes, judge: Judge, run: Run) -> None:
    """One request a minute, asked for by two jobs with a worker each: one of their 8 requests is sent, the others wait."""
    critics: list[Any] = []

    async def stop(critic: Critic, tally: RunStats) -> None:
        critics.append(critic)
        await until_async(lambda: len(critics) == 2 and sum(each.client.gate.out for each in critics) == 7)
        critic.client.halt(BudgetError("enough"))  # type: ignore[union-attr]

    jobs = [
        run.go("openai/bench", run.judging(judge, RayOptions(workers=1), rpm=1, salt=salt, max_connections=4), 4, stop)
        for salt in ("a", "b")
    ]
    outcomes = await together(*jobs)
    assert all(isinstance(outcome, BudgetError) for outcome in outcomes)
    assert judge.seen.stats()["requests"] == 1


async def test_solutions_are_spread_and_what_a_lost_worker_had_is_judged_by_another(two: Nodes, judge: Judge, run: Run) -> None:
    one = await run.go("rules", run.judging(judge), 3000)

    async def sabotage(critic: Critic, tally: RunStats) -> None:
        await until_async(lambda: tally.rows >= 300)
        kill_one(critic)

    spread = await run.go("rules", run.judging(judge, TWO), 3000, sabotage)
    assert spread.rows == one.rows
    assert pool_of(spread.critic).lost == 1


async def test_rollouts_are_made_by_workers(two: Nodes, judge: Judge, run: Run) -> None:
    rows = [replace(trajectory, gold_answer="42") for trajectory in trajectories(3)]
    one = await run.go("rollout:openai/bench", run.judging(judge), rows)
    judge.behave(judge.behaviour)
    spread = await run.go("rollout:openai/bench", run.judging(judge, RayOptions(workers=1)), rows)
    assert spread.rows == one.rows
    assert judge.seen.stats()["requests"] == spread.counts["paid"] > 0


async def test_a_worker_that_cannot_be_placed_says_what_the_cluster_has(
    two: Nodes, judge: Judge, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("critic_prm.engine.ray.workers.PATIENCE", 0.5)
    with pytest.raises(ConfigError, match=r"1 CPU and 4 GPU.* of 0 GPUs free.*--workers"):
        await run.go("openai/bench", run.judging(judge, RayOptions(workers=1, worker_gpus=4.0)), 3)


def test_options_name_the_cluster() -> None:
    from critic_prm.engine.options import on_workers

    ray = RayOptions("ray", "1.2.3.4:6379", 3, 0.5)
    judging = on_workers(JudgeOptions(max_connections=10), ray)
    assert judging.cluster == ray
    assert judging.max_connections == 30  # each worker has its own
    assert on_workers(JudgeOptions(), RayOptions(workers=3)) == JudgeOptions()


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"needs Ray: pip install .ray\[data\]"):
        workers.ray_module()


async def test_a_lost_worker_node_and_gate_cost_what_they_had_in_hand(two: Nodes, judge: Judge, run: Run) -> None:
    """The last one here: it takes a cluster ten seconds to notice that a node has gone, and others would wait for them."""
    one = await run.go("openai/bench", run.judging(judge), 300)
    judge.behave(replace(judge.behaviour, latency=0.2))
    bodies = judge.seen.bodies

    async def sabotage(critic: Critic, tally: RunStats) -> None:
        await until_async(lambda: bodies.total() >= 80)
        kill_one(critic)
        await until_async(lambda: bodies.total() >= 180)
        two.lose_second()
        await until_async(lambda: bodies.total() >= 240)
        gate: Any = critic.client.gate  # type: ignore[union-attr]
        os.kill(await gate.actor.process.remote(), signal.SIGKILL)

    spread = await run.go("openai/bench", run.judging(judge, TWO), 300, sabotage)
    assert spread.rows == one.rows
    assert pool_of(spread.critic).lost >= 1
    stats = judge.seen.stats()
    assert stats["bodies"] == 300
    assert 0 < spread.counts["transient"] <= 2 * 32  # at most what was out when worker and node were lost
    assert stats["repeated"] <= spread.counts["transient"]
    attempts = sqlite3.connect(run.folder / "2.db").execute("SELECT DISTINCT detail FROM attempt").fetchall()
    assert attempts == [("worker lost",)]
    assert spread.counts["paid"] == 300
