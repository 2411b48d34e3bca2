"""Send malformed and oversized replies to a labelling run.

Run: python bench/hostile_replies.py [--rows 10000] [--bad 1000] [--seed 0]

First a seeded fuzzer: `--bad` real replies, from examples/ and ../shared/data/judge_outputs if it exists, are changed in
types, sizes, encodings, fields, content types and statuses, among rows with valid replies. The run must end with exit
code 3 without a traceback, and all other rows must equal those of an undisturbed run. Then bodies that would
fill the memory: prints how much more memory the process uses than one that labels as many rows without them.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.runs import command, environment, write_input
from bench.server import judgement

ROOT = Path(__file__).resolve().parents[1]
MB = 1_000_000
MOST_RSS, MOST_GROWTH, MOST_GROWTH_TOGETHER = 300.0, 64.0, 256.0
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 0.5, 1e308, 2**53, 2**63, 2**64 - 1, "", "10", "\x1b[2J\x1b]0;x\x07\u202e", "\u0000"),
    *([], {}, [[]], [None], {"a": {}}, ["stop"], [{"type": "text", "text": "x"}], "x" * 100_000, list(range(5000))),
)
STATUSES = (200, 200, 200, 200, 201, 206, 400, 408, 409, 413, 418, 422, 500, 502, 503, 504)
"""Others end the run, as they should, or are waited for."""

TYPES = (
    "application/json",
    "text/html",
    "text/event-stream",
    "application/json; charset=latin-1",
    "",
    "\u00ff/\u00ff",
    "x" * 4000,
)

Send = Callable[[asyncio.StreamWriter], Any]


def real_replies() -> list[str]:
    """Texts of recorded replies, of our own examples and of other people's judges."""
    found: list[str] = []
    for path in [ROOT / "examples" / "replies.jsonl", *sorted((ROOT.parent / "shared/data/judge_outputs").glob("*.jsonl"))]:
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()[:200]]
        found += [max(texts, key=len) for row in rows if (texts := list(_texts(row)))]
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def completion(text: str) -> dict[str, Any]:
    tokens = [
        {"token": word, "logprob": -0.1, "top_logprobs": [{"token": word, "logprob": -0.1}]} for word in text.split()[:20]
    ]
    usage = {"prompt_tokens": 1000, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 10}}
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop", "logprobs": {"content": tokens}}
    return {"id": "1", "object": "chat.completion", "model": "bench", "choices": [choice], "usage": usage}


def mutated(body: Any, draw: random.Random) -> bytes:
    """A response of HTTP, from its status line on, that says something like `body`."""
    for _ in range(draw.randint(1, 3)):
        places = list(_places(body))
        holder, name = draw.choice(places)
        if draw.random() < 0.3:
            holder.pop(name)
        else:
            holder[name] = deepcopy(draw.choice(VALUES))
    if draw.random() < 0.05:
        for _ in range(draw.choice((100, 300, 2000))):
            body = [body] if draw.random() < 0.5 else {"choices": body}
    content = _json(body)
    how = draw.randrange(10)
    if how == 0:
        content = content[: draw.randrange(len(content) + 1)]
    elif how == 1:
        content = bytes(byte if draw.random() > 0.001 else draw.randrange(256) for byte in content)
    elif how == 2:
        content = content.decode(errors="replace").encode(draw.choice(("utf-16", "utf-8-sig", "cp037", "utf-32")), "replace")
    elif how == 3:
        content = draw.choice((b"", b"null", b"[" * 100_000, b"9" * 5000, b"<!doctype html><title>x</title>", b"\xff\xfe\x00"))
    headers = {"Content-Type": draw.choice(TYPES)}
    odd = {"retry-after": ("x", "-1", "0.1"), "x-ratelimit-remaining-requests": ("\u00b2", "9" * 3000, "-1", "x")}
    for name, values in odd.items():
        if draw.random() < 0.2:
            headers[name] = draw.choice(values)
    if draw.random() < 0.1:
        content, headers["Content-Encoding"] = gzip.compress(content), draw.choice(("gzip", "deflate", "gzip, gzip", "x"))
    return response(draw.choice(STATUSES), content, headers)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (holder, name or index) within a nested value."""
    for name, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, name
        if isinstance(item, dict | list) and item and len(item) < 100:
            yield from _places(item)


def _json(value: Any) -> bytes:
    import json

    sys.setrecursionlimit(10_000)
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def response(status: int, content: bytes, headers: Mapping[str, str]) -> bytes:
    named = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{named}Content-Length: {len(content)}\r\n\r\n".encode() + content


@contextmanager
def serving(answers: Mapping[int, Send]) -> Iterator[str]:
    """A judge that answers "Order N" with `answers[N]`, or well. Yields its base URL."""
    ready, stop, found = threading.Event(), asyncio.Event(), list[tuple[str, asyncio.AbstractEventLoop]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = re.search(rb"(?i)content-length: *(\d+)", head)
                wire = orjson.loads(await reader.readexactly(int(size.group(1)) if size else 0))
                named = re.search(r"Order (\d+):", wire["messages"][-1]["content"])
                send = answers.get(int(named.group(1))) if named else None
                if send is None:
                    writer.write(response(200, orjson.dumps(completion(judgement(wire, 1500))), {}))
                else:
                    await send(writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
        found.append((f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", asyncio.get_running_loop()))
        ready.set()
        await stop.wait()
        server.close()

    running = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    running.start()
    ready.wait()
    url, loop = found[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        running.join()


@dataclass(frozen=True)
class Run:
    code: int
    rss: float
    said: str
    rows: dict[str, Any]


def label(folder: Path, name: str, rows: int, answers: Mapping[int, Send], *options: str) -> Run:
    """One `critic-prm label` as a process; `rss` is the most memory it had, in MB."""
    source, out, log = write_input(folder / f"{name}.in.jsonl", rows), folder / f"{name}.jsonl", folder / f"{name}.log"
    with serving(answers) as url, log.open("wb") as stream:
        asked = ("--max-retries", "1", "--follow-ups", "0", "--no-force", "--regenerate", "0", *options)
        run = subprocess.Popen(
            command(source, out, folder / f"{name}.db", url, *asked), env=environment(), stdout=stream, stderr=stream, cwd=ROOT
        )
        _, status, used = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    found = {row["id"]: row for row in map(orjson.loads, out.read_bytes().splitlines())} if out.exists() else {}
    return Run(run.returncode, used.ru_maxrss / 1024, log.read_text(errors="replace"), found)


@dataclass(frozen=True)
class Fuzzed:
    code: int
    tracebacks: int
    rows: int
    differing: int
    failed: int
    rss: float

    @property
    def good(self) -> bool:
        return self.code == 3 and not self.tracebacks and not self.differing and self.rss < MOST_RSS


def fuzz(folder: Path, rows: int, bad: int, seed: int) -> Fuzzed:
    """`bad` mutated replies among `rows`."""
    draw, replies = random.Random(seed), real_replies()
    hit = draw.sample(range(rows), bad)
    contents = {place: mutated(completion(draw.choice(replies)), random.Random(f"{seed} {place}")) for place in hit}

    def sending(content: bytes) -> Send:
        async def send(writer: asyncio.StreamWriter) -> None:
            writer.write(content)

        return send

    right = label(folder, "right", rows, {})
    found = label(folder, "mutated", rows, {place: sending(content) for place, content in contents.items()})
    others = [f"order-{place}" for place in range(rows) if place not in contents]
    differing = sum(found.rows.get(name) != right.rows[name] for name in others)
    failed = sum(row["status"] == "provider_error" for row in found.rows.values())
    return Fuzzed(
        found.code, found.said.count("Traceback"), len(found.rows), differing + (rows - len(found.rows)), failed, found.rss
    )


def blanks(size: int) -> bytes:
    """So many blanks as gzip."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(b" " * MB) for _ in range(size // MB)), packer.flush()])


def pouring(size: int | None, status: int = 200) -> Send:
    """A body of `size` bytes of text, or one without end."""

    async def send(writer: asyncio.StreamWriter) -> None:
        length = f"Content-Length: {size}" if size is not None else "Transfer-Encoding: chunked"
        writer.write(f"HTTP/1.1 {status} X\r\n{length}\r\n\r\n".encode())
        piece, sent = b" " * 0x10000, 0
        while size is None or sent < size:
            part = piece[: len(piece) if size is None else size - sent]
            writer.write(part if size is not None else b"10000\r\n" + part + b"\r\n")
            await writer.drain()
            sent += len(part)

    return send


def packed(content: bytes) -> Send:
    async def send(writer: asyncio.StreamWriter) -> None:
        writer.write(response(200, content, {"Content-Encoding": "gzip"}))

    return send


def memory(folder: Path) -> Iterator[tuple[str, float, float, bool]]:
    """(case, growth in MB, bar, whether the row failed and nothing else) for bodies that would fill the memory."""
    base = label(folder, "base", 64, {}, "--max-connections", "64").rss
    bomb = blanks(1000 * MB)
    cases: dict[str, tuple[Send, int]] = {
        "a reply of 200 MB": (pouring(200 * MB), 1),
        "1 GB of blanks as gzip": (packed(bomb), 1),
        "a reply without end": (pouring(None), 1),
        "an error without end": (pouring(None, 500), 1),
        "64 replies of 200 MB at once": (pouring(200 * MB), 64),
        "64 times 1 GB of blanks at once": (packed(bomb), 64),
        "64 replies without end at once": (pouring(None), 64),
    }
    for number, (what, (send, count)) in enumerate(cases.items()):
        found = label(
            folder, f"case-{number}", 64, dict.fromkeys(range(count), send), "--timeout", "120", "--max-connections", "64"
        )
        failed = sum(row["status"] == "provider_error" for row in found.rows.values())
        good = found.code == 3 and failed == count and "Traceback" not in found.said
        yield what, found.rss - base, MOST_GROWTH if count == 1 else MOST_GROWTH_TOGETHER, good


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--bad", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    missed = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = fuzz(folder, given.rows, given.bad, given.seed)
        missed |= not found.good
        print(
            f"{given.bad:,} mutated replies among {given.rows:,} rows (seed {given.seed}): exit {found.code} (bar 3), ", end=""
        )
        print(
            f"{found.tracebacks} tracebacks, {found.differing} other rows differ (bar 0), {found.failed} provider_error, ",
            end="",
        )
        print(f"{found.rss:.0f} MB (bar {MOST_RSS:.0f}){'' if found.good else '  MISSED'}", flush=True)
        for what, growth, bar, failed in memory(folder):
            good = failed and growth < bar
            missed |= not good
            said = "only its rows failed" if failed else "OTHERWISE THAN IT SHOULD"
            print(f"{what:32} {growth:+6.0f} MB (bar {bar:.0f}), {said}{'' if good else '  MISSED'}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
