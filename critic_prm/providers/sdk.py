"""Helpers for the SDKs' batch APIs: convert errors, stream response lines, stream a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from critic_prm.errors import ProviderError
from critic_prm.providers.http import failed, without_echoes
from critic_prm.providers.post import no_answer
from critic_prm.providers.provider import reading_answer

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
