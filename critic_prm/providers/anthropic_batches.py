"""Client for Anthropic's Message Batches API, through its SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from critic_prm.providers.batches import Remote, as_provider_error, chunks, lines, size
from critic_prm.providers.provider import Wire

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types.messages import MessageBatch

MARGIN = 3600.0
"""Seconds by which the provider's clock may differ from ours when its list of batches is searched, newest first."""


@dataclass
class AnthropicBatches:
    """Up to 100,000 requests or 256 MB per batch, completed within 24 hours.

    All requests are sent in the create call; results arrive as lines in any order. A batch cannot carry an identifier of ours.
    After a crash, a batch that is newer than the last known one and has the same number of requests may be ours; its results
    show whether it is.
    """

    connect: Callable[[], AsyncAnthropic]
    secrets: tuple[str, ...] = field(default=(), repr=False)
    most_requests: int = 100_000
    most_bytes: int = 256_000_000
    frame: tuple[bytes, bytes, bytes] = (b'{"requests":[', b",\n", b"]}")
    _client: AsyncAnthropic | None = field(default=None, repr=False)

    def line(self, custom: str, wire: Wire) -> bytes:
        return orjson.dumps({"custom_id": custom, "params": wire})

    async def upload(self, path: Path, token: str) -> str:
        return ""

    async def newest(self) -> str:
        with as_provider_error(self.secrets):
            page = await self._api.messages.batches.list(limit=1)
            return page.data[0].id if page.data else ""

    async def create(self, path: Path, file: str, token: str) -> Remote:
        from anthropic.types.messages import MessageBatch

        # Use the SDK's generic `post`: its `batches.create` keeps several copies of all requests in memory.
        headers = {"Content-Type": "application/json", "Content-Length": str(size(path))}
        with as_provider_error(self.secrets):
            made = await self._api.post(
                "/v1/messages/batches", cast_to=MessageBatch, content=chunks(path), options={"headers": headers}
            )
            return _remote(made)

    async def find(self, file: str, token: str, newest: str, requests: int, since: float) -> list[tuple[Remote, bool]]:
        found = []
        with as_provider_error(self.secrets):
            async for batch in self._api.messages.batches.list(limit=100):
                if batch.id == newest or batch.created_at.timestamp() < since - MARGIN:
                    break
                remote = _remote(batch)
                if remote.requests == requests:
                    found.append((remote, False))
        return found

    async def look(self, id: str) -> Remote:
        with as_provider_error(self.secrets):
            return _remote(await self._api.messages.batches.retrieve(id))

    async def cancel(self, id: str) -> Remote:
        with as_provider_error(self.secrets):
            return _remote(await self._api.messages.batches.cancel(id))

    async def results(self, remote: Remote) -> AsyncIterator[bytes]:
        with as_provider_error(self.secrets):
            async with self._api.messages.batches.with_streaming_response.results(remote.id) as response:
                async for line in lines(response.iter_bytes(1 << 20)):
                    yield line

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    @property
    def _api(self) -> AsyncAnthropic:
        client = self._client = self._client or self.connect()
        return client


def _remote(batch: MessageBatch) -> Remote:
    counts = batch.request_counts
    ended = batch.processing_status == "ended"
    return Remote(
        id=batch.id,
        state="running" if not ended else "cancelled" if batch.cancel_initiated_at else "ended",
        status=batch.processing_status,
        requests=counts.processing + counts.succeeded + counts.errored + counts.canceled + counts.expired,
        done=counts.succeeded,
        failed=counts.errored + counts.canceled + counts.expired,
        made=batch.created_at.timestamp(),
    )
