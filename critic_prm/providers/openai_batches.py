"""Client for OpenAI's Batch API, through its SDK.

A request file is uploaded, a batch is created from it, and the output and error files are fetched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from critic_prm.providers.batches import Remote, State, as_provider_error, lines
from critic_prm.providers.provider import Wire
from critic_prm.safe_text import without_keys

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types import Batch

ENDPOINT: Final = "/v1/chat/completions"

STATES: dict[str, State] = {"failed": "failed", "completed": "ended", "expired": "ended", "cancelled": "cancelled"}
"""Final states. All other statuses count as running."""

MARK = "critic_prm"
"""The key of our token in a batch's metadata."""

MARGIN = 3600.0
"""Seconds by which the provider's clock may differ from ours when its list of batches is searched, newest first."""


@dataclass
class OpenAIBatches:
    """Up to 50,000 requests or 200 MB per batch, one model per batch, completed within 24 hours.

    A batch that expires keeps the results that were completed.
    """

    connect: Callable[[], AsyncOpenAI]
    secrets: tuple[str, ...] = field(default=(), repr=False)
    most_requests: int = 50_000
    most_bytes: int = 200_000_000
    frame: tuple[bytes, bytes, bytes] = (b"", b"\n", b"\n")
    _client: AsyncOpenAI | None = field(default=None, repr=False)

    def line(self, custom: str, wire: Wire) -> bytes:
        return orjson.dumps({"custom_id": custom, "method": "POST", "url": ENDPOINT, "body": wire})

    async def upload(self, path: Path, token: str) -> str:
        with as_provider_error(self.secrets), path.open("rb") as stream:
            return (await self._api.files.create(file=(path.name, stream), purpose="batch")).id

    async def newest(self) -> str:
        return ""  # not needed: our token in the metadata identifies a batch with certainty

    async def create(self, path: Path, file: str, token: str) -> Remote:
        with as_provider_error(self.secrets):
            made = await self._api.batches.create(
                input_file_id=file, endpoint=ENDPOINT, completion_window="24h", metadata={MARK: token}
            )
            return self._remote(made)

    async def find(self, file: str, token: str, newest: str, requests: int, since: float) -> list[tuple[Remote, bool]]:
        found = []
        with as_provider_error(self.secrets):
            async for batch in self._api.batches.list(limit=100):
                if batch.created_at < since - MARGIN:
                    break
                if (batch.metadata or {}).get(MARK) == token or (file and batch.input_file_id == file):
                    found.append((self._remote(batch), True))
        return found

    async def look(self, id: str) -> Remote:
        with as_provider_error(self.secrets):
            return self._remote(await self._api.batches.retrieve(id))

    async def cancel(self, id: str) -> Remote:
        with as_provider_error(self.secrets):
            return self._remote(await self._api.batches.cancel(id))

    async def results(self, remote: Remote) -> AsyncIterator[bytes]:
        with as_provider_error(self.secrets):
            for place in remote.places:
                async with self._api.files.with_streaming_response.content(place) as response:
                    async for line in lines(response.iter_bytes(1 << 20)):
                        yield line

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def _api(self) -> AsyncOpenAI:
        client = self._client = self._client or self.connect()
        return client

    def _remote(self, batch: Batch) -> Remote:
        counts, errors = batch.request_counts, (batch.errors.data if batch.errors else None) or []
        said = [f"{error.code or 'error'}{f' (line {error.line})' if error.line else ''}: {error.message}" for error in errors]
        more = f" and {len(said) - 2} more" if len(said) > 2 else ""
        return Remote(
            id=batch.id,
            state=STATES.get(batch.status, "running"),
            status=batch.status,
            requests=counts.total if counts else None,
            done=counts.completed if counts else 0,
            failed=counts.failed if counts else 0,
            made=float(batch.created_at),
            failure=without_keys("; ".join(said[:2]) + more, self.secrets),
            failure_codes=tuple(error.code or "" for error in errors),
            places=tuple(file for file in (batch.output_file_id, batch.error_file_id) if file),
        )
