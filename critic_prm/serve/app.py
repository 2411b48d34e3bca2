"""ASGI application that serves a critic: authentication, limits, endpoints and uniform error responses."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Trajectory
from critic_prm.serve.batching import Batcher
from critic_prm.serve.bodies import SHAPES, Shape
from critic_prm.serve.connections import CONNECTION
from critic_prm.serve.errors import App, Receive, Refused, Scope, Send, drained, refusal_of
from critic_prm.serve.errors import refuse as answer
from critic_prm.serve.metrics import CONTENT_TYPE, Meters
from critic_prm.serve.openapi import document
from critic_prm.serve.schemas import SCHEMAS, STEPS, complaint
from critic_prm.serve.settings import ServeSettings, is_loopback

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger("critic_prm.serve")
Result = TypeVar("Result")

LARGE = 64 << 10
"""Requests larger than this many bytes are parsed, and their replies serialized, in a thread."""

GONE = 499
"""Status code counted for a request whose client disconnected before the reply."""


@dataclass(slots=True)
class Service:
    """A critic with its batcher, metrics and settings."""

    critic: Critic
    settings: ServeSettings
    batcher: Batcher
    meters: Meters
    version: str
    held: int = 0
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "large-requests"))

    @property
    def model(self) -> str:
        return str(self.critic.card.get("model") or self.critic.card.get("provider") or "critic")


def build_app(critic: Critic, settings: ServeSettings) -> App:
    """Build the ASGI application that serves `critic` at the endpoints of openapi.document. The critic is closed at the end of
    the lifespan."""
    from importlib.metadata import version

    from starlette.responses import Response
    from starlette.routing import Route, Router

    service = Service(critic, settings, Batcher(critic, settings), Meters({}), version("critic-prm"))
    meters, batcher = service.meters, service.batcher
    meters.build.update(version=service.version, model=service.model)
    meters.gauges["queue_depth"] = ("Solutions that wait for the critic.", lambda: batcher.waiting)
    meters.gauges["queue_limit"] = ("Solutions that may wait.", lambda: settings.queue)
    meters.gauges["held_bytes"] = ("Bytes of requests in memory.", lambda: service.held)
    batcher.judged = meters.batches.add
    page = orjson.dumps(document(service.version, settings.token is not None))

    async def health(request: Request) -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def metrics(request: Request) -> Response:
        return Response(meters.text(), headers={"content-type": CONTENT_TYPE})

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

    looks = {"/health": health, "/metrics": metrics, "/openapi.json": openapi}
    router = Router(
        [
            *(Route(shape.path, _scoring(service, shape), methods=["POST"]) for shape in SHAPES),
            *(Route(path, endpoint, methods=["GET"]) for path, endpoint in looks.items()),
        ],
        redirect_slashes=False,
        lifespan=lifespan,
    )
    names = {shape.path: shape.name for shape in SHAPES} | {path: path.strip("/").split(".")[0] for path in looks}
    return _guarded(router, service, names)


def _scoring(service: Service, shape: Shape) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint for one request format."""
    from starlette.responses import Response

    settings, schema = service.settings, SCHEMAS[shape.request]

    async def endpoint(request: Request) -> Response:
        raw = await _body(request, service)

        def read() -> tuple[dict[str, Any], list[Trajectory]]:
            body = _parsed(raw, schema)
            trajectories = shape.trajectories(body, settings)
            if any(len(trajectory.steps) > STEPS for trajectory in trajectories):
                raise Refused(422, f"a solution has more than {STEPS} steps")
            return body, trajectories

        def write() -> bytes:
            return orjson.dumps(shape.answer(body, labels, service.model, settings))

        try:
            body, trajectories = await _aside(service, len(raw), read)
            labels = await _wait(service.batcher.submit(trajectories))
            service.meters.solutions.update(label.status for label in labels)
            service.meters.steps += sum(p is not None for label in labels for p in label.p_correct)
            return Response(await _aside(service, len(raw), write), media_type="application/json")
        finally:
            service.held -= len(raw)

    return endpoint


async def _aside(service: Service, size: int, work: Callable[[], Result]) -> Result:
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
    if length.isdecimal() and int(length[:20]) > settings.body:
        raise Refused(413, f"the body has {length[:20]} bytes; the server takes {settings.body}")
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(settings.reading):
            async for chunk in request.stream():
                size += len(chunk)
                service.held += len(chunk)
                if size > settings.body:
                    raise Refused(413, f"the body is larger than {settings.body} bytes")
                if service.held > settings.held:
                    raise Refused(429, "the server holds as many bytes of requests as it may", {"retry-after": "1"})
                chunks.append(chunk)
    except TimeoutError:
        service.held -= size
        raise Refused(408, f"the body did not arrive within {settings.reading:g} s") from None
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


def _guarded(router: App, service: Service, names: dict[str, str]) -> App:
    """Wrap the router with authentication, Host check, deadline, metrics and logging."""
    from starlette.requests import ClientDisconnect

    settings = service.settings
    wanted = b"Bearer " + settings.token.encode() if settings.token is not None else None
    near = settings.token is None and is_loopback(settings.host)

    def admit(scope: Scope) -> None:
        headers = dict(scope["headers"])
        if scope["path"] == "/health":
            return
        if wanted is not None and not hmac.compare_digest(_bearer(headers.get(b"authorization", b"")), wanted):
            raise Refused(401, headers={"www-authenticate": "Bearer"})
        # Without a token, only the Host header reveals a web page whose domain was resolved to this machine (DNS rebinding).
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            raise Refused(400, "the request has several Host headers")
        if near and not is_loopback(_host(headers.get(b"host", b"localhost").decode("latin-1"))):
            raise Refused(421, "this server answers to localhost alone")

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
            if not whole and not await drained(receive):
                refusal.headers["connection"] = "close"
            await answer(refusal, scope, receive, noting)

        try:
            async with asyncio.timeout(settings.timeout):
                try:
                    admit(scope)
                    await router(scope, taking, noting)
                except ClientDisconnect:
                    pass
                except Exception as error:
                    if code != GONE:
                        raise
                    await refuse(refusal_of(error, name))
        except TimeoutError:
            if code == GONE:
                await refuse(Refused(504, f"no answer within {settings.timeout:g} s"))
            elif connection is not None:
                connection.abort()  # the client does not read the reply
        except asyncio.CancelledError:
            if connection is None or not connection.lost:
                raise
        finally:
            seconds = time.perf_counter() - began
            service.meters.requests[name, code] += 1
            service.meters.seconds[name].add(seconds)
            log.debug("%s %d %.1f ms", name, code, 1000 * seconds)
            if connection is not None:
                connection.end()

    return app


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
