"""Protocol of provider batch APIs, the base of those that are used through an SDK, and the parsing of their results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import orjson

from critic_prm.errors import ProviderError
from critic_prm.providers.failures import failed, without_echoes
from critic_prm.providers.http import no_answer
from critic_prm.providers.provider import Wire, reading_answer

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from openai import AsyncOpenAI

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


TIMEOUT = 600.0
"""Timeout in seconds of calls to a batch API; a request file may have 200 MB."""

MARGIN = 3600.0
"""Seconds by which the provider's clock may differ from ours when its list of batches is searched, newest first."""

CHUNK = 1 << 20

LONGEST_LINE = 64_000_000
"""Maximum bytes of one line in a result file."""

SDK = TypeVar("SDK", bound="AsyncOpenAI | AsyncAnthropic")


@dataclass
class SDKBatches(Generic[SDK]):
    """Base of a batch API that is used through an SDK. `connect` makes the SDK's client, when it is first needed."""

    connect: Callable[[], SDK]
    secrets: tuple[str, ...] = field(default=(), repr=False)
    _client: SDK | None = field(default=None, init=False, repr=False)

    @property
    def api(self) -> SDK:
        """The SDK's client."""
        client = self._client = self._client or self.connect()
        return client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Context manager: convert errors of the SDK, broken connections and unexpected responses to ProviderError.

        The error's text contains none of `secrets`.
        """
        try:
            with _translated():
                yield
        except ProviderError as error:
            raise without_echoes(error, {}, self.secrets) from error.__cause__


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


UNRUN = {"batch_expired": "expired", "batch_cancelled": "cancelled", "expired": "expired", "canceled": "cancelled"}
"""The names that each API gives to a request that was never run."""

STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP statuses of Anthropic's error types; errors of single requests in a batch come without one."""


def result_in(line: bytes) -> Result | None:
    """Parse a line of a result file. None if it is not a result. Raises ProviderError if the line is cut off or damaged."""
    try:
        return read_result(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise ProviderError(f"the results break off or are damaged: {error}", "transient") from error


def read_result(row: Any) -> Result | None:
    """Parse a decoded line of a result file. None if it is not a result."""
    if not isinstance(row, dict) or not isinstance(custom := row.get("custom_id"), str):
        return None
    try:
        with reading_answer():
            if isinstance(result := row.get("result"), dict):
                return _anthropic(custom, result)
            if "response" in row or "error" in row:
                return _openai(custom, row.get("response"), row.get("error"))
    except ProviderError as error:
        return Result(custom, error=error)
    return None


def _anthropic(custom: str, result: dict[str, Any]) -> Result:
    kind = result.get("type")
    if kind == "succeeded" and isinstance(message := result.get("message"), dict):
        return Result(custom, message)
    if kind in UNRUN:
        return Result(custom, unrun=UNRUN[kind])
    body = result.get("error") or {}
    inner = body.get("error") if isinstance(body, dict) else None
    details = inner if isinstance(inner, dict) else body if isinstance(body, dict) else {}
    return Result(custom, error=failed(STATUS.get(str(details.get("type")), 500), {}, {"error": details}))


def _openai(custom: str, response: Any, error: Any) -> Result:
    """Parse an OpenAI result. `error` is null, an object, a nested object (vLLM) or a string; then `response` may be null."""
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if isinstance(error, dict) and error.get("code") in UNRUN:
        return Result(custom, unrun=UNRUN[error["code"]])
    response = response if isinstance(response, dict) else {}
    status, body = response.get("status_code"), response.get("body")
    if status == 200 and isinstance(body, dict) and not error and not (body.get("error") and "choices" not in body):
        return Result(custom, body)
    if isinstance(body, dict) and body.get("error"):
        error = body["error"]
    if not error:
        return Result(custom, error=ProviderError(f"the result has no body (status {status})", "transient", detail="no body"))
    code = error.get("code") if isinstance(error, dict) else None
    status = status if isinstance(status, int) and status != 200 else code if isinstance(code, int) else 500
    return Result(custom, error=failed(status, {}, {"error": error}))
