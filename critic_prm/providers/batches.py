"""Protocol of provider batch APIs, and what the SDKs' batch clients share: errors, response lines, files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from critic_prm.errors import ProviderError
from critic_prm.providers.http import failed, without_echoes
from critic_prm.providers.post import no_answer
from critic_prm.providers.provider import Wire, reading_answer

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


CHUNK = 1 << 20


LONGEST_LINE = 64_000_000
"""Maximum bytes of one line in a result file."""


@contextmanager
def as_provider_error(secrets: Sequence[str] = ()) -> Iterator[None]:
    """Context manager: convert errors of either SDK, broken connections and unexpected responses to ProviderError.

    The error's text contains none of `secrets`.
    """
    try:
        with _translated():
            yield
    except ProviderError as error:
        raise without_echoes(error, {}, secrets) from error.__cause__


@contextmanager
def _translated() -> Iterator[None]:
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise no_answer(error) from error
    except Exception as error:
        response: Any = getattr(error, "response", None)
        if isinstance(response, httpx2.Response):  # an APIStatusError
            body: Any = getattr(error, "body", None)
            raise failed(response.status_code, response.headers, body if body is not None else str(error)) from None
        if type(error).__module__.startswith(("openai", "anthropic")):  # no response, or one that the SDK cannot parse
            raise ProviderError(f"no answer: {error.__cause__ or error}", "transient", detail=str(error)) from error
        if isinstance(error, (AttributeError, TypeError)):  # the SDKs build objects from any JSON without checking it
            said = "the server answered 200 with a body that its batch API does not have; is there a batch API at this address?"
            raise ProviderError(said, "run", status=200, detail=f"{type(error).__name__}: {error}") from error
        with reading_answer():
            raise


async def lines(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the non-empty lines of a byte stream, split on b"\\n" only. The last line needs no newline.

    Raises ProviderError for a line longer than LONGEST_LINE.
    """
    rest: list[bytes] = []
    async for chunk in source:
        if sum(map(len, rest)) > LONGEST_LINE:
            raise ProviderError(f"a line of the results is longer than {LONGEST_LINE / 1e6:g} MB", "transient")
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for part in others:
            if line := b"".join(rest).strip():
                yield line
            rest = [part]
    if line := b"".join(rest).strip():
        yield line


async def chunks(path: Path) -> AsyncIterator[bytes]:
    """Yield the bytes of a file in chunks."""
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def size(path: Path) -> int:
    """Return the size of a file in bytes."""
    return path.stat().st_size
