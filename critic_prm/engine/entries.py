"""A reply or a failure -> the row that keeps it, in one way for every road by which it came."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from critic_prm.engine.cache import Attempt, Entry
from critic_prm.engine.limits import with_doubled_max_tokens
from critic_prm.errors import ProviderError
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.provider import Marked, Provider, Reply, Request, Wire, reading_answer, request_key


@dataclass(frozen=True, slots=True)
class PendingRequest:
    """One body to send, with the key under which the answer will be kept."""

    key: str
    wire: Wire
    sample: int
    salt: str
    roomier: bool = False
    """Whether this is another question's with more room for the answer, which the server may not grant."""
    request: Request | None = None
    """What the body was made of, where that is known."""
    anew: bool = False
    """Whether a reply is in the cache that cannot be read: the new one takes its place."""
    whole: bool = False
    """Whether the same prompt is asked more than once, as for several samples."""

    def marked(self, provider: Provider) -> Marked:
        """The body as it is sent: with the markers that the provider's prompt cache needs, which are not part of the key."""
        mark = getattr(provider, "marked", None)
        if mark is None or self.request is None:
            return Marked(self.wire)
        found: Marked = mark(self.wire, self.request, self.whole)
        return found


def with_doubled_limit(question: PendingRequest) -> PendingRequest:
    """The same with room for twice as many tokens; as it is where it has no limit."""
    wider = with_doubled_max_tokens(question.wire)
    if wider is None:
        return question
    key = request_key(wider, question.sample, question.salt)
    return replace(question, key=key, wire=wider, roomier=True, anew=False)


def fresh_reply(provider: Provider, raw: Mapping[str, Any]) -> Reply:
    """Read a body that has just come from a server. Raises ProviderError for one that cannot be read or cannot be stored."""
    with reading_answer():
        orjson.dumps(raw)  # nested more deeply than the cache can write, for example
        return provider.read(raw)


def cached_reply(provider: Provider, raw: Mapping[str, Any]) -> Reply:
    """Read a body from the cache. Raises ProviderError, for its row alone, for one that cannot be read."""
    try:
        with reading_answer():
            return provider.read(raw)
    except ProviderError as error:
        said = f"the reply in the cache cannot be read: {error}; delete its row, or ask again with another --salt"
        raise ProviderError(said, "row", detail=error.detail) from error


def is_whole(reply: Reply) -> bool:
    """Whether a reply may answer later requests: it came to its end and says something."""
    return reply.finish == "stop" and bool(reply.text.strip())


def to_entry(provider: Provider, question: PendingRequest, reply: Reply, seconds: float) -> Entry | Attempt:
    """What goes into the cache: a whole reply, or an attempt named after what was wrong with it."""
    if is_whole(reply):
        where = (provider.name, provider.model, without_secrets(provider.base_url))
        told = (question.key, question.wire, question.sample, question.salt, *where)
        return Entry(*told, reply.raw, reply.text, reply.finish, reply.usage, seconds, question.anew)
    failure = reply.finish if reply.text.strip() else "empty"
    who = (question.key, provider.name, provider.model, failure)
    return Attempt(*who, detail=reply.note, usage=reply.usage, raw=reply.raw)


def to_attempt(provider: Provider, key: str, error: ProviderError) -> Attempt:
    """A request that brought nothing."""
    detail = error.detail or str(error)
    return Attempt(key, provider.name, provider.model, error.failure, detail=detail, http_status=error.status)
