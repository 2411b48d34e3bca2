"""Provider for Chat Completions, at OpenAI or any compatible server (--base-url)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from critic_prm.errors import ConfigError, UsageError
from critic_prm.providers.addresses import basic_credentials, is_near, secrets_in, with_path
from critic_prm.providers.http import answer, failed, unshaped
from critic_prm.providers.images import data_url
from critic_prm.providers.models import MOST_STOPS, Abilities, abilities
from critic_prm.providers.post import AsTheSDK, Direct, Post
from critic_prm.providers.provider import (
    MAX_REPLY_BYTES,
    Message,
    Provider,
    RawReply,
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

    from critic_prm.providers.openai_batches import OpenAIBatches

TIMEOUT = 600.0
"""Timeout in seconds of calls to the batch API; a request file may have 200 MB."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the provider."""

    sdk: bool | None = None
    """Send requests with the headers of OpenAI's SDK; default: only to OpenAI's own servers."""


@dataclass
class OpenAIProvider(Provider):
    """Provider for Chat Completions. `direct` bypasses the SDK and its headers; None: for all servers but OpenAI's own."""

    official_addresses: ClassVar = tuple(f"https://{region}api.openai.com/v1" for region in ("", "us.", "eu."))

    model: str
    base_url: str | None
    key: str = field(repr=False)
    name: str = "openai"
    direct: bool | None = None
    max_reply_bytes: int = MAX_REPLY_BYTES
    _post: Post | None = field(default=None, repr=False)

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

    async def complete(self, wire: Wire) -> RawReply:
        post = self._post = self._post or self._open()
        return await answer(post, wire, self.secrets)

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Reply:
        return read_chat(raw)

    async def close(self) -> None:
        if self._post is not None:
            await self._post.close()
            self._post = None

    def batches(self) -> OpenAIBatches:
        from critic_prm.providers.openai_batches import OpenAIBatches

        self._need_key()
        return OpenAIBatches(self._connect_alone, self.secrets)

    def _need_key(self) -> None:
        if not self.key:
            raise ConfigError("openai needs a key: set OPENAI_API_KEY, or give your own server with --base-url")

    def _connect_alone(self) -> AsyncOpenAI:
        import openai

        return self._connect(openai.DefaultAsyncHttpxClient(trust_env=not is_near(self.base_url), timeout=TIMEOUT))

    def _open(self) -> Post:
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
