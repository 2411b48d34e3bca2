"""Measure the cost of serving: a critic in a process compared with the same critic over HTTP, both on one core.

    python bench/serve.py verifier solutions.jsonl
    python bench/serve.py verifier solutions.jsonl --clients 64 --seconds 10 --core 0
    python bench/serve.py rules --hostile

Throughput: as many clients as asked, one solution a request, the next request when the answer is there; the ratio to
`label` over the same solutions. Latency: requests that arrive at random at 70% of that throughput, whether or not earlier ones
are answered (an open loop: a slow server cannot slow its clients down). Each side runs `--rounds` times, in turn, and the
ratio is the median of the rounds'. It is given by the clock and by processor time, which other work on the machine hardly
changes.

With --hostile it measures what large and hostile requests do to others: how long /health takes while bodies of about 3.5 MB are
scored one after the other, and how far the server's memory grows while a client without a token sends 36 MB of header lines on
one connection. /health is asked 50 times a second whether or not the answer before has come, so that a stop of the server
counts in full. It exits with 1 where the worst /health takes 250 ms or more, or the memory grows by 16 MB or more. The figures
need a quiet machine: while another process has the core, the server stands still, too.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from pathlib import Path

HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"

IN_PROCESS = """
import asyncio, sys, time
from itertools import cycle
from critic_prm.critics.open import open_critic
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.label.run import label
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
    parser.add_argument("solutions", type=Path, nargs="?")
    parser.add_argument("--hostile", action="store_true", help="measure what hostile requests do to others instead")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--core", type=int, default=0, help="the core that the critic runs on; the clients take the others")
    args = parser.parse_args()
    if args.solutions is None and not args.hostile:
        parser.error("name a file of solutions, or use --hostile")
    others = os.sched_getaffinity(0) - {args.core}
    if others:
        os.sched_setaffinity(0, others)
    if args.hostile:
        sys.exit(0 if hostile(args.critic, args.core, args.rounds) else 1)
    bodies = read_bodies(args.solutions)
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

    def __init__(self, critic: str, core: int, environment: Mapping[str, str] | None = None) -> None:
        code = "import sys; from critic_prm.cli import main; main(sys.argv[1:])"
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, "-c", code, "serve", critic, "--port", "0"],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(environment or {}),
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

    def memory(self, name: str = "VmHWM") -> int:
        """Bytes of memory: by default the most that there ever were, with "VmRSS" what there is now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.split(f"{name}:")[1].split()[0])

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
        bodies.append(request("/v1/score", {"trajectories": [{"problem": row["problem"], "steps": row["steps"]}]}))
    return bodies


def request(path: str, body: object) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    return head.encode() + b"\r\n\r\n" + content


def in_process(critic: str, solutions: Path, seconds: float, core: int) -> tuple[float, float]:
    """Solutions per second, and seconds of processor time a solution."""
    command = ["taskset", "-c", str(core), sys.executable, "-c", IN_PROCESS, critic, str(solutions), str(seconds)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.split()
    return float(found[0]), float(found[1])


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> None:
    """Send one request and read its answer, which must be a 200."""
    assert (found := await answered(reader, writer, body)) == 200, found


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes) -> int:
    """The status of a request's answer, which is read to its end."""
    writer.write(body)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
    return int(head.split(b" ", 2)[1])


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


def hostile_requests() -> dict[str, bytes]:
    """Requests of about 3.5 MB by name: what is slow to read, to cut, to judge or to answer."""
    pooled = {
        "[INST]": "[INST]" * 600_000,
        "ChatML": "<|im_start|>user\n" * 200_000,
        "Llama 3": "<|start_header_id|>user<|end_header_id|>\n" * 85_000,
        "Gemma": "<start_of_turn>user\n" * 180_000,
        "almost ChatML": "<|im_start|>" * 290_000,
        "ChatML, no end": "<|im_start|>" + "a" * 3_500_000,
        "bars": "<|" * 1_750_000,
        "step tags": "p\n\n" + "<extra_0>" * 390_000,
        "end tokens": "p\n\n" + "</s>" * 870_000 + "a<extra_0>",
        "one line": "p\n\n" + "a" * 3_500_000,
        "spaces": "p\n\n" + " " * 3_500_000 + "a",
        "blank lines": "p\n\n" + "a\n\n" * 690_000,
        "line ends": "p\n\na" + "\n" * 1_700_000 + "a",
        "step marks": "p\n\n" + "Step 1: a\n" * 310_000,
        "numbers": "p\n\n" + "1. a\n" * 580_000,
    }
    score = {
        "256 x 1024 steps": [{"problem": "p", "steps": ["2 + 2 = 4"] * 1024}] * 256,
        "400 objects x 200": [{"problem": "p", "steps": [{"text": "2 + 2 = 4", "observation": "a"}] * 400}] * 200,
        "long equations": [{"problem": "p", "steps": ["1 + " * 500 + "1 = 5"] * 400}] * 4,
    }
    bodies = {name: request("/pooling", {"input": text}) for name, text in pooled.items()}
    bodies |= {name: request("/v1/score", {"trajectories": rows}) for name, rows in score.items()}
    bodies["rewards"] = request("/get_reward", {"query": ["p\n\n" + "a\n\n" * 1000] * 256, "prompts": ["p\n\n"] * 256})
    for name, value in (("lists", []), ("objects", {}), ("small objects", {"a": 1})):
        bodies[f"ignored {name}"] = request("/get_reward", {"query": [], "labels": [value] * (3_500_000 // len(f"{value}, "))})
    bodies["ignored names"] = request("/get_reward", {"query": [], "labels": [{f"{n:x}": 0 for n in range(290_000)}]})
    return bodies


def hostile(critic: str, core: int, rounds: int) -> bool:
    """Measure and print; whether everything stayed below its bar."""
    worst = 0.0
    with Server(critic, core) as server:
        for name, body in {"nothing": b"", **hostile_requests()}.items():
            codes, seconds, waits = asyncio.run(health_beside(server.port, body, rounds))
            worst = max(worst, max(waits))
            told = f"{len(body) / 1e6:.1f} MB, {'/'.join(map(str, sorted(codes)))} in {seconds:.2f} s" if body else ""
            print(
                f"{name:18} /health: p99 {1000 * quantile(waits, 0.99):6.1f} ms, worst {1000 * max(waits):6.1f} ms; {told}",
                flush=True,
            )
    with Server(critic, core, {"CRITIC_PRM_TOKEN": "0123456789abcdef"}) as server:
        before = server.memory("VmRSS")
        sent = asyncio.run(header_lines(server.port, 36 << 20))
        grown = server.memory() - before
    print(f"36 MB of header lines without a token: {sent / 1e6:.1f} MB taken, memory grew by {grown / 1e6:.1f} MB at most")
    return worst < 0.25 and grown < 16 << 20


async def health_beside(port: int, body: bytes, rounds: int) -> tuple[set[int], float, list[float]]:
    """While `body` is scored `rounds` times: the statuses of its answers, seconds of each, and seconds that /health took."""
    waits: list[float] = []

    async def look(due: float) -> None:
        pair = await asyncio.open_connection("127.0.0.1", port)
        await ask(*pair, HEALTH)
        waits.append(time.perf_counter() - due)
        pair[1].close()

    async def look_often() -> None:
        due = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            while not done.is_set():
                group.create_task(look(due))
                due += 0.02
                await asyncio.sleep(due - time.perf_counter())

    done = asyncio.Event()
    looking = asyncio.create_task(look_often())
    await asyncio.sleep(0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    began = time.perf_counter()
    codes = {await answered(reader, writer, body) for _ in range(rounds)} if body else set()
    seconds = (time.perf_counter() - began) / rounds
    writer.close()
    await asyncio.sleep(0.3)
    done.set()
    await looking
    return codes, seconds, waits


async def header_lines(port: int, size: int) -> int:
    """How many bytes of header lines the server takes on one connection before it ends it, of `size`."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    sent, line = 0, b"x" * 64 + b": " + b"y" * 64 + b"\r\n"
    with suppress(OSError):
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n")
        while sent < size:
            writer.write(line * 512)
            sent += len(line) * 512
            await writer.drain()
    writer.close()
    await asyncio.sleep(0.5)
    return sent


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


if __name__ == "__main__":
    main()
