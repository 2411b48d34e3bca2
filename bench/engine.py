"""Measure the speed of the labelling engine, as ratios to bare clients in the same run.

Run: python bench/engine.py [PART ...] [--short]

Client and server have one core each. Every client sends the same prompts, about 4 kB with 2 kB of reply, and runs `ROUNDS`
times, alternating with the others. The best round counts, because other work on the machine can only slow a round down.

    throughput   256 in flight, 50 ms: the engine as the SDK sends and plainly, against the SDK and aiohttp called bare
    slow         1,024 in flight, 2 s: the engine against the ideal
    cache        labelling from the cache
    million      1,000,000 small rows through the command line: memory and start
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.runs import Server, pin, trajectories

HERE = Path(__file__).resolve()
ROUNDS = 3
MODEL = "bench"


def bodies(count: int) -> list[dict[str, Any]]:
    from critic_prm.critics.llm import with_provider
    from critic_prm.engine.options import JudgeOptions
    from critic_prm.providers.openai import OpenAIProvider

    provider = OpenAIProvider(MODEL, "http://127.0.0.1:1/v1", "none")
    with tempfile.TemporaryDirectory() as folder:
        critic = with_provider(provider, JudgeOptions(db=Path(folder) / "x.db"))
        return [provider.wire(request) for trajectory in trajectories(count) for request in critic.requests(trajectory)]


async def crowd(send: Callable[[dict[str, Any]], Awaitable[Any]], wires: list[dict[str, Any]], inflight: int) -> None:
    source = iter(wires)

    async def worker() -> None:
        for wire in source:
            await send(wire)

    await asyncio.gather(*(worker() for _ in range(inflight)))


async def sdk_default(url: str, wires: list[dict[str, Any]], inflight: int) -> None:
    import openai

    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        await crowd(lambda wire: client.chat.completions.create(**wire), wires, inflight)


async def sdk_post(url: str, wires: list[dict[str, Any]], inflight: int) -> None:
    import httpx2
    import openai

    limits = httpx2.Limits(max_connections=100_000, max_keepalive_connections=100_000)
    http = openai.DefaultAioHttpClient(limits=limits, timeout=httpx2.Timeout(600, connect=30))
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, http_client=http) as client:
        await crowd(lambda wire: client.post("/chat/completions", body=wire, cast_to=object), wires, inflight)


async def bare_aiohttp(url: str, wires: list[dict[str, Any]], inflight: int) -> None:
    import aiohttp
    import orjson

    async def send(wire: dict[str, Any]) -> Any:
        async with session.post(f"{url}/chat/completions", data=orjson.dumps(wire), headers=headers) as response:
            return orjson.loads(await response.read())

    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await crowd(send, wires, inflight)


async def engine(url: str, count: int, inflight: int, *, direct: bool, folder: Path, start: bool = True) -> None:
    """The whole way: trajectories, prompts, keys, cache, gate, money, retries, writer, reader, label file, progress."""
    from critic_prm.critics.llm import with_provider
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.engine.concurrency import reduced_gc
    from critic_prm.engine.options import JudgeOptions
    from critic_prm.label.progress import RunStats, watch
    from critic_prm.label.run import label_into
    from critic_prm.providers.models import Prices
    from critic_prm.providers.openai import OpenAIProvider

    provider = OpenAIProvider(MODEL, url, "none", direct=direct)
    judging = JudgeOptions(db=folder / "cache.db", max_connections=inflight, durable=True, budget_usd=1e6, prices=Prices(1, 2))
    critic, tally = with_provider(provider, judging), RunStats(total=count)
    watching = asyncio.create_task(watch(tally, critic.client))
    with RecordWriter(folder / "labels.jsonl") as sink, reduced_gc():
        await label_into(sink, trajectories(count), critic, tally, workers=inflight)
    watching.cancel()
    await critic.close()
    assert tally.labels == {"ok": count}, tally.labels


CONTENDERS = ("engine-sdk", "engine-direct", "sdk-post", "sdk-default", "aiohttp")


def contend(name: str, url: str, count: int, inflight: int) -> dict[str, float]:
    """Run one contender in this process: seconds and CPU seconds of its requests, imports and preparation left out."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    wires = bodies(count)
    folder = Path(tempfile.mkdtemp())
    runs: dict[str, Callable[[], Awaitable[None]]] = {
        "engine-sdk": lambda: engine(url, count, inflight, direct=False, folder=folder),
        "engine-direct": lambda: engine(url, count, inflight, direct=True, folder=folder),
        "sdk-post": lambda: sdk_post(url, wires, inflight),
        "sdk-default": lambda: sdk_default(url, wires, inflight),
        "aiohttp": lambda: bare_aiohttp(url, wires, inflight),
    }
    if "sdk" in name:
        import openai  # noqa: F401  (its import is not what is measured)

    started, cpu = time.perf_counter(), time.process_time()
    asyncio.run(runs[name]())  # type: ignore[arg-type]
    return {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}


def measured(name: str, url: str, count: int, inflight: int) -> dict[str, float]:
    """One contender in a process of its own on core 0."""
    command = [sys.executable, str(HERE), "--contender", name, "--url", url, "--count", str(count), "--inflight", str(inflight)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, preexec_fn=lambda: pin(0))
    return json.loads(found.stdout)  # type: ignore[no-any-return]


def throughput(short: bool) -> None:
    count, rounds = (500, 1) if short else (4000, ROUNDS)
    best: dict[str, dict[str, float]] = {}
    with Server("--latency", "0.05", core=1) as server:
        for _ in range(rounds):
            for name in CONTENDERS:
                part = count // 2 if name == "sdk-default" else count
                found = measured(name, server.url, part, 256)
                found = {"rate": part / found["seconds"], "cpu_ms": found["cpu"] / part * 1000}
                if name not in best or found["rate"] > best[name]["rate"]:
                    best[name] = found
    for name, found in best.items():
        print(f"{name:14} {found['rate']:7.0f} requests/s  {found['cpu_ms']:.3f} ms CPU each")
    rate = {name: found["rate"] for name, found in best.items()}
    bar("engine through the SDK / SDK client.post", rate["engine-sdk"] / rate["sdk-post"], 0.75)
    bar("engine through the SDK / SDK default", rate["engine-sdk"] / rate["sdk-default"], 2.5)
    bar("engine directly / bare aiohttp", rate["engine-direct"] / rate["aiohttp"], 0.6)
    bar("engine directly / SDK default", rate["engine-direct"] / rate["sdk-default"], 5.0)


def slow(short: bool) -> None:
    """At 2 s latency a run of waves: the ideal is all places full all the time, from the first moment to the last."""
    inflight, waves, latency = (256, 2, 0.5) if short else (1024, 6, 2.0)
    with Server("--latency", str(latency), core=1) as server:
        for name in ("engine-direct", "engine-sdk"):
            found = measured(name, server.url, inflight * waves, inflight)
            share = waves * latency / found["seconds"]
            print(f"{name}: {inflight * waves / found['seconds']:.0f} requests/s with {inflight} in flight at {latency:g} s")
            bar(f"{name} / ideal", share, 0.7)


def cache(short: bool) -> None:
    count = 1000 if short else 5000
    folder = Path(tempfile.mkdtemp())
    with Server("--latency", "0.01", core=1) as server:
        asyncio.run(engine(server.url, count, 64, direct=True, folder=folder))
        best = 0.0
        for _ in range(1 if short else ROUNDS):
            started, cpu = time.perf_counter(), time.process_time()
            asyncio.run(engine(server.url, count, 64, direct=True, folder=folder))
            best = max(best, count / (time.perf_counter() - started))
            used = (time.process_time() - cpu) / count * 1000
    print(f"warm cache: {best:.0f} judgements/s, {used:.3f} ms CPU each")
    bar("judgements a second from the cache", best, 5000)


def million(short: bool) -> None:
    """Small rows through the command line with the rule critic: the peak of memory, and when the first labels are there."""
    count = 20_000 if short else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        with source.open("w") as stream:
            for i in range(count):
                stream.write(f'{{"id": "{i}", "problem": "{i} + 1?", "steps": ["{i} + 1 = {i + 1}."]}}\n')
        out = Path(folder) / "out.jsonl"
        line = [sys.executable, "-m", "critic_prm", "label", str(source), "-o", str(out), "--judge", "rules"]
        started = time.perf_counter()
        process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        first, peak = 0.0, 0
        part = out.with_name(f".{out.name}.part")
        while process.poll() is None:
            if not first and part.exists() and part.stat().st_size:
                first = time.perf_counter() - started
            peak = max(peak, _resident(process.pid))
            time.sleep(0.02)
        seconds = time.perf_counter() - started
    print(f"{count:,} rows, {count / seconds:,.0f} a second; first label after {first:.2f} s; memory {peak} MB at most")
    bar("300 MB / peak memory", 300 / peak, 1.0)
    bar("2 s / time to the first label", 2 / first if first else 0.0, 1.0)


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.split("\n") if line.startswith("VmRSS")), "VmRSS: 0 kB")
    return int(line.split()[1]) // 1000


def bar(what: str, figure: float, least: float) -> None:
    print(f"{what}: {figure:,.2f} (bar {least:g}){'' if figure >= least else '  MISSED'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["throughput"])
    parser.add_argument("--short", action="store_true")
    for name, kind in (("--contender", str), ("--url", str), ("--count", int), ("--inflight", int)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.contender:
        print(json.dumps(contend(given.contender, given.url, given.count, given.inflight)))
        return
    parts = {"throughput": throughput, "slow": slow, "cache": cache, "million": million}
    for part in given.parts:
        parts[part](given.short)


if __name__ == "__main__":
    main()
