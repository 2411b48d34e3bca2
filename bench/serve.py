"""What serving costs: a critic in a process against the same critic behind HTTP, both on one core.

    python bench/serve.py verifier solutions.jsonl
    python bench/serve.py verifier solutions.jsonl --clients 64 --seconds 10 --core 0

Throughput: as many clients as asked, one solution a request, the next request when the answer is there; the ratio to
`label` over the same solutions. Latency: requests that arrive at random at 70% of that throughput, whether or not earlier ones
are answered (an open loop: a slow server cannot slow its clients down). Each side runs `--rounds` times, in turn, and the
ratio is the median of the rounds'. It is given by the clock and by processor time, which other work on the machine hardly
changes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

IN_PROCESS = """
import asyncio, sys, time
from itertools import cycle
from critic_prm.critic import open_critic
from critic_prm.formats import read_trajectories
from critic_prm.label import label
rows = list(read_trajectories(sys.argv[2]))
async def main():
    critic = open_critic(sys.argv[1])
    end, count = None, 0
    def source():
        for row in cycle(rows):
            if end is not None and time.perf_counter() > end:
                return
            yield row
    async for _ in label(source(), critic):
        if end is None:
            began, worked = time.perf_counter(), time.process_time()
            end = began + float(sys.argv[3])
        count += 1
    print(count / (time.perf_counter() - began), (time.process_time() - worked) / count)
asyncio.run(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("critic")
    parser.add_argument("solutions", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0, help="the core that the critic runs on; the clients take the others")
    args = parser.parse_args()
    bodies = read_bodies(args.solutions)
    others = os.sched_getaffinity(0) - {args.core}
    if others:
        os.sched_setaffinity(0, others)
    with Server(args.critic, args.core) as server:
        asyncio.run(closed_loop(server.port, bodies, args.clients, 2.0))
        inside, served = [], []
        for _ in range(args.rounds):
            inside.append(in_process(args.critic, args.solutions, args.seconds, args.core))
            worked, began = server.worked(), time.perf_counter()
            speed = asyncio.run(closed_loop(server.port, bodies, args.clients, args.seconds))
            answers = speed * (time.perf_counter() - began)
            served.append((speed, (server.worked() - worked) / answers))
        rate = 0.7 * statistics.median(speed for speed, _ in served)
        waits = [asyncio.run(open_loop(server.port, bodies, rate, args.seconds)) for _ in range(args.rounds)]
    speeds = [statistics.median(speed for speed, _ in side) for side in (inside, served)]
    works = [statistics.median(work for _, work in side) for side in (inside, served)]
    for name, side, speed, work in zip(("in process", "served"), (inside, served), speeds, works, strict=True):
        each = ", ".join(f"{x:.0f}" for x, _ in side)
        print(f"{name:10} {speed:8.1f} solutions/s ({each}), {1000 * work:.2f} ms of the core each")
    clock = statistics.median(other / one for (one, _), (other, _) in zip(inside, served, strict=True))
    core = works[0] / works[1]
    print(f"ratio      {clock:8.2f} by the clock, {core:.2f} by the core's time; {args.clients} clients")
    for found in waits:
        p50, p99 = quantile(found, 0.5), quantile(found, 0.99)
        print(
            f"at {rate:.0f}/s: p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms, ratio {p99 / p50:.1f}, {len(found)} requests"
        )


class Server:
    """`critic-prm serve` as a process on one core."""

    def __init__(self, critic: str, core: int) -> None:
        code = "import sys; from critic_prm.cli import main; main(sys.argv[1:])"
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, "-c", code, "serve", critic, "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if " at http://" not in line:
            sys.exit(line + self.process.stderr.read())
        self.port = int(line.split(" at http://")[1].split(",")[0].rpartition(":")[2])

    def worked(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(30)


def read_bodies(path: Path) -> list[bytes]:
    """One request a solution, ready to be sent."""
    bodies = []
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        content = json.dumps({"trajectories": [{"problem": row["problem"], "steps": row["steps"]}]}).encode()
        head = f"POST /v1/score HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
        bodies.append(head.encode() + b"\r\n\r\n" + content)
    return bodies


def in_process(critic: str, solutions: Path, seconds: float, core: int) -> tuple[float, float]:
    """Solutions per second, and seconds of processor time a solution."""
    command = ["taskset", "-c", str(core), sys.executable, "-c", IN_PROCESS, critic, str(solutions), str(seconds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
    return float(found[0]), float(found[1])


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    """Send one request and read its answer, which must be a 200."""
    writer.write(body)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))


async def closed_loop(port: int, bodies: Sequence[bytes], clients: int, seconds: float) -> float:
    """Answers per second when every client asks again as soon as it is answered."""
    source, end, count = cycle(bodies), time.perf_counter() + seconds, 0

    async def client() -> None:
        nonlocal count
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            await ask(reader, writer, next(source))
            count += 1
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return count / (time.perf_counter() - began)


async def open_loop(port: int, bodies: Sequence[bytes], rate: float, seconds: float) -> list[float]:
    """Seconds from when each request was due to its answer; requests are due at random, `rate` a second on average."""
    rng, source = random.Random(0), cycle(bodies)
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    waits: list[float] = []

    async def one(due: float, body: bytes) -> None:
        pair = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
        await ask(*pair, body)
        waits.append(time.perf_counter() - due)
        idle.append(pair)

    due, tasks = time.perf_counter() + 0.1, []
    end = due + seconds
    while due < end:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(one(due, next(source))))
        due += rng.expovariate(rate)
    await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    return waits


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


if __name__ == "__main__":
    main()
