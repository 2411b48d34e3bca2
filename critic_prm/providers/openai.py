"""Provider for Chat Completions, at OpenAI or any compatible server (--base-url), and for OpenAI's Batch API."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import urlsplit

import orjson

from critic_prm.errors import ConfigError, UsageError
from critic_prm.providers.addresses import basic_credentials, is_near, secrets_in, with_path, without_keys
from critic_prm.providers.batches import MARGIN, TIMEOUT, Remote, SDKBatches, State, lines
from critic_prm.providers.failures import failed
from critic_prm.providers.http import AsTheSDK, Direct, HTTPProvider, Post, unshaped
from critic_prm.providers.images import data_url
from critic_prm.providers.models import MOST_STOPS, Abilities, abilities
from critic_prm.providers.provider import (
    Message,
    Reply,
    Request,
    Sampling,
    TokenLogprob,
    Usage,
    Wire,
    finish_of,
    stated_usage,
)

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI
    from openai.types import Batch


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the provider."""

    sdk: bool | None = None
    """Send requests with the headers of OpenAI's SDK; default: only to OpenAI's own servers."""


@dataclass
class OpenAIProvider(HTTPProvider):
    """Provider for Chat Completions. `direct` bypasses the SDK and its headers; None: for all servers but OpenAI's own."""

    official_addresses: ClassVar = tuple(f"https://{region}api.openai.com/v1" for region in ("", "us.", "eu."))

    model: str
    base_url: str | None
    key: str = field(repr=False)
    name: str = "openai"
    direct: bool | None = None

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: Options = Options()) -> OpenAIProvider:
        """Open a provider with OPENAI_API_KEY and OPENAI_BASE_URL from the environment. With a base URL, no key is needed.

        Without either, everything works that sends nothing, such as a dry run or reading the cache. The first request raises an
        error that says what is missing.
        """
        base_url = base_url or os.environ.get("OPENAI_BASE_URL")
        direct = None if options.sdk is None else not options.sdk
        return cls(model, base_url, os.environ.get("OPENAI_API_KEY") or ("none" if base_url else ""), direct=direct)

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.key, *secrets_in(self.base_url))

    def wire(self, request: Request) -> Wire:
        able = abilities(self.name, self.model)
        body: Wire = {"model": self.model, "messages": [_message(message) for message in request.messages]}
        limit = "max_completion_tokens" if is_openai(self.base_url) else able.limit
        body |= _sampling(request.sampling, able, self.model, limit)
        if request.schema is not None:
            named = {"name": "verdicts", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return body | dict(request.sampling.extra)

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Reply:
        return read_chat(raw)

    def batches(self) -> OpenAIBatches:
        self._need_key()
        return OpenAIBatches(self._connect_alone, self.secrets)

    def _need_key(self) -> None:
        if not self.key:
            raise ConfigError("openai needs a key: set OPENAI_API_KEY, or give your own server with --base-url")

    def _connect_alone(self) -> AsyncOpenAI:
        import openai

        return self._connect(openai.DefaultAsyncHttpxClient(trust_env=not is_near(self.base_url), timeout=TIMEOUT))

    def open_post(self) -> Post:
        self._need_key()
        direct = self.direct if self.direct is not None else not is_openai(self.base_url)
        if direct and self.base_url:
            allowed = basic_credentials(self.base_url) or f"Bearer {self.key}"
            return Direct(with_path(self.base_url, "/chat/completions"), {"Authorization": allowed}, self.max_reply_bytes)
        return AsTheSDK("/chat/completions", self._connect, self.max_reply_bytes)

    def _connect(self, http: httpx2.AsyncClient) -> AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(api_key=self.key, base_url=self.base_url, max_retries=0, http_client=http)


PROVIDER = OpenAIProvider


@cache
def is_openai(base_url: str | None) -> bool:
    """Whether the address is OpenAI's own (regional hosts included)."""
    host = urlsplit(base_url).hostname if base_url else "api.openai.com"
    return host == "api.openai.com" or (host or "").endswith(".api.openai.com")


def read_chat(raw: Mapping[str, Any]) -> Reply:
    """Parse the body of a chat completion. `prompt_tokens` includes cached tokens, `completion_tokens` hidden reasoning."""
    choices = raw.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise unshaped("no choices", raw)
    choice = choices[0]
    message = choice.get("message")
    if not isinstance(message, dict):
        raise unshaped("a choice without a message", raw)
    if choice.get("error"):  # OpenRouter: the upstream server failed in the middle of the reply
        raise failed(200, {}, {"error": choice["error"]})
    text, said_no = _content(message.get("content"), raw)
    refusal = message.get("refusal") or said_no
    finish = finish_of(choice.get("finish_reason"))
    return Reply(
        text=text,
        finish="refusal" if refusal else finish,
        raw=raw,
        usage=_usage(raw.get("usage"), raw.get("service_tier")),
        logprobs=_logprobs(choice.get("logprobs")),
        model=model if isinstance(model := raw.get("model"), str) else "",
        note=str(refusal or ""),
    )


def _message(message: Message) -> dict[str, Any]:
    if not message.images:
        return {"role": message.role, "content": message.content}
    pictures = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in message.images]
    return {"role": message.role, "content": [{"type": "text", "text": message.content}, *pictures]}


def _sampling(sampling: Sampling, able: Abilities, model: str, limit: str) -> Wire:
    body: Wire = {}
    reasons = (sampling.effort or able.default_effort) not in ("", "none")
    drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
    for name, value in drawn.items():
        if value is not None:
            body[name] = _allowed(name, value, able.sampling, reasons, model)
    if sampling.logprobs is not None:
        body["logprobs"] = _allowed("logprobs", True, able.logprobs, reasons, model)
        body["top_logprobs"] = sampling.logprobs
    if sampling.max_tokens is not None:
        body[limit] = sampling.max_tokens
    if sampling.stop and able.stop:
        body["stop"] = list(sampling.stop[:MOST_STOPS])
    if sampling.effort is not None:
        body["reasoning_effort"] = sampling.effort
    return body


def _allowed(name: str, value: Any, when: str, reasons: bool, model: str) -> Any:
    if when == "always" or (when == "no-effort" and not reasons):
        return value
    fix = "set --effort none" if when == "no-effort" else "leave it out"
    raise UsageError(f"{model} does not accept {name} while it reasons; {fix}")


def _content(content: Any, raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return the visible reply and the refusal in a message's content, which is a string or a list of parts.

    Only text parts belong to the reply; thinking and unknown types stay in the raw body.
    """
    if content is None or isinstance(content, str):
        return content or "", ""
    if not isinstance(content, list):
        raise unshaped("content that is not text", raw)
    parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    said = [str(part.get("text") or "") for part in parts if part.get("type") in ("text", "output_text")]
    refusals = [str(part.get("refusal") or "") for part in parts if part.get("type") == "refusal"]
    return "".join(said), "".join(refusals)


def _usage(stated: Any, tier: Any) -> Usage:
    usage = _object(stated)
    prompt, completion = _object(usage.get("prompt_tokens_details")), _object(usage.get("completion_tokens_details"))
    return stated_usage(
        input=usage.get("prompt_tokens"),
        output=usage.get("completion_tokens"),
        cached=prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens"),  # the second is DeepSeek's
        written=prompt.get("cache_write_tokens"),
        reasoning=completion.get("reasoning_tokens"),
        tier=tier,
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _logprobs(stated: Any) -> tuple[TokenLogprob, ...]:
    """Parse the tokens of a reply. Returns none if any of them is malformed, because probabilities need all tokens."""
    try:
        return tuple(_logprob(token) for token in (stated or {}).get("content") or ())
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()


def _logprob(token: Mapping[str, Any]) -> TokenLogprob:
    top = tuple((str(other["token"]), _log(other["logprob"])) for other in token.get("top_logprobs") or ())
    return TokenLogprob(str(token["token"]), _log(token["logprob"]), top)


def _log(stated: Any) -> float:
    """Parse a log-probability; rounding may leave it slightly above 0. Raises ValueError or TypeError for other values."""
    value = float(stated)
    if not value <= 0.01:
        raise ValueError(f"{value} is not the log of a probability")
    return min(value, 0.0)


ENDPOINT: Final = "/v1/chat/completions"

STATES: dict[str, State] = {"failed": "failed", "completed": "ended", "expired": "ended", "cancelled": "cancelled"}
"""Final states. All other statuses count as running."""

MARK = "critic_prm"
"""The key of our token in a batch's metadata."""


@dataclass
class OpenAIBatches(SDKBatches["AsyncOpenAI"]):
    """OpenAI's Batch API: a request file is uploaded, a batch is created from it, and the output and error files are fetched.

    Up to 50,000 requests or 200 MB per batch, one model per batch, completed within 24 hours.

    A batch that expires keeps the results that were completed.
    """

    most_requests: int = 50_000
    most_bytes: int = 200_000_000
    frame: tuple[bytes, bytes, bytes] = (b"", b"\n", b"\n")

    def line(self, custom: str, wire: Wire) -> bytes:
        return orjson.dumps(OpenAIProvider.batch_row(custom, wire))

    async def upload(self, path: Path, token: str) -> str:
        with self.errors(), path.open("rb") as stream:
            return (await self.api.files.create(file=(path.name, stream), purpose="batch")).id

    async def newest(self) -> str:
        return ""  # not needed: our token in the metadata identifies a batch with certainty

    async def create(self, path: Path, file: str, token: str) -> Remote:
        with self.errors():
            made = await self.api.batches.create(
                input_file_id=file, endpoint=ENDPOINT, completion_window="24h", metadata={MARK: token}
            )
            return self._remote(made)

    async def find(self, file: str, token: str, newest: str, requests: int, since: float) -> list[tuple[Remote, bool]]:
        found = []
        with self.errors():
            async for batch in self.api.batches.list(limit=100):
                if batch.created_at < since - MARGIN:
                    break
                if (batch.metadata or {}).get(MARK) == token or (file and batch.input_file_id == file):
                    found.append((self._remote(batch), True))
        return found

    async def look(self, id: str) -> Remote:
        with self.errors():
            return self._remote(await self.api.batches.retrieve(id))

    async def cancel(self, id: str) -> Remote:
        with self.errors():
            return self._remote(await self.api.batches.cancel(id))

    async def results(self, remote: Remote) -> AsyncIterator[bytes]:
        with self.errors():
            for place in remote.places:
                async with self.api.files.with_streaming_response.content(place) as response:
                    async for line in lines(response.iter_bytes(1 << 20)):
                        yield line

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
