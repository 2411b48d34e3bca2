"""Measure the Ray engine on two nodes of this machine: python bench/ray.py [PART ...] [--count 20000] [--short]

same      a job in one process, and on two workers while one is killed and a node is lost: same bytes, nothing paid twice
scale     one and two workers, limited by the server's latency, and by this machine
limits    two jobs with one limit of requests, counted by the server second by second
score     a critic that computes: in this process, with one worker, with two
wire      bytes through the driver, and its CPU time a request
data      what Ray Data sends again when a worker is lost, and what our workers do
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import pickle
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.runs import Server, seen, trajectories
from bench.server import Behaviour, serving
from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic
from critic_prm.data.records.reading import RecordWriter
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.engine.ray.workers import NAMESPACE, ray_module
from critic_prm.label.progress import RunStats
from critic_prm.label.run import label_into

STORE = 80 << 20
CPUS = 2
Spoil = Callable[[int, Critic], None]


@dataclass
class Ran:
    rows: int
    digest: str
    seconds: float
    cpu: float
    critic: Any
    """What is left of it after it was closed: its counts."""
    steady: float
    """Rows a second after the first quarter, in which workers import what they need."""

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


class Machines:
    """Two nodes, and this process connected to them."""

    def __init__(self) -> None:
        ray = ray_module()
        from ray.cluster_utils import Cluster as Nodes

        self.nodes = Nodes(
            initialize_head=True, head_node_args={"num_cpus": CPUS, "object_store_memory": STORE, "include_dashboard": False}
        )
        self.second: Any = None
        self.be_two()
        ray.init(address=self.nodes.address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")

    def be_two(self) -> None:
        if self.second is None:
            self.second = self.nodes.add_node(num_cpus=CPUS, object_store_memory=STORE)

    def lose_second(self) -> None:
        for processes in self.second.all_processes.values():
            for one in processes:
                one.process.kill()
        self.nodes.worker_nodes.discard(self.second)
        self.second = None

    def end(self) -> None:
        ray_module().shutdown()
        self.nodes.shutdown()


async def _go(name: str, judging: JudgeOptions, count: int, out: Path, spoil: Spoil | None) -> Ran:
    critic, tally = open_critic(name, judging), RunStats()

    quarter: list[tuple[float, int]] = []

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.01)
            if not quarter and tally.rows >= count // 4:
                quarter.append((time.monotonic(), tally.rows))
            if spoil is not None:
                spoil(tally.rows, critic)

    watching = asyncio.create_task(watch())
    try:
        with RecordWriter(str(out)) as sink:
            if judging.cluster is not None:
                pool = pool_of(critic)
                await pool.ready()
                while pool.waits():  # noqa: ASYNC110  (for its workers, who are there for good)
                    await asyncio.sleep(0.1)
            began, cpu = time.monotonic(), time.process_time()
            await label_into(sink, trajectories(count), critic, tally, workers=judging.max_connections)
            ended = time.monotonic()
            cpu = time.process_time() - cpu
    finally:
        watching.cancel()
        await critic.close()
    since, rows = quarter[0] if quarter else (began, 0)
    return Ran(tally.rows, digest(out), ended - began, cpu, critic, (tally.rows - rows) / max(ended - since, 1e-9))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def go(count: int, url: str, workers: int = 0, connections: int = 64, name: str = "openai/bench", **more: Any) -> Ran:
    """Label `count` solutions; `workers` 0 is this process alone. `connections` are those of each worker."""
    spoil = more.pop("spoil", None)
    with tempfile.TemporaryDirectory() as folder:
        cluster = RayOptions(workers=workers) if workers else None
        judging = JudgeOptions(
            db=Path(folder) / "x.db", base_url=url, max_connections=connections * max(workers, 1), cluster=cluster, **more
        )
        return asyncio.run(_go(name, judging, count, Path(folder) / "out.jsonl", spoil))


def same(machines: Machines, count: int) -> Iterator[str]:
    with Server("--latency", "0.05") as server:
        one = go(count, server.url)
    done: list[str] = []

    def spoil(rows: int, critic: Any) -> None:
        pool = pool_of(critic)
        if rows >= count // 4 and not done:
            done.append("worker")
            os.kill(pool.places[next(iter(pool.workers))][1], signal.SIGKILL)
        if rows >= count * 3 // 5 and len(done) == 1:
            done.append("node")
            machines.lose_second()

    with Server("--latency", "0.05") as server:
        spread = go(count, server.url, 2, spoil=spoil)
        stats = seen(server.url)
    machines.be_two()
    assert done == ["worker", "node"], done
    yield f"{count:,} solutions, 50 ms, one process: {one.seconds:.1f} s, label file {one.digest}"
    yield f"two workers on two nodes, one killed, then a node gone: {spread.seconds:.1f} s, label file {spread.digest}"
    yield f"same bytes: {one.digest == spread.digest}; rows {spread.rows:,}; requests sent again: {stats['repeated']}"
    counts = spread.critic.client.counts
    yield f"paid {counts['paid']:,}, lost in hand {counts['transient']} (of at most 128 out), workers lost {_lost(spread)}"


def _lost(ran: Ran) -> int:
    return int(pool_of(ran.critic).lost)


def pool_of(critic: Any) -> Any:
    return critic.pool if critic.client is None else critic.client.sender.pool


def scale(machines: Machines, count: int) -> Iterator[str]:
    for latency, connections, share in ((1.0, 8, 125), (0.05, 8, 16), (0.05, 256, 8)):
        rates: dict[int, float] = {}
        for workers in (1, 2, 1, 2):
            with Server("--latency", str(latency)) as server:
                ran = go(count // share, server.url, workers, connections)
            rates[workers] = max(rates.get(workers, 0.0), ran.steady)
        ideal = connections / latency
        yield (
            f"{1000 * latency:.0f} ms, {connections} in flight a worker (ideal {ideal:,.0f}/s):"
            f" 1 worker {rates[1]:,.0f}/s, 2 workers {rates[2]:,.0f}/s,"
            f" ratio {rates[2] / rates[1]:.2f}"
        )


def limits(machines: Machines, count: int) -> Iterator[str]:
    del count
    rpm, each = 6000, 400
    os.environ["OPENAI_API_KEY"] = "sk-bench"
    with serving(Behaviour(latency=0.05, size=300)) as judge, tempfile.TemporaryDirectory() as folder:
        marks: list[tuple[float, int]] = []

        async def both() -> None:
            async def watch() -> None:
                while True:
                    marks.append((time.monotonic(), judge.seen.bodies.total()))
                    await asyncio.sleep(0.05)

            watching = asyncio.create_task(watch())
            jobs = []
            for job in ("a", "b"):
                judging = JudgeOptions(
                    db=Path(folder) / f"{job}.db",
                    base_url=judge.url,
                    max_connections=64,
                    rpm=rpm,
                    salt=job,
                    cluster=RayOptions(workers=2),
                )
                jobs.append(_go("openai/bench", judging, each, Path(folder) / job, None))
            await asyncio.gather(*jobs)
            watching.cancel()

        asyncio.run(both())
        stats = judge.seen.stats()
    most = max(later - before for at, before in marks for when, later in marks if 0 <= when - at <= 1.0)
    yield (
        f"two jobs of two workers, together {rpm / 60:.0f} requests a second: {stats['requests']} in {stats['seconds']:.2f} s,"
        f" {stats['requests'] / stats['seconds']:.1f}/s, most in any second {most}"
    )


def score(machines: Machines, count: int) -> Iterator[str]:
    rates = {}
    digests = set()
    for workers in (0, 1, 2):
        ran = go(2 * count, "http://127.0.0.1:1/v1", workers, name="rules")
        rates[workers] = ran.rate
        digests.add(ran.digest)
    yield (
        f"rules, {2 * count:,} solutions of 6 steps: this process {rates[0]:,.0f}/s, 1 worker {rates[1]:,.0f}/s,"
        f" 2 workers {rates[2]:,.0f}/s; same bytes: {len(digests) == 1}"
    )


def wire(machines: Machines, count: int) -> Iterator[str]:
    with Server("--latency", "0.05") as server:
        one = go(count // 4, server.url, 0, 128)
        spread = go(count // 4, server.url, 2, 64)
    provider = spread.critic.client.provider
    critic = open_critic("openai/bench", JudgeOptions(db=Path(tempfile.mkdtemp()) / "x.db", base_url="http://127.0.0.1:1/v1"))
    request = critic.requests(next(trajectories(1)))[0]  # type: ignore[attr-defined]
    there = len(pickle.dumps((1, provider.wire(request)), pickle.HIGHEST_PROTOCOL))
    yield f"a request to a worker: {there:,} bytes; its answer about {_answer_size():,}"
    for name, ran in (("this process alone", one), ("driver of two workers", spread)):
        yield f"{name}: {ran.rate:,.0f}/s, {1000 * ran.cpu / ran.rows:.3f} ms of CPU a request"


def _answer_size() -> int:
    import urllib.request

    from critic_prm.engine.ray.workers import Outcome
    from critic_prm.providers.provider import RawReply

    with Server("--latency", "0") as server:
        body = b'{"model":"bench","messages":[{"role":"user","content":"There are 6 steps, numbered from 1"}]}'
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/chat/completions", body)) as answer:
            import orjson

            outcome: Outcome = "ok", RawReply(orjson.loads(answer.read()))
    return len(pickle.dumps((1, outcome), pickle.HIGHEST_PROTOCOL))


def data(machines: Machines, count: int) -> Iterator[str]:
    """The same requests through Dataset.map_batches with async actors, results streamed to the driver; one worker is killed."""
    ray = ray_module()
    import ray.data as rd

    count = max(count // 10, 400)

    class Ask:
        def __init__(self, url: str, folder: str) -> None:
            self.url = url
            Path(folder, str(os.getpid())).touch()
            self.session: Any = None

        async def __call__(self, batch: dict[str, Any]) -> Any:
            import aiohttp
            import numpy
            import orjson

            session = self.session = self.session or aiohttp.ClientSession()

            async def one(n: int) -> str:
                body = {"model": "bench", "messages": [{"role": "user", "content": f"There are 6 steps, numbered from 1. {n}"}]}
                async with session.post(f"{self.url}/chat/completions", data=orjson.dumps(body)) as answer:
                    return (await answer.read()).decode()

            replies = await asyncio.gather(*(one(int(n)) for n in batch["id"]))
            yield {"id": batch["id"], "reply": numpy.array(replies, dtype=object)}

    rd.DataContext.get_current().enable_progress_bars = False
    got = {}
    for spoiled in (False, True):
        with Server("--latency", "0.5") as server, tempfile.TemporaryDirectory() as folder:
            rows = rd.range(count, override_num_blocks=max(count // 64, 4)).map_batches(
                Ask,
                batch_size=16,
                fn_constructor_kwargs={"url": server.url, "folder": folder},
                compute=rd.ActorPoolStrategy(size=2, max_tasks_in_flight_per_actor=4, max_concurrent_calls_per_actor=4),
                num_cpus=0.5,
            )
            began = time.monotonic()
            killer = threading.Thread(target=_kill_at, args=(server.url, count // 3, Path(folder)))
            if spoiled:
                killer.start()
            done = sum(1 for _ in rows.iter_rows())
            if spoiled:
                killer.join()
            got[spoiled] = (done, time.monotonic() - began, seen(server.url))
    del ray
    for spoiled, (done, seconds, stats) in got.items():
        what = "one worker killed" if spoiled else "undisturbed"
        yield (
            f"Ray Data, {count:,} requests, {what}: {done} rows in {seconds:.1f} s, {stats['repeated']} requests sent again,"
            f" {stats['whole_twice']} of which had been answered in full"
        )
    dead: list[int] = []

    def spoil(rows: int, critic: Any) -> None:
        pool = pool_of(critic)
        if rows >= count // 3 and not dead:
            dead.append(rows)
            os.kill(pool.places[next(iter(pool.workers))][1], signal.SIGKILL)

    with Server("--latency", "0.5") as server:
        ran = go(count, server.url, 2, 64, spoil=spoil)
        stats = seen(server.url)
    yield (
        f"our workers, the same, one killed: {ran.rows} rows in {ran.seconds:.1f} s, {stats['repeated']} sent again,"
        f" {stats['whole_twice']} of which had been answered in full"
    )


def _kill_at(url: str, requests: int, folder: Path) -> None:
    """End the first worker that has left its number in `folder`, once the server has seen so many requests."""
    there = 0
    while there < requests:
        time.sleep(0.05)
        with suppress(ConnectionError):  # a server that is just being asked by hundreds
            there = seen(url)["requests"]
    os.kill(int(min(folder.iterdir()).name), signal.SIGKILL)


PARTS = {part.__name__: part for part in (same, scale, limits, score, wire, data)}


@contextmanager
def machines() -> Iterator[Machines]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = Machines()
    try:
        yield there
    finally:
        there.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--short", action="store_true", help="a tenth of it")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"there is no part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    os.environ["OPENAI_API_KEY"] = "sk-bench"
    count = given.count // (10 if given.short else 1)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    with machines() as there:
        for name in given.parts or PARTS:
            began = time.monotonic()
            for line in PARTS[name](there, count):
                print(f"{name}: {line}", flush=True)
            print(f"{name}: {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
