"""Pending requests: their order, where prompts share a prefix, and the cache rows of their replies and failures."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from critic_prm.engine.budget import with_doubled_max_tokens
from critic_prm.engine.cache import Attempt, Entry
from critic_prm.errors import ProviderError
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.provider import Marked, Provider, Reply, Request, Wire, reading_answer, request_key


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """One request body to send, and the key under which its reply will be stored."""

    key: str
    wire: Wire
    sample: int
    salt: str
    roomier: bool = False
    """Whether this repeats another request with a larger token limit, which the server may reject."""
    request: Request | None = None
    """What the body was made of, where that is known."""
    anew: bool = False
    """Whether a reply is in the cache that cannot be read: the new one takes its place."""
    whole: bool = False
    """Whether the same prompt is sent more than once, for example for several samples."""

    def marked(self, provider: Provider) -> Marked:
        """Return the body as it is sent, with the provider's prompt-cache markers, which are not part of the key."""
        return Marked(self.wire) if self.request is None else provider.marked(self.wire, self.request, self.whole)


def with_doubled_limit(question: PendingRequest, provider: Provider) -> PendingRequest:
    """Return the same request with twice the token limit, or unchanged if it has no limit."""
    wider = with_doubled_max_tokens(question.wire, provider.token_limits)
    if wider is None:
        return question
    key = request_key(wider, question.sample, question.salt)
    return replace(question, key=key, wire=wider, roomier=True, anew=False)


def fresh_reply(provider: Provider, raw: Mapping[str, Any]) -> Reply:
    """Parse a body just received from a server. Raises ProviderError if it cannot be parsed or stored."""
    with reading_answer():
        orjson.dumps(raw)  # fails if the cache cannot write it, for example because it is nested too deeply
        return provider.read(raw)


def is_whole(reply: Reply) -> bool:
    """Whether a reply is complete and may answer later requests: it finished normally and is not empty."""
    return reply.finish == "stop" and bool(reply.text.strip())


def to_entry(provider: Provider, question: PendingRequest, reply: Reply, seconds: float) -> Entry | Attempt:
    """Build the cache row of a reply: an Entry if it is complete, else an Attempt named after the problem."""
    if is_whole(reply):
        where = (provider.name, provider.model, without_secrets(provider.base_url))
        told = (question.key, question.wire, question.sample, question.salt, *where)
        return Entry(*told, reply.raw, reply.text, reply.finish, reply.usage, seconds, question.anew)
    failure = reply.finish if reply.text.strip() else "empty"
    who = (question.key, provider.name, provider.model, failure)
    return Attempt(*who, detail=reply.note, usage=reply.usage, raw=reply.raw)


def to_attempt(provider: Provider, key: str, error: ProviderError) -> Attempt:
    """Build the cache row of a failed request."""
    detail = error.detail or str(error)
    return Attempt(key, provider.name, provider.model, error.failure, detail=detail, http_status=error.status)


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
