"""Serve both batch APIs on the loopback, for tests and benchmarks: OpenAI's files and batches, Anthropic's Message Batches.

Written from their documentation. Replies to single requests are those of bench/server.py; the outcome of a batch follows
`Fate`. GET /seen returns what the server has seen: which requests each batch held, and which of them were run.

    python bench/batch_server.py --seconds 1 --fate expired=0.2 --fault refusal=0.01

prints {"url": ...} and serves until it is stopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

import orjson
from aiohttp import BodyPartReader, web

from bench.server import Behaviour, Judge, plain

FATES = ("expired", "token_limit_exceeded", "invalid_json_line")
"""What may become of a batch other than that it is completed: ended half done; failed after it was taken."""

ERRORS = {
    "400": "invalid_request_error",
    "context": "context_length_exceeded",
    "500": "server_error",
    "quota": "insufficient_quota",
}
"""Failures of single requests; the other faults of bench/server.py that answer with a body are taken over as they are."""


@dataclass(frozen=True)
class Fate:
    """What becomes of batches and of the requests in them.

    A batch is done `seconds` after it was made. `shares` gives each of FATES a probability; `first` names what becomes of the
    first batches, one after the other. `turned_down` creations are answered 429 before one is taken; `lost` of those that are
    taken get no answer. `queue` is how many requests may be waiting in all batches: one too many, and a batch fails late.
    `faults` maps what single requests come to (ERRORS, or faults of bench/server.py such as refusal or length) to
    probabilities; `marked` maps texts to it. `separators` puts U+2028 into replies. `key` is the only key accepted."""

    seconds: float = 0.2
    shares: Mapping[str, float] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    turned_down: int = 0
    lost: int = 0
    queue: int | None = None
    faults: Mapping[str, float] = field(default_factory=dict)
    marked: Mapping[str, str] = field(default_factory=dict)
    separators: bool = True
    size: int = 300
    seed: int = 0
    key: str | None = None


@dataclass
class Made:
    """A batch at the server. `ran` are the requests that were run, by custom_id, once it has ended."""

    id: str
    owner: str
    lines: list[tuple[str, Any]]
    made: float
    fate: str
    metadata: dict[str, str] = field(default_factory=dict)
    file: str = ""
    due: float = 0.0
    cancelled: float | None = None
    ran: list[str] = field(default_factory=list)
    ended: bool = False


class Office:
    """The server's state. `at` is called with the name of each thing that happens, just before it does."""

    def __init__(self, fate: Fate = Fate()) -> None:
        self.fate, self.judge, self.url = fate, Judge(Behaviour()), ""
        self.at: Callable[[str], None] = lambda what: None
        self.late = 0.0
        """Seconds between an order's arrival and its becoming a batch that lists show."""
        self.begin(fate)

    def begin(self, fate: Fate) -> None:
        """Start over with nothing seen."""
        self.fate = fate
        self.files: dict[str, bytes] = {}
        self.batches: list[Made] = []
        self.online: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self.refused = self.lost = 0
        self.judge.behave(Behaviour(latency=0, size=fate.size, seed=fate.seed))

    def happens(self, what: str) -> None:
        self.events[what] += 1
        self.at(what)

    def finish(self) -> None:
        """Let every batch be done now."""
        for made in self.batches:
            made.due = 0.0

    def runs(self) -> Counter[str]:
        """How often each request was run in a batch, by custom_id."""
        for made in self.batches:
            self.settle(made)
        return Counter(custom for made in self.batches for custom in made.ran)

    def seen(self) -> dict[str, Any]:
        runs = self.runs()
        return {
            "events": dict(self.events),
            "batches": len(self.batches),
            "requests": sum(len(made.lines) for made in self.batches),
            "ran": runs.total(),
            "ran_twice": sum(count > 1 for count in runs.values()),
            "online": self.online.total(),
            "fates": dict(Counter(made.fate for made in self.batches)),
        }

    def fault(self, custom: str, body: Any) -> str | None:
        text = orjson.dumps(body).decode()
        for mark, kind in self.fate.marked.items():
            if mark in text:
                return kind
        drawn = random.Random(f"{self.fate.seed} {custom} {self.runs()[custom] if self.fate.faults else 0}").random()
        for kind, share in self.fate.faults.items():
            if drawn < share:
                return kind
            drawn -= share
        return None

    def add(self, owner: str, prefix: str, lines: list[tuple[str, Any]], **more: Any) -> Made:
        """Take a batch; whether it fails is drawn now, and shows later."""
        number = len(self.batches)
        drawn = random.Random(f"{self.fate.seed} {number}").random()
        fate = "completed"
        if number < len(self.fate.first):
            fate = self.fate.first[number]
        else:
            for name, share in self.fate.shares.items():
                if drawn < share:
                    fate = name
                    break
                drawn -= share
        waiting = sum(len(made.lines) for made in self.batches if not self.settle(made))
        if self.fate.queue is not None and waiting + len(lines) > self.fate.queue:
            fate = "token_limit_exceeded"
        if len({custom for custom, _ in lines}) < len(lines):
            fate = "duplicate_custom_id"
        if len({body.get("model") for _, body in lines}) > 1:
            fate = "model_mismatch"
        id = f"{prefix}{sha256(f'{self.fate.seed} {number}'.encode()).hexdigest()[:12]}"
        made = Made(id, owner, lines, time.time(), fate, due=time.time() + self.fate.seconds, **more)
        self.batches.append(made)
        return made

    def settle(self, made: Made) -> bool:
        """Whether a batch has ended; what was run is drawn when it does."""
        if not made.ended and (made.cancelled is not None or time.time() >= made.due):
            made.ended = True
            order = [custom for custom, _ in made.lines]
            random.Random(f"{self.fate.seed} {made.id}").shuffle(order)
            share = {"completed": 1.0, "expired": 0.5}.get(made.fate, 0.0)
            if made.cancelled is not None:
                share = 0.5
            made.ran = order[: round(share * len(order))]
        return made.ended

    def body(self, custom: str, wire: Any, path: str) -> tuple[int, bytes]:
        """What running a request brings: (status, body)."""
        kind = self.fault(custom, wire)
        if kind in ERRORS:
            status = {"500": 500, "quota": 429}.get(kind, 400)
            said = f"made to fail: {kind}"
            if "/chat/" in path:
                error = {"message": said, "type": ERRORS[kind], "code": ERRORS[kind], "param": None}
                return status, orjson.dumps({"error": error})
            named = {"500": "api_error", "quota": "billing_error"}.get(kind, "invalid_request_error")
            return status, orjson.dumps({"type": "error", "error": {"type": named, "message": said}, "request_id": "req_1"})
        content = self.judge.reply(path, wire, len(orjson.dumps(wire)), kind)
        if (
            self.fate.separators
            and int(sha256(orjson.dumps(plain(wire["messages"]), option=orjson.OPT_SORT_KEYS)).hexdigest()[0], 16) < 4
        ):
            content = content.replace(b"redoing its computation", "redoing\u2028its\x85computation".encode())
        return 200, content


def application(office: Office) -> web.Application:
    app = web.Application(client_max_size=1 << 30, middlewares=[_guard(office)])
    app.add_routes(
        [
            web.post("/v1/files", partial(_upload, office)),
            web.get("/v1/files/{id}/content", partial(_content, office)),
            web.post("/v1/batches", partial(_create, office)),
            web.get("/v1/batches", partial(_list, office)),
            web.get("/v1/batches/{id}", partial(_retrieve, office)),
            web.post("/v1/batches/{id}/cancel", partial(_cancel, office)),
            web.post("/v1/chat/completions", partial(_online, office)),
            web.post("/v1/messages", partial(_online, office)),
            web.post("/v1/messages/batches", partial(_create, office)),
            web.get("/v1/messages/batches", partial(_list, office)),
            web.get("/v1/messages/batches/{id}", partial(_retrieve, office)),
            web.get("/v1/messages/batches/{id}/results", partial(_content, office)),
            web.post("/v1/messages/batches/{id}/cancel", partial(_cancel, office)),
            web.get("/seen", partial(_told, office)),
        ]
    )
    return app


def _guard(office: Office) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        if office.fate.key is not None and office.fate.key not in _owner(request) and request.path != "/seen":
            return _error(401, "invalid_api_key", "Incorrect API key provided")
        response: web.StreamResponse = await handler(request)
        return response

    return guard


def _owner(request: web.Request) -> str:
    return request.headers.get("Authorization", "") + request.headers.get("x-api-key", "")


def _error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(
        {"type": "error", "error": {"message": message, "type": code, "code": code}}, status=status, headers=headers
    )


async def _told(office: Office, request: web.Request) -> web.Response:
    return web.json_response(office.seen())


async def _online(office: Office, request: web.Request) -> web.Response:
    wire = await request.json()
    office.happens("online")
    custom = sha256(orjson.dumps(wire, option=orjson.OPT_SORT_KEYS)).hexdigest()
    office.online[custom] += 1
    status, body = office.body(custom, wire, request.path)
    return web.Response(status=status, body=body, content_type="application/json")


async def _upload(office: Office, request: web.Request) -> web.Response:
    office.happens("upload begins")
    purpose, data = "", b""
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        if part.name == "purpose":
            purpose = await part.text()
        elif part.name == "file":
            data = bytes(await part.read())
    if purpose != "batch" or not data:
        return _error(400, "invalid_request_error", "a file for purpose=batch is missing")
    id = f"file-{len(office.files) + 1}"
    office.files[id] = data
    office.happens("uploaded")
    told = {"id": id, "object": "file", "bytes": len(data), "created_at": int(time.time()), "filename": "x", "purpose": "batch"}
    return web.json_response({**told, "status": "processed"})


async def _create(office: Office, request: web.Request) -> web.StreamResponse:
    body = orjson.loads(await request.read())
    office.happens("create arrives")
    await asyncio.sleep(office.late)
    if office.refused < office.fate.turned_down:
        office.refused += 1
        return _error(429, "rate_limit_exceeded", "too many batches are being made", {"retry-after-ms": "20"})
    claude = "/messages/" in request.path
    if claude:
        lines = [(row["custom_id"], row["params"]) for row in body["requests"]]
        made = office.add(_owner(request), "msgbatch_", lines)
    else:
        if body["input_file_id"] not in office.files or body["completion_window"] != "24h":
            return _error(400, "invalid_request_error", "no such file or window")
        rows = [orjson.loads(line) for line in office.files[body["input_file_id"]].split(b"\n") if line.strip()]
        lines = [(row["custom_id"], row["body"]) for row in rows]
        more = {"metadata": body.get("metadata") or {}, "file": body["input_file_id"]}
        made = office.add(_owner(request), "batch_", lines, **more)
    assert all(len(custom) <= 64 for custom, _ in lines)
    office.happens("created")
    if office.lost < office.fate.lost:
        office.lost += 1
        if request.transport is not None:
            request.transport.close()
    return web.json_response(_shown(office, made, claude))


async def _list(office: Office, request: web.Request) -> web.Response:
    office.happens("list")
    claude = "/messages/" in request.path
    mine = [made for made in reversed(office.batches) if made.owner == _owner(request)]
    cursor = request.query.get("after_id" if claude else "after")
    ids = [made.id for made in mine]
    start = ids.index(cursor) + 1 if cursor in ids else 0
    limit = int(request.query.get("limit", 20))
    page = mine[start : start + limit]
    told = {
        "data": [_shown(office, made, claude) for made in page],
        "has_more": start + limit < len(mine),
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }
    return web.json_response(told if claude else {"object": "list", **told})


async def _retrieve(office: Office, request: web.Request) -> web.Response:
    office.happens("look")
    made = _found(office, request)
    if made is None:
        return _error(404, "not_found_error", "No such batch")
    return web.json_response(_shown(office, made, "/messages/" in request.path))


async def _cancel(office: Office, request: web.Request) -> web.Response:
    made = _found(office, request)
    if made is None:
        return _error(404, "not_found_error", "No such batch")
    if not office.settle(made):
        made.cancelled = time.time()
    return web.json_response(_shown(office, made, "/messages/" in request.path))


async def _content(office: Office, request: web.Request) -> web.StreamResponse:
    office.happens("content")
    claude = "/messages/" in request.path
    id = request.match_info["id"]
    made = next((m for m in office.batches if id in (m.id, f"out-{m.id}", f"err-{m.id}") and m.owner == _owner(request)), None)
    if made is None or not office.settle(made):
        return _error(404, "not_found_error", "No such file")
    response = web.StreamResponse(headers={"Content-Type": "application/binary"})
    await response.prepare(request)
    rows = _claude_rows(office, made) if claude else _openai_rows(office, made, id.startswith("err-"))
    async for chunk in _chunked(rows):
        await response.write(chunk)
    office.happens("content sent")
    await response.write_eof()
    return response


async def _chunked(rows: Iterator[bytes]) -> AsyncIterator[bytes]:
    chunk = b""
    for row in rows:
        chunk += row + b"\n"
        if len(chunk) > 1 << 16:
            yield chunk
            chunk = b""
            await asyncio.sleep(0)
    yield chunk


def _openai_rows(office: Office, made: Made, errors: bool) -> Iterator[bytes]:
    bodies, ran = dict(made.lines), set(made.ran)
    for custom in made.ran:
        status, body = office.body(custom, bodies[custom], "/v1/chat/completions")
        if (status != 200) == errors:
            response = {"status_code": status, "request_id": "req_1", "body": orjson.Fragment(body)}
            yield orjson.dumps({"id": "batch_req_1", "custom_id": custom, "response": response, "error": None})
    if errors:
        code = "batch_cancelled" if made.cancelled is not None else "batch_expired"
        for custom in bodies:
            if custom not in ran:
                error = {"code": code, "message": "This request was not run."}
                yield orjson.dumps({"id": "batch_req_2", "custom_id": custom, "response": None, "error": error})


def _claude_rows(office: Office, made: Made) -> Iterator[bytes]:
    bodies, ran = dict(made.lines), set(made.ran)
    for custom in made.ran:
        status, body = office.body(custom, bodies[custom], "/v1/messages")
        told = b'{"type":"succeeded","message":' + body + b"}" if status == 200 else b'{"type":"errored","error":' + body + b"}"
        yield orjson.dumps({"custom_id": custom, "result": orjson.Fragment(told)})
    for custom in bodies:
        if custom not in ran:
            kind = "canceled" if made.cancelled is not None else "expired"
            yield orjson.dumps({"custom_id": custom, "result": {"type": kind}})


def _found(office: Office, request: web.Request) -> Made | None:
    """A batch of the same key; another's is not there."""
    wanted = request.match_info["id"]
    return next((made for made in office.batches if made.id == wanted and made.owner == _owner(request)), None)


def _shown(office: Office, made: Made, claude: bool) -> dict[str, Any]:
    ended = office.settle(made)
    return (_claude_shown if claude else _openai_shown)(office, made, ended)


def _claude_shown(office: Office, made: Made, ended: bool) -> dict[str, Any]:
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    unrun = len(made.lines) - len(made.ran)
    if not ended:
        counts["processing"] = len(made.lines)
    else:
        counts["succeeded"] = len(made.ran)
        counts["canceled" if made.cancelled is not None else "expired"] = unrun

    def moment(seconds: float | None) -> str | None:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()

    return {
        "id": made.id,
        "type": "message_batch",
        "processing_status": "ended" if ended else "in_progress",
        "request_counts": counts,
        "created_at": moment(made.made),
        "expires_at": moment(made.made + 86400),
        "ended_at": moment(time.time()) if ended else None,
        "cancel_initiated_at": moment(made.cancelled),
        "archived_at": None,
        "results_url": f"{office.url}/v1/messages/batches/{made.id}/results" if ended else None,
    }


def _openai_shown(office: Office, made: Made, ended: bool) -> dict[str, Any]:
    left = made.due - time.time()
    failed = made.fate not in ("completed", "expired")
    status = "validating" if left > office.fate.seconds * 3 / 4 else "in_progress"
    if ended:
        status = "cancelled" if made.cancelled is not None else "failed" if failed else made.fate
    elif failed and left < office.fate.seconds / 2:
        status, made.ended = "failed", True
    whole = ended and status != "failed"
    through = len(made.ran) if whole else 0
    errors = {
        "object": "list",
        "data": [{"code": made.fate, "message": f"made to fail: {made.fate}", "line": None, "param": None}],
    }
    return {
        "id": made.id,
        "object": "batch",
        "endpoint": "/v1/chat/completions",
        "input_file_id": made.file,
        "completion_window": "24h",
        "status": status,
        "created_at": int(made.made),
        "errors": errors if status == "failed" else None,
        "metadata": made.metadata,
        "output_file_id": f"out-{made.id}" if whole and made.ran else None,
        "error_file_id": f"err-{made.id}" if whole else None,
        "request_counts": {"total": len(made.lines), "completed": through, "failed": 0},
    }


async def serve(office: Office, port: int = 0) -> web.AppRunner:
    """Listen on 127.0.0.1; `office.url` is then the address without a path."""
    runner = web.AppRunner(application(office), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    office.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return runner


@contextmanager
def serving(fate: Fate = Fate()) -> Iterator[Office]:
    """A server in a thread of its own, for the length of a `with` block."""
    office, ready, loop = Office(fate), threading.Event(), asyncio.new_event_loop()

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(serve(office))
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, name="office", daemon=True)
    thread.start()
    assert ready.wait(30), "the server did not start"
    try:
        yield office
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a batch takes")
    parser.add_argument("--fate", action="append", default=[], metavar="KIND=SHARE", help=", ".join(FATES))
    parser.add_argument("--fault", action="append", default=[], metavar="KIND=SHARE", help="of single requests")
    parser.add_argument("--turned-down", type=int, default=0, help="creations that are answered 429 first")
    parser.add_argument("--queue", type=int, help="most requests that may wait in all batches")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()

    def shares(texts: list[str]) -> dict[str, float]:
        return {kind: float(share) for kind, _, share in (text.partition("=") for text in texts)}

    fate = replace(Fate(given.seconds), turned_down=given.turned_down, queue=given.queue, seed=given.seed)
    fate = replace(fate, shares=shares(given.fate), faults=shares(given.fault))

    async def run() -> None:
        office = Office(fate)
        await serve(office, given.port)
        print(json.dumps({"url": office.url}), flush=True)
        await asyncio.Event().wait()

    asyncio.run(run())


if __name__ == "__main__":
    main()
