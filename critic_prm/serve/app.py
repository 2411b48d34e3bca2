"""Serve a critic over HTTP: an ASGI application with authentication, limits, endpoints and uniform error responses."""

from __future__ import annotations

import asyncio
import hmac
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import orjson

from critic_prm import signals
from critic_prm.data import Critic, Label, Trajectory
from critic_prm.engine.concurrency import reduced_gc
from critic_prm.errors import CriticPrmError
from critic_prm.serve.batching import Batcher
from critic_prm.serve.endpoints import HANDLERS
from critic_prm.serve.metrics import Metrics
from critic_prm.serve.openapi import MAX_STEPS, METRICS_TYPE, OPERATIONS, SCHEMAS, Operation, Refused, complaint, document
from critic_prm.serve.server import CONNECTION, listen, require_extra, server_of
from critic_prm.serve.settings import ServeSettings, check, is_loopback

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from distill.watch import ScoreWatch

WATCHED, FEWEST = 1000, 200
"""The scores of the last WATCHED solutions are compared with those of the verifier's calibration, once there are FEWEST: the
comparison is made again with every request, and fewer solutions often look different by chance."""

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("critic_prm.serve")
Result = TypeVar("Result")

LARGE = 64 << 10
"""Requests larger than this many bytes are parsed, and their replies serialized, in a thread."""

DRAIN_BYTES, DRAIN_SECONDS = 16 << 20, 1.0
"""The rest of a refused body is read up to these limits."""

SWITCH = 0.001
"""Interpreter switch interval in seconds while a local critic computes in a thread. The default of 5 ms delays all I/O of the
event loop."""

GONE = 499
"""Status code counted for a request whose client disconnected before the reply."""


@dataclass(slots=True)
class Service:
    """A critic with its batcher, metrics and settings."""

    critic: Critic
    settings: ServeSettings
    batcher: Batcher
    metrics: Metrics
    version: str
    watch: ScoreWatch | None = None
    warned: bool = False
    held: int = 0
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "large-requests"))

    @property
    def model(self) -> str:
        return str(self.critic.card.get("model") or self.critic.card.get("provider") or "critic")

    def count(self, labels: Sequence[Label]) -> None:
        """Count scored solutions. A shift of a verifier's scores is logged once."""
        self.metrics.solutions.update(label.status for label in labels)
        self.metrics.steps += sum(p is not None for label in labels for p in label.p_correct)
        if self.watch is None:
            return
        for label in labels:
            self.watch.add(label)
        if not self.warned and self.watch.shifted:
            self.warned = True
            log.warning("%s", self.watch.finding)


def build_app(critic: Critic, settings: ServeSettings) -> App:
    """Build the ASGI application that serves `critic` at the endpoints of openapi.document. The critic is closed at the end of
    the lifespan."""
    from importlib.metadata import version

    from starlette.responses import Response
    from starlette.routing import Route, Router

    service = Service(critic, settings, Batcher(critic, settings), Metrics({}), version("critic-prm"), _watch_of(critic))
    counts, batcher = service.metrics, service.batcher
    counts.build.update(version=service.version, model=service.model)
    counts.gauges["queue_depth"] = ("Solutions that wait for the critic.", lambda: batcher.waiting)
    counts.gauges["queue_limit"] = ("Maximum number of waiting solutions.", lambda: settings.max_queue)
    counts.gauges["held_bytes"] = ("Bytes of requests in memory.", lambda: service.held)
    if (watch := service.watch) is not None:
        counts.gauges |= {
            "watched_solutions": ("Latest solutions whose scores are watched.", lambda: watch.solutions),
            "flagged_share": ("Share of the watched solutions in which an error was found.", lambda: watch.share),
            "flagged_share_expected": ("That share of the solutions the threshold was chosen on.", lambda: watch.expected),
            "score_ks_distance": ("Kolmogorov-Smirnov distance between their solution scores.", lambda: watch.distance),
            "scores_shifted": ("1 if the verifier should be calibrated again.", lambda: watch.shifted),
        }
    batcher.judged = counts.batches.add
    admit = _admission(settings)
    page = orjson.dumps(document(service.version, settings.token is not None))

    async def health(request: Request) -> Response:
        status: dict[str, Any] = {"status": "ok"}
        if watch is not None:
            with suppress(Refused):  # others learn only that the server is up
                admit(request.scope)
                status["scores"] = watch.report()
        return Response(orjson.dumps(status), media_type="application/json")

    async def metrics(request: Request) -> Response:
        return Response(counts.text(), headers={"content-type": METRICS_TYPE})

    async def openapi(request: Request) -> Response:
        return Response(page, media_type="application/json")

    @asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        batcher.start()
        try:
            yield
        finally:
            await batcher.stop()
            service.thread.shutdown(wait=False, cancel_futures=True)
            await critic.close()

    gets = {"/health": health, "/metrics": metrics, "/openapi.json": openapi}
    posts = [Route(operation.path, _scoring(service, operation), methods=["POST"]) for operation in OPERATIONS]
    routes = [*posts, *(Route(path, endpoint, methods=["GET"]) for path, endpoint in gets.items())]
    names = {operation.path: operation.name for operation in OPERATIONS}
    names |= {path: path.strip("/").split(".")[0] for path in gets}
    return _guarded(Router(routes, redirect_slashes=False, lifespan=lifespan), service, names)


def _watch_of(critic: Critic) -> ScoreWatch | None:
    """A watch of the latest scores of a verifier; None for other critics."""
    if not critic.stats:
        return None
    from distill.watch import ScoreWatch

    return next((part.over(WATCHED, FEWEST) for part in critic.stats if isinstance(part, ScoreWatch)), None)


def _scoring(service: Service, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint for one request format."""
    from starlette.responses import Response

    settings, schema, handler = service.settings, SCHEMAS[operation.request], HANDLERS[operation.name]

    async def endpoint(request: Request) -> Response:
        raw = await _body(request, service)

        def read() -> tuple[dict[str, Any], list[Trajectory]]:
            body = _parsed(raw, schema)
            trajectories = handler.trajectories(body, settings)
            if any(len(trajectory.steps) > MAX_STEPS for trajectory in trajectories):
                raise Refused(422, f"a solution has more than {MAX_STEPS} steps")
            return body, trajectories

        def write() -> bytes:
            return orjson.dumps(handler.reply(body, labels, service.model, settings))

        try:
            body, trajectories = await _run(service, len(raw), read)
            labels = await _wait(service.batcher.submit(trajectories))
            service.count(labels)
            return Response(await _run(service, len(raw), write), media_type="application/json")
        finally:
            service.held -= len(raw)

    return endpoint


async def _run(service: Service, size: int, work: Callable[[], Result]) -> Result:
    """Return the result of `work`. For a large request, run it in the server's single worker thread to keep the event loop
    responsive."""
    if size <= LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(service.thread, work)


async def _wait(labels: asyncio.Future[list[Any]]) -> list[Any]:
    """Wait for the labels. If the client disconnects or the deadline passes, the solutions are removed from the queue."""
    connection = CONNECTION.get()
    if connection is not None:
        connection.when_lost(labels.cancel)
    try:
        return await labels
    finally:
        labels.cancel()
        if connection is not None:
            connection.forget(labels.cancel)


async def _body(request: Request, service: Service) -> bytes:
    """Read the whole body. Its size counts in `service.held` until the request is answered. Raises Refused if it is too large
    or too slow."""
    settings = service.settings
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a web page cannot send this content type to another origin without a preflight request
        raise Refused(415, "send the body as application/json")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > settings.max_body:
        raise Refused(413, f"the body has {length[:20]} bytes; the server accepts {settings.max_body}")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.read_timeout):
            async for chunk in request.stream():
                size += len(chunk)
                service.held += len(chunk)
                if size > settings.max_body:
                    raise Refused(413, f"the body is larger than {settings.max_body} bytes")
                if service.held > settings.max_memory:
                    raise Refused(429, "the memory for requests is full", retry_after="1")
                chunks.append(chunk)
    except TimeoutError:
        service.held -= size
        raise Refused(408, f"the body did not arrive within {settings.read_timeout:g} s") from None
    except BaseException:
        service.held -= size
        raise
    return b"".join(chunks)


def _parsed(raw: bytes, schema: dict[str, Any]) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Refused(400, "the body is not JSON in UTF-8") from None
    if (wrong := complaint(body, schema)) is not None:
        raise Refused(422, wrong)
    assert isinstance(body, dict)
    return body


def _admission(settings: ServeSettings) -> Callable[[Scope], None]:
    """The check of a request's token and Host header. It raises Refused."""
    wanted = b"Bearer " + settings.token.encode() if settings.token is not None else None
    near = settings.token is None and is_loopback(settings.host)

    def admit(scope: Scope) -> None:
        headers = dict(scope["headers"])
        if wanted is not None and not hmac.compare_digest(_bearer(headers.get(b"authorization", b"")), wanted):
            raise Refused(401, www_authenticate="Bearer")
        # Without a token, only the Host header reveals a web page whose domain was resolved to this machine (DNS rebinding).
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise Refused(400, "the request has several Host headers")
        if near and not is_loopback(_host(headers.get(b"host", b"localhost").decode("latin-1"))):
            raise Refused(421, "this server answers requests to localhost only")

    return admit


def _guarded(router: App, service: Service, names: dict[str, str]) -> App:
    """Wrap the router with authentication, Host check, deadline, metrics and logging."""
    from starlette.requests import ClientDisconnect
    from starlette.responses import Response

    settings, admit = service.settings, _admission(service.settings)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await router(scope, receive, send)
            return
        began, name, code = time.perf_counter(), names.get(scope["path"], "other"), GONE
        connection = CONNECTION.get()
        if connection is not None:
            connection.begin()
        scope["app"] = app  # makes the router raise its errors instead of answering them
        whole = False

        async def taking() -> MutableMapping[str, Any]:
            nonlocal whole
            message = await receive()
            whole = whole or not message.get("more_body", False)
            return message

        async def noting(message: MutableMapping[str, Any]) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        async def refuse(refusal: Refused) -> None:
            if not whole and not await _drained(receive):
                refusal.headers["connection"] = "close"
            response = Response(refusal.content, refusal.status, refusal.headers, "application/json")
            await response(scope, receive, noting)

        try:
            async with asyncio.timeout(settings.answer_timeout):
                try:
                    if scope["path"] != "/health":
                        admit(scope)
                    await router(scope, taking, noting)
                except ClientDisconnect:
                    pass
                except Exception as error:
                    if code != GONE:
                        raise
                    await refuse(_refusal_of(error, name))
        except TimeoutError:
            if code == GONE:
                await refuse(Refused(504, f"no answer within {settings.answer_timeout:g} s"))
            elif connection is not None:
                connection.abort()  # the client does not read the reply
        except asyncio.CancelledError:
            if connection is None or not connection.lost:
                raise
        finally:
            seconds = time.perf_counter() - began
            service.metrics.requests[name, code] += 1
            service.metrics.seconds[name].add(seconds)
            log.debug("%s %d %.1f ms", name, code, 1000 * seconds)
            if connection is not None:
                connection.end()

    return app


def _refusal_of(error: Exception, name: str) -> Refused:
    """The response for an exception. The content of a request is never logged: for an unexpected exception only its type and
    location are."""
    from starlette.exceptions import HTTPException

    if isinstance(error, Refused):
        return error
    if isinstance(error, HTTPException):
        return Refused(error.status_code, **dict(error.headers or {}))
    log.error("%s: the critic failed: %s", name, place_of(error))
    if isinstance(error, CriticPrmError):
        return Refused(503, "the critic cannot work now; see the server's log", retry_after="60")
    return Refused(500)


def place_of(error: BaseException) -> str:
    """The type of an exception and where it was raised; for our own errors, which contain no request text, also the message."""
    message = f": {error}" if isinstance(error, CriticPrmError) else ""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    location = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}{location}{message}"


async def _drained(receive: Receive) -> bool:
    """Read the rest of a refused body and return whether it ended within the limits. A client whose connection is closed while
    it is sending may never read the error."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while size < DRAIN_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return True
    return False


def _bearer(header: bytes) -> bytes:
    """The header with its scheme in canonical spelling: the scheme is case-insensitive."""
    scheme, _, token = header.partition(b" ")
    return b"Bearer " + token.strip() if scheme.lower() == b"bearer" else b""


def _host(header: str) -> str:
    """The host in a Host header, without the port."""
    if header.startswith("["):
        host, _, port = header[1:].partition("]")
        return host if not port or (port[0] == ":" and port[1:].isdecimal()) else header
    return header.rpartition(":")[0] if ":" in header else header


async def serve(critic: Critic, settings: ServeSettings, ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve `critic` until SIGTERM, SIGHUP or SIGINT, then finish the requests in flight for up to `settings.grace` seconds.

    `ready` is called with the address when the server is listening. The critic is closed at the end. Raises ConfigError for a
    public address without a token or for a missing extra, InputError if the address cannot be bound.
    """
    check(settings)
    require_extra()
    listening = listen(settings)
    server = server_of(build_app(critic, settings), settings)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH)
    try:
        host, port = listening.getsockname()[:2]
        ready(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]  # ours come first
        stopping = signals.on_signal(asyncio.get_running_loop(), lambda: server.handle_exit(signal.SIGINT, None))
        with stopping, reduced_gc():  # a body of 4 MB can contain a million lists, and each collection stops all threads
            await server.serve(sockets=[listening])
    finally:
        sys.setswitchinterval(before)
        listening.close()
