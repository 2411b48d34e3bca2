"""Send one request per new prompt prefix first, so that the others hit the provider's prompt cache."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from critic_prm.engine.entries import PendingRequest
from critic_prm.providers.provider import Provider

KEPT = 240.0
"""Seconds after its last use for which a prefix is assumed to be cached. Anthropic's default is five minutes."""

MOST = 4096
"""Maximum number of prefixes remembered. For a forgotten prefix, requests wait for each other once more."""


@dataclass
class Sharing:
    """Order requests with shared prefixes.

    A prefix can be read from a provider's prompt cache only after the first reply with it has begun. While the first request
    with a new prefix is in flight, others with the same prefix wait for its reply and are then sent together. Requests to
    providers without cache markers do not wait.
    """

    _alike: Counter[str] = field(default_factory=Counter)
    _first: dict[str, asyncio.Event] = field(default_factory=dict)
    _warm: dict[str, float] = field(default_factory=dict)

    @asynccontextmanager
    async def turn(self, provider: Provider, question: PendingRequest) -> AsyncIterator[PendingRequest]:
        """Wait until `question` may be sent, and yield it. `whole` is set if the same prompt is sent several times."""
        if question.request is None or "cache-markers" not in provider.capabilities:
            yield question
            return
        everything = replace(question, whole=True)
        prompt = everything.marked(provider).prefix
        if not prompt:
            yield question
            return
        self._alike[prompt] += 1
        try:
            await asyncio.sleep(0)  # let the other samples of the same prompt arrive here
            repeated = self._alike[prompt] > 1 or self._is_warm(prompt)
            asked = everything if repeated else question
            prefix = prompt if repeated else question.marked(provider).prefix
            async with self._first_alone(prefix):
                yield asked
        finally:
            self._alike[prompt] -= 1
            if not self._alike[prompt]:
                del self._alike[prompt]

    @asynccontextmanager
    async def _first_alone(self, prefix: str) -> AsyncIterator[None]:
        if not prefix:
            yield
            return
        first = self._first.get(prefix)
        leads = first is None and not self._is_warm(prefix)
        if first is not None:
            await first.wait()
        elif leads:
            self._first[prefix] = asyncio.Event()
        try:
            yield
            self._warm.pop(prefix, None)
            self._warm[prefix] = time.monotonic() + KEPT
            while len(self._warm) > MOST:
                del self._warm[next(iter(self._warm))]
        finally:
            if leads:
                self._first.pop(prefix).set()

    def _is_warm(self, prefix: str) -> bool:
        return self._warm.get(prefix, 0.0) > time.monotonic()
