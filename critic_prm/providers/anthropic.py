"""Provider for Anthropic's Messages API and Message Batches API.

Claude accepts no sampling parameters and returns no logprobs. Refusals arrive as ordinary replies.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import orjson

from critic_prm.errors import ConfigError, UsageError
from critic_prm.providers.addresses import is_near, secrets_in
from critic_prm.providers.batches import MARGIN, TIMEOUT, Remote, SDKBatches, chunks, lines, size
from critic_prm.providers.http import AsTheSDK, HTTPProvider, Post, unshaped
from critic_prm.providers.images import data_url
from critic_prm.providers.models import abilities
from critic_prm.providers.provider import (
    MOST_TOKENS,
    Marked,
    Message,
    Reply,
    Request,
    Usage,
    Wire,
    finish_of,
    service_tier,
    stated_usage,
    token_count,
)

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic
    from anthropic.types.messages import MessageBatch

DEFAULT_MAX_TOKENS = 8192
"""The API requires `max_tokens`, which covers both thinking and the visible reply."""

CHARACTERS_PER_TOKEN = 4.0
"""A high estimate (Claude has 2.5 to 3.5 in English prose), so that a prefix estimated to be long enough for the cache is."""

HIGHEST_MINIMUM = 4096
"""Minimum prefix length in tokens that every model's prompt cache accepts; used where the model's own minimum is unknown."""


@dataclass
class AnthropicProvider(HTTPProvider):
    """Provider for Anthropic's Messages API. `token` is a bearer token, used in place of `key`."""

    official_addresses: ClassVar = ("https://api.anthropic.com",)
    capabilities: ClassVar = frozenset({"cache-markers"})

    model: str
    base_url: str | None
    key: str | None = field(repr=False)
    token: str | None = field(default=None, repr=False)
    name: str = "anthropic"

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: None = None) -> AnthropicProvider:
        """Open a provider with ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) and ANTHROPIC_BASE_URL from the environment.

        Without a key, everything works that sends nothing. The first request raises an error that says what is missing.
        """
        base_url = base_url or os.environ.get("ANTHROPIC_BASE_URL")
        key, token = os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN")
        return cls(model, base_url, key or ("none" if base_url and not token else None), None if key else token)

    @property
    def secrets(self) -> tuple[str, ...]:
        return (*filter(None, (self.key, self.token)), *self.headers.values(), *secrets_in(self.base_url))

    @property
    def key_variable(self) -> str:
        return self.own_key_variable or ("ANTHROPIC_AUTH_TOKEN" if self.token else "ANTHROPIC_API_KEY")

    def send_with(self, headers: Mapping[str, str], key_variable: str | None) -> None:
        self.headers = headers
        if key_variable is not None:
            self.own_key_variable, self.key, self.token = key_variable, os.environ.get(key_variable), None

    def wire(self, request: Request) -> Wire:
        sampling = request.sampling
        for name in ("temperature", "top_p", "seed", "logprobs"):
            if getattr(sampling, name) is not None:
                raise UsageError(f"{self.model} does not accept {name}; leave it out (Claude samples at temperature 1)")
        system = "\n\n".join(message.content for message in request.messages if message.role == "system")
        body: Wire = {
            "model": self.model,
            "max_tokens": sampling.max_tokens or DEFAULT_MAX_TOKENS,
            "messages": [_message(message) for message in request.messages if message.role != "system"],
        }
        if system:
            # All requests of a style share this text. Unlike the markers of `marked`, this marker is part of the cache key,
            # because existing replies are stored under keys that include it.
            body["system"] = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
        if sampling.stop:
            body["stop_sequences"] = list(sampling.stop)
        output: dict[str, Any] = {"effort": sampling.effort} if sampling.effort else {}
        if request.schema is not None:
            output["format"] = {"type": "json_schema", "schema": request.schema}
        if output:
            body["output_config"] = output
        return body | dict(sampling.extra)

    def marked(self, wire: Wire, request: Request, whole: bool = False) -> Marked:
        """Add prompt-cache markers (`cache_control`) to a body.

        User messages are split into blocks at the offsets in `Message.shared`, and the last two of these positions are marked:
        the prefix up to the first is read from Claude's cache, the one up to the second is written to it. With `whole`, the end
        of the prompt is marked, too. A cache entry is found by the blocks up to its marker, so later requests must be split at
        the same positions. If the user sets `messages` or `cache_control` in `extra`, the body is not changed.
        """
        if {"messages", "cache_control"} & request.sampling.extra.keys():
            return Marked(wire)
        asked = [message for message in request.messages if message.role != "system"]
        messages, kept = list(wire["messages"]), 0
        for place, message in enumerate(asked):
            every = whole and place == len(asked) - 1
            cuts = _cuts(message, every)
            if cuts:
                messages[place] = {"role": message.role, "content": _blocks(messages[place]["content"], cuts)}
                kept = place + 1
                end = None if every else cuts[-1]
        if not kept:
            return Marked(wire)
        shared = [wire.get("system"), wire["messages"][: kept - 1], asked[kept - 1].content[:end]]
        systems = [message for message in request.messages if message.role == "system"]
        length = sum(len(message.content) for message in (*systems, *asked[: kept - 1])) + len(shared[-1])
        if length / CHARACTERS_PER_TOKEN < (abilities(self.name, self.model).cached_from or HIGHEST_MINIMUM):
            name = ""
        else:
            pictures = asked[kept - 1].images if end is None else ()
            name = hashlib.sha256(orjson.dumps([self.model, shared, pictures])).hexdigest()
        return Marked(wire | {"messages": messages}, name)

    def open_post(self) -> Post:
        self._need_key()
        return AsTheSDK("/v1/messages", self._connect, self.max_reply_bytes)

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Reply:
        content = raw.get("content")
        if not isinstance(content, list):
            raise unshaped("no content", raw)
        stop, model = raw.get("stop_details"), raw.get("model")
        return Reply(
            text="".join(str(block.get("text") or "") for block in content if block.get("type") == "text"),
            finish=finish_of(raw.get("stop_reason"), absent="other"),
            raw=raw,
            usage=_usage(raw.get("usage")),
            model=model if isinstance(model, str) else "",
            note=str(stop.get("category") or "") if isinstance(stop, dict) else "",
        )

    def batches(self) -> AnthropicBatches:
        self._need_key()
        return AnthropicBatches(self._connect_alone, self.secrets)

    @staticmethod
    def batch_row(custom: str, wire: Wire) -> dict[str, Any]:
        return {"custom_id": custom, "params": wire}

    def _need_key(self) -> None:
        if not self.key and not self.token and not self.headers:
            other = "" if self.own_key_variable else ", or give your own server with --base-url"
            raise ConfigError(f"anthropic needs a key: set {self.key_variable}{other}")

    def _connect_alone(self) -> AsyncAnthropic:
        import anthropic

        return self._connect(anthropic.DefaultAsyncHttpxClient(trust_env=not is_near(self.base_url), timeout=TIMEOUT))

    def _connect(self, http: httpx2.AsyncClient) -> AsyncAnthropic:
        import anthropic

        return anthropic.AsyncAnthropic(
            api_key=self.key or ("none" if self.headers and not self.token else None),
            auth_token=self.token,
            base_url=without_version(self.base_url),
            max_retries=0,
            http_client=http,
            default_headers=self.headers,
        )


PROVIDER = AnthropicProvider


def without_version(base_url: str | None) -> str | None:
    """Remove a trailing /v1, which OpenAI-compatible servers need, from an address: the SDK adds it."""
    if base_url is None:
        return None
    parts = urlsplit(base_url)
    return parts._replace(path=parts.path.rstrip("/").removesuffix("/v1")).geturl()


def _usage(stated: Any) -> Usage:
    """Convert Anthropic's usage. Its `input_tokens` excludes prompt-cache reads and writes; ours is the whole prompt."""
    usage = stated if isinstance(stated, dict) else {}
    details = usage.get("output_tokens_details")
    cached, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
    lasting = usage.get("cache_creation")
    return stated_usage(
        input=min(sum(map(token_count, (usage.get("input_tokens"), cached, written))), MOST_TOKENS),
        output=usage.get("output_tokens"),
        cached=cached,
        written=written,
        reasoning=details.get("thinking_tokens") if isinstance(details, dict) else None,
        written_hour=lasting.get("ephemeral_1h_input_tokens") if isinstance(lasting, dict) else None,
        tier=service_tier(usage.get("service_tier"), usage.get("speed")),
    )


def _cuts(message: Message, every: bool) -> tuple[int, ...]:
    """Return the offsets at which to split a message into blocks; no block may be blank."""
    cuts: list[int] = []
    text = message.content
    for place in message.shared:
        if text[cuts[-1] if cuts else 0 : place].strip() and text[place:].strip():
            cuts.append(place)
    return (*cuts, len(text)) if every else tuple(cuts)


def _blocks(content: str | list[dict[str, Any]], cuts: tuple[int, ...]) -> list[dict[str, Any]]:
    """Split the text of a message at `cuts` and mark the last two positions.

    A cut at the end of the text refers to the end of the message, after its images.
    """
    text, pictures = (content, []) if isinstance(content, str) else (content[0]["text"], content[1:])
    edges = sorted({0, *cuts, len(text)})
    blocks = [{"type": "text", "text": text[start:end]} for start, end in pairwise(edges)] + pictures
    for cut in cuts[-2:]:
        place = len(blocks) - 1 if cut == len(text) else edges.index(cut) - 1
        blocks[place] = blocks[place] | {"cache_control": {"type": "ephemeral"}}
    return blocks


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.content}
    return {"role": message.role, "content": [{"type": "text", "text": message.content}, *map(_picture, message.images)]}


def _picture(image: str) -> dict[str, Any]:
    url = data_url(image)
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    head, _, data = url.partition(",")
    return {"type": "image", "source": {"type": "base64", "media_type": head[5:].partition(";")[0], "data": data}}


@dataclass
class AnthropicBatches(SDKBatches["AsyncAnthropic"]):
    """Anthropic's Message Batches API: up to 100,000 requests or 256 MB per batch, completed within 24 hours.

    All requests are sent in the create call; results arrive as lines in any order. A batch cannot carry an identifier of ours.
    After a crash, a batch that is newer than the last known one and has the same number of requests may be ours; its results
    show whether it is.
    """

    most_requests: int = 100_000
    most_bytes: int = 256_000_000
    frame: tuple[bytes, bytes, bytes] = (b'{"requests":[', b",\n", b"]}")

    def line(self, custom: str, wire: Wire) -> bytes:
        return orjson.dumps(AnthropicProvider.batch_row(custom, wire))

    async def upload(self, path: Path, token: str) -> str:
        return ""

    async def newest(self) -> str:
        with self.errors():
            page = await self.api.messages.batches.list(limit=1)
            return page.data[0].id if page.data else ""

    async def create(self, path: Path, file: str, token: str) -> Remote:
        from anthropic.types.messages import MessageBatch

        # Use the SDK's generic `post`: its `batches.create` keeps several copies of all requests in memory.
        headers = {"Content-Type": "application/json", "Content-Length": str(size(path))}
        with self.errors():
            made = await self.api.post(
                "/v1/messages/batches", cast_to=MessageBatch, content=chunks(path), options={"headers": headers}
            )
            return _remote(made)

    async def find(self, file: str, token: str, newest: str, requests: int, since: float) -> list[tuple[Remote, bool]]:
        found = []
        with self.errors():
            async for batch in self.api.messages.batches.list(limit=100):
                if batch.id == newest or batch.created_at.timestamp() < since - MARGIN:
                    break
                remote = _remote(batch)
                if remote.requests == requests:
                    found.append((remote, False))
        return found

    async def look(self, id: str) -> Remote:
        with self.errors():
            return _remote(await self.api.messages.batches.retrieve(id))

    async def cancel(self, id: str) -> Remote:
        with self.errors():
            return _remote(await self.api.messages.batches.cancel(id))

    async def results(self, remote: Remote) -> AsyncIterator[bytes]:
        with self.errors():
            async with self.api.messages.batches.with_streaming_response.results(remote.id) as response:
                async for line in lines(response.iter_bytes(1 << 20)):
                    yield line


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
