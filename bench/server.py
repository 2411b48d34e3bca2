"""Serve a simulated judge on the loopback for tests and benchmarks, with replies that depend on the prompt only, and faults.

Speaks Chat Completions (POST .../chat/completions) and Anthropic's Messages (POST .../messages). The reply to a prompt is
always the same: a critique a step and boxed verdicts, drawn from the prompt's hash. What goes wrong is drawn from `seed`, the
body and how often that body has come, so a run can be repeated. GET /stats returns what the server has seen, GET /bodies
how often each request came, by its key in a cache (of the first sample, without a salt).

    python bench/server.py --latency 0.05 --rate 20 --retry-after date --fault 500=0.1 --fault stall=0.05

prints {"url": ...} and serves until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import partial
from hashlib import sha256
from typing import Any, Literal

import orjson

from critic_prm.providers.provider import request_key

RetryAfter = Literal["seconds", "date", "ms", "absent", "absurd"]

STATUSES: dict[str, tuple[int, str]] = {
    "400": (400, "invalid_request_error"),
    "401": (401, "invalid_api_key"),
    "402": (402, "payment_required"),
    "403": (403, "permission_denied"),
    "404": (404, "model_not_found"),
    "413": (413, "request_too_large"),
    "500": (500, "server_error"),
    "503": (503, "unavailable"),
    "529": (529, "overloaded_error"),
    "quota": (429, "insufficient_quota"),
    "context": (400, "context_length_exceeded"),
}
FINISHES = ("length", "refusal", "filter", "blank", "misshapen")
BROKEN = ("reset", "reset-middle", "stall", "truncated", "html", "empty-choices", "event-stream")
FAULTS = (*STATUSES, *FINISHES, *BROKEN)
"""Faults of an answer: an error status, an unusable reply, a broken connection or body."""


@dataclass(frozen=True)
class Behaviour:
    """How the server behaves. `latency` is in seconds. `rate` is how many requests a second it takes (with `burst` saved up),
    answering 429 beyond it in the manner of `retry_after`. `faults` maps kinds to probabilities; `marked` maps texts to
    the fault that a prompt containing them always gets. `told` are further faults by name: status, header lines, JSON body.
    `key` is the only key that is accepted; the refusal quotes the wrong
    one, as some servers do. `limits` sends rate-limit headers, `obeys` answers in JSON where a schema is asked for. `size`
    pads replies to about so many characters."""

    latency: float = 0.05
    rate: float | None = None
    burst: float = 5.0
    retry_after: RetryAfter = "seconds"
    faults: Mapping[str, float] = field(default_factory=dict)
    marked: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, tuple[int, str, Any]] = field(default_factory=dict)
    key: str | None = None
    limits: bool = False
    obeys: bool = False
    size: int = 1500
    seed: int = 0


class Seen:
    """What has come in and gone out: per body, per kind of answer, and when."""

    def __init__(self) -> None:
        self.bodies: Counter[str] = Counter()
        self.whole: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.late: Counter[str] = Counter()
        self.out = self.most_out = self.connections = 0
        self.headers: dict[str, str] = {}
        self.body: Any = None
        self.first = self.last = 0.0

    def answer(self, kind: str, body: str) -> None:
        self.answers[kind] += 1
        self.last = time.monotonic()
        if self.last - self.first > 10:
            self.late[kind] += 1
        if kind == "ok":
            self.whole[body] += 1

    def stats(self) -> dict[str, Any]:
        """`whole_twice` counts bodies that got a whole reply more than once; `late` are answers after the first 10 s."""
        return {
            "requests": self.bodies.total(),
            "bodies": len(self.bodies),
            "repeated": self.bodies.total() - len(self.bodies),
            "whole_twice": sum(count > 1 for count in self.whole.values()),
            "answers": dict(self.answers),
            "late": dict(self.late),
            "most_out": self.most_out,
            "connections": self.connections,
            "seconds": self.last - self.first,
        }


class Judge:
    """The server's state: its behaviour, what it has seen, and the bucket of its rate limit."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour, self.seen = behaviour, Seen()
        self.url = ""
        self.loop: asyncio.AbstractEventLoop
        self.open: set[asyncio.Transport] = set()
        self.holding = False
        self._held: list[Callable[[], None]] = []
        self._level, self._stamp = behaviour.burst, time.monotonic()

    def behave(self, behaviour: Behaviour) -> None:
        """Start over with another behaviour and nothing seen."""
        self.behaviour, self.seen = behaviour, Seen()
        self.holding, self._held = False, []
        self._level, self._stamp = behaviour.burst, time.monotonic()

    def hold(self) -> None:
        """Answer nobody from now on: what comes in stays out until `release`, however slow this machine is."""
        self.holding = True

    def release(self, *, all_later: bool = False) -> None:
        """Answer those who wait now; those who come later wait for the next release, or with `all_later` for nobody."""
        self.holding = not all_later
        self.loop.call_soon_threadsafe(self._let_go)

    def later(self, answer: Callable[[], None]) -> None:
        """Send an answer after the latency, or after the next release."""
        if self.holding:
            self._held.append(answer)
        else:
            self.loop.call_later(self.behaviour.latency, answer)

    def _let_go(self) -> None:
        held, self._held = self._held, []
        for answer in held:
            answer()

    def admits(self) -> bool:
        rate = self.behaviour.rate
        if rate is None:
            return True
        now = time.monotonic()
        self._level = min(self._level + (now - self._stamp) * rate, self.behaviour.burst)
        self._stamp = now
        if self._level < 1:
            return False
        self._level -= 1
        return True

    def fault(self, body: bytes, digest: str) -> str | None:
        behaviour = self.behaviour
        for text, kind in behaviour.marked.items():
            if text.encode() in body:
                return kind
        if not behaviour.faults:
            return None
        drawn = random.Random(f"{behaviour.seed} {digest} {self.seen.bodies[digest]}").random()
        for kind, share in behaviour.faults.items():
            if drawn < share:
                return kind
            drawn -= share
        return None

    def throttled(self) -> bytes:
        how, wait = self.behaviour.retry_after, 1.0
        header = {
            "seconds": f"Retry-After: {wait:.0f}\r\n",
            "date": f"Retry-After: {formatdate(time.time() + wait, usegmt=True)}\r\n",
            "ms": f"retry-after-ms: {wait * 1000:.0f}\r\n",
            "absent": "",
            "absurd": "Retry-After: 987654321\r\n",
        }[how]
        return _http(429, _error("rate_limit_exceeded", "Rate limit reached for requests"), header)

    def reply(self, path: str, wire: Any, size: int, kind: str | None) -> bytes:
        schema = _schema(wire) if self.behaviour.obeys else None
        text = judgement(wire, self.behaviour.size) if schema is None else orjson.dumps(_instance(schema)).decode()
        finish = {"length": "length", "filter": "content_filter"}.get(kind or "", "stop")
        if kind == "length":
            text = text[: len(text) // 3]
        elif kind == "blank":
            text = ""
        elif kind == "misshapen":
            text = "All of it looks fine to me."
        if any(isinstance(message["content"], list) for message in wire["messages"]):
            size = len(orjson.dumps({**wire, "messages": plain(wire["messages"])}))
        used = size // 4, len(text) // 4 + 1
        if path.endswith("/messages"):
            return orjson.dumps(_message(wire, text, finish, kind, used))
        refusal = "I cannot help with that." if kind == "refusal" else None
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": text, "refusal": refusal},
            "finish_reason": finish,
            "logprobs": None,
        }
        if refusal:
            choice["message"]["content"] = None
        usage = {"prompt_tokens": used[0], "completion_tokens": used[1], "total_tokens": sum(used)}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": wire.get("model")}
        return orjson.dumps({**whole, "choices": [] if kind == "empty-choices" else [choice], "usage": usage})


def plain(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages whose blocks of text are joined: cache markers do not change what a model answers."""

    def text(content: Any) -> Any:
        return content if isinstance(content, str) else "".join(block["text"] for block in content)

    return [{**message, "content": text(message["content"])} for message in messages]


def judgement(wire: Mapping[str, Any], size: int) -> str:
    """A reply in the stepwise form for the prompt in `wire`; its verdicts follow from the prompt's hash."""
    last = wire["messages"][-1]["content"]
    prompt = last if isinstance(last, str) else "".join(str(block.get("text")) for block in last)
    found = _STEPS.findall(prompt)
    steps = 1 if not found else int(found[-1] or 1)
    drawn = int.from_bytes(sha256(prompt.encode()).digest()[:8], "big")
    wrong = drawn % (steps + 1)
    judged = min(wrong + 1, steps)
    critique = "The step follows from what was given; redoing its computation gives the same value. " * 60
    share = max(size // judged, 40)
    parts = []
    for step in range(judged):
        verdict = "incorrect" if step == wrong else "correct"
        parts.append(f"Step {step + 1}: ({drawn % 9973}) {critique[:share]}\nThe step is \\boxed{{{verdict}}}\n")
    return "\n".join(parts)


def _schema(wire: Mapping[str, Any]) -> Any:
    """The JSON schema of a request in either dialect, None without one."""
    named = (wire.get("response_format") or {}).get("json_schema") or (wire.get("output_config") or {}).get("format") or {}
    return named.get("schema")


def _instance(schema: Mapping[str, Any]) -> Any:
    """Something that obeys a simple schema."""
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object":
        return {name: _instance(inner) for name, inner in schema.get("properties", {}).items()}
    return {"array": [], "integer": 0, "number": 0, "boolean": True}.get(str(schema.get("type")), "as asked")


_STEPS = re.compile(r"There (?:is 1 step|are (\d+) steps), numbered from")


class Connection(asyncio.Protocol):
    """One client connection: requests one after another, answered after the latency."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.transport: Any = None
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.judge.open.add(self.transport)
        self.judge.seen.connections += 1

    def connection_lost(self, error: Exception | None) -> None:
        self.judge.open.discard(self.transport)

    def data_received(self, data: bytes) -> None:
        self.buffer = self.buffer + data if self.buffer else data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end]
            length = _LENGTH.search(head)
            size = int(length.group(1)) if length else 0
            if len(self.buffer) < end + 4 + size:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + size], self.buffer[end + 4 + size :]
            self.request(head, body)

    def request(self, head: bytes, body: bytes) -> None:
        method, path = head.split(b" ", 2)[:2]
        seen = self.judge.seen
        if method == b"GET":
            what = seen.bodies if path == b"/bodies" else seen.stats()
            self.transport.write(_http(200, orjson.dumps(what)))
            return
        now = time.monotonic()
        seen.first = seen.first or now
        wire = orjson.loads(body)
        digest = request_key(wire)
        seen.bodies[digest] += 1
        if not seen.headers:
            seen.headers = {
                name.decode().lower(): value.decode().strip()
                for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])
            }
            seen.body = wire
        seen.out += 1
        seen.most_out = max(seen.most_out, seen.out)
        answer = self.decide(head, path.decode(), body, wire, digest)
        self.judge.later(partial(self.respond, answer, digest))

    def decide(self, head: bytes, path: str, body: bytes, wire: Any, digest: str) -> tuple[str, bytes]:
        judge, behaviour = self.judge, self.judge.behaviour
        if behaviour.key is not None and behaviour.key.encode() not in head:
            wrong = re.search(rb"(?i)(?:x-api-key: |authorization: bearer )([^\r]*)", head)
            said = f"Incorrect API key provided: {wrong.group(1).decode() if wrong else ''}"
            return "401", _http(401, _error("invalid_api_key", said))
        if not judge.admits():
            return "429", judge.throttled()
        kind = judge.fault(body, digest)
        if kind is not None and kind in behaviour.told:
            status, extra, told = behaviour.told[kind]
            return kind, _http(status, orjson.dumps(told), extra)
        if kind in STATUSES:
            status, code = STATUSES[kind]
            return kind, _http(status, _error(code, f"made to fail: {kind}"))
        if kind == "html":
            return kind, _http(200, b"<!DOCTYPE html><title>Sign in</title>", type="text/html")
        content = judge.reply(path, wire, len(body), kind)
        if kind == "truncated":
            content = content[: len(content) // 2]
        if kind == "event-stream":
            return kind, _http(200, b"data: " + content + b"\n\n", type="text/event-stream")
        extra = "x-ratelimit-limit-requests: 10000\r\nx-ratelimit-remaining-requests: 9999\r\n" if behaviour.limits else ""
        return kind or "ok", _http(200, content, extra)

    def respond(self, answer: tuple[str, bytes], digest: str) -> None:
        kind, content = answer
        seen = self.judge.seen
        seen.out -= 1
        if self.transport.is_closing():
            seen.answer("gone", digest)
            return
        seen.answer(kind, digest)
        if kind == "stall":
            return
        if kind == "reset":
            self.transport.abort()
        elif kind == "reset-middle":
            self.transport.write(content[: len(content) // 2])
            asyncio.get_running_loop().call_later(0.01, self.transport.abort)
        else:
            self.transport.write(content)


_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


def _http(status: int, content: bytes, extra: str = "", type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {type}\r\nContent-Length: {len(content)}\r\n{extra}\r\n"
    return head.encode() + content


def _error(code: str, message: str) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": code, "code": code}})


def _message(wire: Mapping[str, Any], text: str, finish: str, kind: str | None, used: tuple[int, int]) -> dict[str, Any]:
    stop = {"length": "max_tokens", "content_filter": "refusal"}.get(finish, "refusal" if kind == "refusal" else "end_turn")
    content = [{"type": "text", "text": "" if kind == "refusal" else text}]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": wire.get("model"),
        "content": content,
        "stop_reason": stop,
        "stop_details": {"category": "frontier_llm"} if stop == "refusal" else None,
        "usage": {"input_tokens": used[0], "output_tokens": used[1]},
    } | ({"content": None} if kind == "empty-choices" else {})


async def serve(judge: Judge, port: int = 0) -> asyncio.Server:
    """Listen on 127.0.0.1; `judge.url` is then the base URL for Chat Completions."""
    judge.loop = loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(judge), "127.0.0.1", port, backlog=4096)
    judge.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    return server


@contextmanager
def serving(behaviour: Behaviour = Behaviour()) -> Iterator[Judge]:
    """A server in a thread of its own, for the length of a `with` block."""
    judge, ready = Judge(behaviour), threading.Event()
    loop = asyncio.new_event_loop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        server = loop.run_until_complete(serve(judge))
        ready.set()
        loop.run_forever()
        server.close()
        while judge.open:  # left to the garbage collector, each would be a warning in some later test
            for transport in judge.open:
                transport.abort()
            loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run, name="judge", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield judge
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.05, help="seconds")
    parser.add_argument("--rate", type=float, help="requests a second; 429 beyond it")
    parser.add_argument("--burst", type=float, default=5.0)
    parser.add_argument("--retry-after", default="seconds", choices=["seconds", "date", "ms", "absent", "absurd"])
    parser.add_argument("--fault", action="append", default=[], metavar="KIND=SHARE", help=", ".join(FAULTS))
    parser.add_argument("--marked", action="append", default=[], metavar="TEXT=KIND", help="prompts with TEXT always fail so")
    parser.add_argument("--key", help="the only key that is accepted")
    parser.add_argument("--size", type=int, default=1500, help="characters of a reply, about")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    behaviour = replace(
        Behaviour(given.latency, given.rate, given.burst, given.retry_after),
        faults={kind: float(share) for kind, _, share in (fault.partition("=") for fault in given.fault)},
        marked={text: kind for text, _, kind in (mark.rpartition("=") for mark in given.marked)},
        key=given.key,
        size=given.size,
        seed=given.seed,
    )
    unknown = (set(behaviour.faults) | set(behaviour.marked.values())) - set(FAULTS)
    if unknown:
        parser.error(f"there is no fault {sorted(unknown)[0]!r}; there are {', '.join(FAULTS)}")

    async def run() -> None:
        judge = Judge(behaviour)
        server = await serve(judge, given.port)
        print(json.dumps({"url": judge.url}), flush=True)
        await server.serve_forever()

    asyncio.run(run())


if __name__ == "__main__":
    main()
