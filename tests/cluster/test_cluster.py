"""Runs on two Ray nodes: the same label files as one process, whoever is lost on the way; limits hold for all workers."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from typing import Any

import pytest

from bench.server import Behaviour, Judge
from critic_prm.cluster import session
from critic_prm.cluster.critic import RemoteCritic
from critic_prm.cluster.provider import RemoteProvider
from critic_prm.critic import Cluster, Critic
from critic_prm.errors import ConfigError
from tests.cluster.conftest import Nodes, Run, together

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The judge's end of a connection whose other end was killed is collected as it is."""

TWO = Cluster(workers=2)


def pool_of(critic: Any) -> Any:
    if isinstance(critic, RemoteCritic):
        return critic.pool
    assert isinstance(critic.client.provider, RemoteProvider)
    return critic.client.provider.pool


def kill_one(critic: Any) -> None:
    """End the process of a worker that is at work."""
    pool = pool_of(critic)
    os.kill(pool.places[next(iter(pool._lines))][1], signal.SIGKILL)


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

    def refuse(cluster: Cluster) -> None:
        raise AssertionError("Ray was started")

    monkeypatch.setattr(session, "join", refuse)
    run.done -= 1
    spread = await run.go("openai/bench", run.judging(judge, TWO), 5)
    assert spread.rows == first.rows


async def test_a_lost_worker_and_a_lost_node_cost_what_they_had_in_hand(two: Nodes, judge: Judge, run: Run) -> None:
    one = await run.go("openai/bench", run.judging(judge), 300)
    judge.behave(judge.behaviour)
    done: list[str] = []

    def sabotage(rows: int, critic: Critic) -> None:
        if rows >= 60 and "worker" not in done:
            done.append("worker")
            kill_one(critic)
        if rows >= 160 and "node" not in done:
            done.append("node")
            two.lose_second()

    spread = await run.go("openai/bench", run.judging(judge, TWO), 300, sabotage)
    assert done == ["worker", "node"]
    assert spread.rows == one.rows
    assert pool_of(spread.critic).lost >= 1
    stats = judge.seen.stats()
    assert stats["bodies"] == 300
    assert stats["repeated"] <= 2 * 32  # at most what was out when each was lost
    assert spread.counts["transient"] == stats["repeated"] or spread.counts["transient"] > 0
    attempts = sqlite3.connect(run.folder / "2.db").execute("SELECT DISTINCT detail FROM attempt").fetchall()
    assert attempts == [("worker lost",)]


async def test_a_limit_of_requests_holds_for_all_workers_and_jobs(two: Nodes, judge: Judge, run: Run) -> None:
    """40 requests a second, asked for by two jobs with a worker each: 80 requests take two seconds and not one."""
    jobs = [run.go("openai/bench", run.judging(judge, Cluster(workers=1), rpm=2400, salt=salt), 40) for salt in ("a", "b")]
    await together(*jobs)
    stats = judge.seen.stats()
    assert stats["requests"] == 80
    assert stats["seconds"] >= 79 / 40 - 0.3


async def test_solutions_are_spread_and_what_a_lost_worker_had_is_judged_by_another(two: Nodes, judge: Judge, run: Run) -> None:
    one = await run.go("rules", run.judging(judge), 3000)
    done: list[int] = []

    def sabotage(rows: int, critic: Critic) -> None:
        if rows >= 600 and not done:
            done.append(rows)
            kill_one(critic)

    spread = await run.go("rules", run.judging(judge, TWO), 3000, sabotage)
    assert done
    assert spread.rows == one.rows


async def test_a_worker_that_cannot_be_placed_says_what_the_cluster_has(
    two: Nodes, judge: Judge, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("critic_prm.cluster.pool.PATIENCE", 0.5)
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"1 CPU and 4 GPU.* of 0 GPUs free.*--workers"):
        await run.go("openai/bench", run.judging(judge, Cluster(1, gpus=4.0)), 3)
    assert time.monotonic() - began < 20
