"""What the batch sides of SDKs share: their errors as ours, bytes that stream in as lines, a file that streams out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from critic_prm.errors import ProviderError
from critic_prm.provider import reading_answer
from critic_prm.providers._http import failed
from critic_prm.providers._post import no_answer

CHUNK = 1 << 20


@contextmanager
def as_provider_error() -> Iterator[None]:
    """Raises ProviderError for an SDK's errors, whichever SDK it is, and for a connection that breaks."""
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
        if type(error).__module__.startswith(("openai", "anthropic")):  # no answer came, or one that it cannot read
            raise ProviderError(f"no answer: {error.__cause__ or error}", "transient", detail=str(error)) from error
        if isinstance(error, (AttributeError, TypeError)):  # the SDKs make their objects of any JSON, unchecked
            said = "the server answered 200 with a body that its batch API does not have; is there a batch API at this address?"
            raise ProviderError(said, "run", status=200, detail=f"{type(error).__name__}: {error}") from error
        with reading_answer():
            raise


async def lines(source: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Lines, split on b"\\n" alone, without the empty ones; the last needs no newline."""
    rest: list[bytes] = []
    async for chunk in source:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        for part in others:
            if line := b"".join(rest).strip():
                yield line
            rest = [part]
    if line := b"".join(rest).strip():
        yield line


async def chunks(path: Path) -> AsyncIterator[bytes]:
    """The bytes of a file."""
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def size(path: Path) -> int:
    return path.stat().st_size
