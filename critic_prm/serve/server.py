"""Create an HTTP server that limits its connections: their number, and the time and size of request heads."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from critic_prm.errors import InputError
from critic_prm.registry import extra
from critic_prm.serve.openapi import Refused
from critic_prm.serve.settings import ServeSettings

if TYPE_CHECKING:
    import uvicorn

CONNECTION: ContextVar[Connection | None] = ContextVar("critic_prm_connection", default=None)
"""The connection of the current request; None if another server runs the app (in-memory tests, another ASGI server)."""

HEAD = 32 << 10
"""Maximum size of a request head in bytes."""

CHUNK = 8 << 10
"""Bytes passed to the parser at once; the size of the head is checked after each chunk."""


def _whole_response(refusal: Refused) -> bytes:
    """An error response with its head, for a connection refused before there is a request. It closes the connection."""
    fields = {**refusal.headers, "content-type": "application/json", "connection": "close"}
    fields["content-length"] = str(len(refusal.content))
    head = [f"HTTP/1.1 {refusal.status} {HTTPStatus(refusal.status).phrase}", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join([*head, "", ""]).encode() + refusal.content


FULL = _whole_response(Refused(503, "too many connections are open; try again in 1 s", retry_after="1"))
LONG_HEAD = _whole_response(Refused(431, f"the head of the request is larger than {HEAD} bytes"))
BROKEN = _whole_response(Refused(400, "the request is not valid HTTP/1.1"))


def strict(protocol: Any) -> Any:
    """Extend one of uvicorn's two HTTP protocols: errors as JSON, and a limit on the request head, which the httptools one
    lacks."""

    class Strict(protocol):  # type: ignore[misc]  # which of the two is known when the server starts
        _in_head, _head = hasattr(protocol, "on_headers_complete"), 0

        def on_message_begin(self) -> None:
            self._in_head, self._head = True, 0
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_head, self._head = True, 0

        def data_received(self, data: bytes) -> None:
            for place in range(0, len(data), CHUNK):
                chunk = data[place : place + CHUNK]
                super().data_received(chunk)
                if self._in_head:
                    self._head += len(chunk)
                if self._head > HEAD:
                    self.refuse(LONG_HEAD)
                if self.transport.is_closing():
                    return

        def send_400_response(self, message: str) -> None:
            self.refuse(BROKEN)

        def refuse(self, answer: bytes) -> None:
            self.transport.write(answer)
            self.transport.close()

    return Strict


@dataclass(slots=True)
class OpenConnections:
    """The number of open connections and their limits."""

    most: int
    """Maximum number of open connections."""
    head_timeout: float
    """Time limit in seconds for the head of a request."""
    count: int = 0


@dataclass(slots=True, eq=False)
class Connection:
    """A protocol between the socket and uvicorn's HTTP protocol, which has no time limit for the head of a request.

    It has the methods of asyncio.Protocol. The timer runs while no request is being answered: from when a request could begin
    to arrive until its head is complete.
    """

    inner: Any
    open: OpenConnections
    _transport: asyncio.Transport | None = None
    _timer: asyncio.TimerHandle | None = None
    _admitted: bool = False
    lost: bool = False
    _lost: list[Callable[[], object]] = field(default_factory=list)

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self.open.count >= self.open.most:
            transport.write(FULL)
            transport.close()
            return
        self._admitted = True
        self.open.count += 1
        self._start_timer()
        self.inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._admitted:
            CONNECTION.set(self)
            self.inner.data_received(data)

    def eof_received(self) -> None:
        if self._admitted:
            self.inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._admitted:
            return
        self._admitted, self.lost = False, True
        self.open.count -= 1
        self._stop_timer()
        for callback in self._lost:
            callback()
        self._lost.clear()
        self.inner.connection_lost(error)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def begin(self) -> None:
        """Called when the head of a request is complete."""
        self._stop_timer()

    def end(self) -> None:
        """Called when a request was answered; the next one on this connection may begin."""
        if self._admitted:
            self._start_timer()

    def when_lost(self, callback: Callable[[], object]) -> None:
        """Call `callback` if the client disconnects."""
        self._lost.append(callback)

    def forget(self, callback: Callable[[], object]) -> None:
        """Undo `when_lost`."""
        if callback in self._lost:
            self._lost.remove(callback)

    def abort(self) -> None:
        """Close without waiting for unsent data, since the client does not read it."""
        if self._transport is not None:
            self._transport.abort()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(self.open.head_timeout, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def require_extra() -> None:
    """Raises ConfigError if uvicorn or starlette is not installed."""
    for module in ("uvicorn", "starlette"):
        extra(module, "serve", "serving")


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop if installed, which needs one system call per response where asyncio needs two; None
    otherwise."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def server_of(app: Any, settings: ServeSettings) -> uvicorn.Server:
    """A uvicorn server with the limits of `settings`. It logs neither paths nor bodies nor malformed requests."""
    import uvicorn

    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=max(1, int(settings.read_timeout)),
        timeout_graceful_shutdown=max(1, int(settings.grace)),
        h11_max_incomplete_event_size=HEAD,
    )
    config.load()
    protocol = strict(config.http_protocol_class)
    open_connections = OpenConnections(settings.max_clients, settings.read_timeout)

    def connection(**given: Any) -> Connection:
        return Connection(protocol(**given), open_connections)

    config.http_protocol_class = connection  # type: ignore[assignment]  # uvicorn only calls it
    return uvicorn.Server(config)


def listen(settings: ServeSettings) -> socket.socket:
    """Open the server's socket. Raises InputError if the address cannot be bound."""
    try:
        addresses = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = addresses[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(2048)
    except OSError as error:
        raise InputError(
            f"{settings.host}:{settings.port}", f"cannot listen there: {error.strerror}", "choose another --host or --port"
        ) from None
    listening.setblocking(False)
    return listening
