"""A connection in, one with limits out: a request's head must come in time, and a request learns when its client goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import orjson

CONNECTION: ContextVar[Connection | None] = ContextVar("critic_prm_connection", default=None)
"""The connection that a request came in on; None where the server is not ours (tests in memory, another ASGI server)."""

HEAD = 32 << 10
"""The most bytes of a request's head."""

PIECE = 8 << 10
"""Bytes that the parser gets at once: after each piece the head is measured."""


def refusal(status: bytes, code: str, message: str, more: bytes = b"") -> bytes:
    """A whole answer in the shape of all errors, for what is refused before there is a request; the connection is closed."""
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
    """One of uvicorn's two HTTP protocols with its own errors as JSON, and with a limit on the head of a request, which the one
    on httptools does not have."""

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
    """How many connections are open, and how many may be. `head` is how many seconds the head of a request may take."""

    most: int
    head: float
    open: int = 0


@dataclass(slots=True, eq=False)
class Connection:
    """Stands between a socket and uvicorn's HTTP protocol, which does not bound how long a request's head may take.

    An asyncio.Protocol by its methods. The clock runs while no request is being answered: from the first byte that could be
    awaited until the head is whole.
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
        """A request's head is whole."""
        self._stop_clock()

    def end(self) -> None:
        """A request was answered; the next one on this connection may begin."""
        if self._admitted:
            self._wind()

    def when_lost(self, tell: Callable[[], object]) -> None:
        """Call `tell` if the client goes."""
        self._lost.append(tell)

    def forget(self, tell: Callable[[], object]) -> None:
        if tell in self._lost:
            self._lost.remove(tell)

    def abort(self) -> None:
        """Close without waiting for what is not sent yet: the client does not take it."""
        if self._transport is not None:
            self._transport.abort()

    def _wind(self) -> None:
        self._stop_clock()
        self._clock = asyncio.get_running_loop().call_later(self.room.head, self.abort)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
