"""Protocol of provider batch APIs: create a batch, poll its state and fetch its results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from critic_prm.errors import ProviderError
from critic_prm.providers.provider import Wire

State = Literal["running", "ended", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Remote:
    """A batch as its provider reports it."""

    id: str
    state: State
    """Either "running" (not final), "ended", "failed" (no request was run) or "cancelled" (there may be results)."""
    status: str
    """The provider's own name of the state."""
    requests: int | None = None
    """Number of requests; None if not reported."""
    done: int = 0
    """Number of successful requests."""
    failed: int = 0
    """Number of failed requests."""
    made: float = 0.0
    """Creation time in seconds since 1970, by the provider's clock."""
    failure: str = ""
    """The provider's message if the batch failed."""
    failure_codes: tuple[str, ...] = ()
    """The provider's error codes if the batch failed."""
    places: tuple[str, ...] = ()
    """Ids of the files that hold the results."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one request of a batch: a body (`raw`), an `error`, or neither if it was never run.

    `unrun` says why it was not run: "expired" or "cancelled". Such a request costs nothing.
    """

    custom: str
    """The request's `custom_id`."""
    raw: Mapping[str, Any] | None = None
    error: ProviderError | None = None
    unrun: str = ""


class BatchAPI(Protocol):
    """The batch API of a provider. All methods but `line` raise ProviderError. No method retries.

    A batch has at most `most_requests` requests and its file at most `most_bytes` bytes. `frame` is the start of the file, the
    separator between requests and the end of the file.
    """

    most_requests: int
    most_bytes: int
    frame: tuple[bytes, bytes, bytes]

    def line(self, custom: str, wire: Wire) -> bytes:
        """Return one request in this API's format, without a newline."""
        ...

    async def upload(self, path: Path, token: str) -> str:
        """Upload the request file and return its id; "" if `create` sends the file itself."""
        ...

    async def newest(self) -> str:
        """Return the id of the newest batch, for `find`; "" if `find` does not need it."""
        ...

    async def create(self, path: Path, file: str, token: str) -> Remote:
        """Create the batch. From then on, it costs money."""
        ...

    async def find(self, file: str, token: str, newest: str, requests: int, since: float) -> list[tuple[Remote, bool]]:
        """Return the batches made since `since` that the last `create` call may have made, each with whether it is certain."""
        ...

    async def look(self, id: str) -> Remote:
        """Return the current state of a batch."""
        ...

    async def cancel(self, id: str) -> Remote:
        """Cancel a batch and return its state."""
        ...

    def results(self, remote: Remote) -> AsyncIterator[bytes]:
        """Yield the lines of all available results, in any order."""
        ...

    async def close(self) -> None: ...


def custom_id(key: str, sample: int) -> str:
    """Return the name of a request in a batch: 32 hex digits of its key and the sample index.

    It identifies the request without any other data. Both OpenAI and Anthropic accept it.
    """
    return f"{key[:32]}-{sample}"
