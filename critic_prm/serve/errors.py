"""Map errors to uniform JSON responses that never echo the request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import orjson

from critic_prm.errors import CriticPrmError
from critic_prm.serve.batching import Full
from critic_prm.serve.bodies import Unusable
from critic_prm.serve.openapi import ERRORS
from critic_prm.serve.texts import TooManyParts

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("critic_prm.serve")

DRAINED, DRAINING = 16 << 20, 1.0
"""How much of a refused body is still read: at most this many bytes, for at most this many seconds."""


class Refused(Exception):
    """A request that is answered with one of openapi.ERRORS."""

    def __init__(self, status: int, message: str = "", headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}
        self.message = message or ERRORS[status][1]
        super().__init__(self.message)


def refusal_of(error: Exception, name: str) -> Refused:
    """The response for an exception. The content of a request is never logged: for an unexpected exception only its type and
    location are."""
    from starlette.exceptions import HTTPException

    if isinstance(error, Refused):
        return error
    if isinstance(error, Full):
        return Refused(429, str(error), {"retry-after": str(error.retry_after)})
    if isinstance(error, TooManyParts):
        return Refused(422, str(error))
    if isinstance(error, Unusable):
        return Refused(502, str(error))
    if isinstance(error, HTTPException):
        return Refused(error.status_code, "", dict(error.headers or {}))
    log.error("%s: the critic failed: %s", name, place_of(error))
    if isinstance(error, CriticPrmError):
        return Refused(503, "the critic cannot work now; the server's log says why", {"retry-after": "60"})
    return Refused(500)


def place_of(error: BaseException) -> str:
    """The type of an exception and where it was raised; for our own errors, which contain no request text, also the message."""
    said = f": {error}" if isinstance(error, CriticPrmError) else ""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}{where}{said}"


async def refuse(refusal: Refused, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the error response."""
    from starlette.responses import Response

    content = orjson.dumps({"error": {"code": ERRORS[refusal.status][0], "message": refusal.message}})
    await Response(content, refusal.status, refusal.headers, "application/json")(scope, receive, send)


async def drained(receive: Receive) -> bool:
    """Read the rest of a refused body and return whether it ended within the limits. A client whose connection is closed while
    it is sending may never read the error."""
    size = 0
    try:
        async with asyncio.timeout(DRAINING):
            while size < DRAINED:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body"):
                    return True
    except TimeoutError:
        pass
    return False
