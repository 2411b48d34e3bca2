"""Limit connections: time and size of request heads, number of open connections, notice of disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import orjson

CONNECTION: ContextVar[Connection | None] = ContextVar("critic_prm_connection", default=None)
"""The connection of the current request; None if another server runs the app (in-memory tests, another ASGI server)."""

HEAD = 32 << 10
"""Maximum size of a request head in bytes."""

PIECE = 8 << 10
"""Bytes passed to the parser at once; the size of the head is checked after each piece."""


def refusal(status: bytes, code: str, message: str, more: bytes = b"") -> bytes:
    """A complete error response in the common format, for a connection refused before there is a request. It closes the
    connection."""
    body = orjson.dumps({"error": {"code": code, "message": message}})
    head = b"HTTP/1.1 %s\r\ncontent-type: application/json\r\n%sconnection: close\r\ncontent-length: %d\r\n\r\n"
    return head % (status, more, len(body)) + body


FULL = refusal(
    b"503 Service Unavailable", "unavailable", "too many connections are open; try again in 1 s", b"retry-after: 1\r\n"
)
LONG_HEAD = refusal(
    b"431 Request Header Fields Too Large", "head_too_large", f"the head of the request is larger than {HEAD} bytes"
)
BROKEN = refusal(b"400 Bad Request", "bad_request", "the request is not valid HTTP/1.1")


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
            for place in range(0, len(data), PIECE):
                piece = data[place : place + PIECE]
                super().data_received(piece)
                if self._in_head:
                    self._head += len(piece)
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
class Room:
    """Counts open connections and limits them. `head` is the time limit in seconds for the head of a request."""

    most: int
    head: float
    open: int = 0


@dataclass(slots=True, eq=False)
class Connection:
    """A protocol between the socket and uvicorn's HTTP protocol, which has no time limit for the head of a request.

    It has the methods of asyncio.Protocol. The timer runs while no request is being answered: from when a request could begin
    to arrive until its head is complete.
    """

    inner: Any
    room: Room
    _transport: asyncio.Transport | None = None
    _clock: asyncio.TimerHandle | None = None
    _admitted: bool = False
    lost: bool = False
    _lost: list[Callable[[], object]] = field(default_factory=list)

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        if self.room.open >= self.room.most:
            transport.write(FULL)
            transport.close()
            return
        self._admitted = True
        self.room.open += 1
        self._wind()
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
        self.room.open -= 1
        self._stop_clock()
        for tell in self._lost:
            tell()
        self._lost.clear()
        self.inner.connection_lost(error)

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()

    def begin(self) -> None:
        """Called when the head of a request is complete."""
        self._stop_clock()

    def end(self) -> None:
        """Called when a request was answered; the next one on this connection may begin."""
        if self._admitted:
            self._wind()

    def when_lost(self, tell: Callable[[], object]) -> None:
        """Call `tell` if the client disconnects."""
        self._lost.append(tell)

    def forget(self, tell: Callable[[], object]) -> None:
        if tell in self._lost:
            self._lost.remove(tell)

    def abort(self) -> None:
        """Close without waiting for unsent data, since the client does not read it."""
        if self._transport is not None:
            self._transport.abort()

    def _wind(self) -> None:
        self._stop_clock()
        self._clock = asyncio.get_running_loop().call_later(self.room.head, self.abort)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
