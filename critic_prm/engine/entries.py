"""Convert a reply or failure to its cache row, for online, batch and imported results alike."""

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


def with_doubled_limit(question: PendingRequest) -> PendingRequest:
    """Return the same request with twice the token limit, or unchanged if it has no limit."""
    wider = with_doubled_max_tokens(question.wire)
    if wider is None:
        return question
    key = request_key(wider, question.sample, question.salt)
    return replace(question, key=key, wire=wider, roomier=True, anew=False)


def fresh_reply(provider: Provider, raw: Mapping[str, Any]) -> Reply:
    """Parse a body just received from a server. Raises ProviderError if it cannot be parsed or stored."""
    with reading_answer():
        orjson.dumps(raw)  # fails if the cache cannot write it, for example because it is nested too deeply
        return provider.read(raw)


def cached_reply(provider: Provider, raw: Mapping[str, Any]) -> Reply:
    """Parse a body from the cache. Raises ProviderError (failure "row") if it cannot be parsed."""
    try:
        with reading_answer():
            return provider.read(raw)
    except ProviderError as error:
        said = f"the reply in the cache cannot be read: {error}; delete its row, or ask again with another --salt"
        raise ProviderError(said, "row", detail=error.detail) from error


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
