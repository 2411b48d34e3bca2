"""Two Ray nodes on this machine, started once; a loopback judge; runs of a critic over solutions."""

from __future__ import annotations

import asyncio
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from bench.runs import trajectories
from bench.server import Behaviour, Judge, serving
from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic
from critic_prm.data.records.reading import RecordWriter
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.engine.ray.workers import NAMESPACE, ray_module
from critic_prm.label.progress import RunStats
from critic_prm.label.run import label_into

pytest.importorskip("ray", reason="the extra `ray` is not installed")


@dataclass
class Nodes:
    """Two nodes with room for two workers each; `second` may be lost, and is there again for the next test."""

    machines: Any
    second: Any = None

    def be_two(self) -> None:
        if self.second is None:
            self.second = self.machines.add_node(num_cpus=2, object_store_memory=80 << 20)

    def lose_second(self) -> None:
        """As when a machine goes: all of its processes at once, without a word."""
        for processes in self.second.all_processes.values():
            for one in processes:
                one.process.kill()
        lost, self.second = self.second, None
        self.machines.worker_nodes.discard(lost)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Nodes]:
    """Two nodes on this machine, this process connected to them."""
    ray = ray_module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster as Machines

        first = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
        nodes = Nodes(Machines(initialize_head=True, head_node_args=first))
        nodes.be_two()
        ray.init(address=nodes.machines.address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    yield nodes
    ray.shutdown()
    nodes.machines.shutdown()


@pytest.fixture
def two(cluster: Nodes) -> Nodes:
    cluster.be_two()
    return cluster


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judge]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with serving(Behaviour(latency=0.05, size=300)) as judge:
        yield judge


@dataclass
class Ran:
    """What a run has written, and what it counted."""

    rows: bytes
    counts: Counter[str]
    critic: Critic


@dataclass
class Run:
    folder: Path
    done: int = 0

    def judging(self, judge: Judge, cluster: RayOptions | None = None, **more: Any) -> JudgeOptions:
        self.done += 1
        settings: dict[str, Any] = {"db": self.folder / f"{self.done}.db", "base_url": judge.url, "max_connections": 16, **more}
        return JudgeOptions(cluster=cluster, **settings)

    async def go(
        self,
        name: str,
        judging: JudgeOptions,
        rows: int | Sequence[Trajectory],
        meanwhile: Callable[[Critic, RunStats], Coroutine[Any, Any, None]] | None = None,
    ) -> Ran:
        """Label solutions, or so many of the usual ones, while `meanwhile` does what it likes."""
        critic, tally = open_critic(name, judging), RunStats()
        other = asyncio.create_task(meanwhile(critic, tally)) if meanwhile is not None else None
        out = self.folder / f"{self.done}-{uuid4().hex}.jsonl"
        client = critic.client
        try:
            with RecordWriter(str(out)) as sink:
                await label_into(
                    sink,
                    trajectories(rows) if isinstance(rows, int) else rows,
                    critic,
                    tally,
                    workers=judging.max_connections,
                )
        finally:
            await critic.close()
            if other is not None:
                await other
        return Ran(out.read_bytes(), client.counts if client else Counter(), critic)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def together(*runs: Any) -> Any:
    async def all_of() -> Any:
        return await asyncio.gather(*runs, return_exceptions=True)

    return all_of()
