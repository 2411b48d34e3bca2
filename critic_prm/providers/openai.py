"""Provider for Chat Completions, at OpenAI, the servers of presets.toml or any compatible one; and for OpenAI's Batch API."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import orjson

from critic_prm.errors import ConfigError, ProviderError, UsageError
from critic_prm.providers.addresses import basic_credentials, is_near, secrets_in, with_path, without_keys
from critic_prm.providers.batches import MARGIN, TIMEOUT, BatchAPI, Remote, SDKBatches, State, lines
from critic_prm.providers.failures import failed
from critic_prm.providers.http import AsTheSDK, Direct, HTTPProvider, Post, unshaped, with_headers
from critic_prm.providers.images import data_url
from critic_prm.providers.models import Abilities, abilities
from critic_prm.providers.presets import Preset, preset_of, presets, with_effort
from critic_prm.providers.provider import (
    Capability,
    Message,
    RawReply,
    Reply,
    Request,
    Sampling,
    TokenLogprob,
    Usage,
    Wire,
    finish_of,
    stated_usage,
    token_count,
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
    """Provider for Chat Completions. `name` is that of a preset, whose address, key and differences from OpenAI's API are in
    presets.toml. `direct` bypasses the SDK and its headers; None: for all servers but OpenAI's own."""

    called: ClassVar[str] = "openai"
    """The preset that `connect` opens."""
    official_addresses: ClassVar = presets()["openai"].official_addresses

    model: str
    base_url: str | None
    key: str = field(repr=False)
    name: str = "openai"
    direct: bool | None = None
    not_running: str = ""
    """What to say if no server listens at the address, rather than to try again. For a local server at its default address."""
    _answered: bool = field(default=False, init=False, repr=False)

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: Options = Options()) -> OpenAIProvider:
        """Open a provider with the key and, if none is given, the address from the environment; OpenAI's are OPENAI_API_KEY and
        OPENAI_BASE_URL. A server that is not the provider's own needs no key.

        Without key and address, everything works that sends nothing, such as a dry run or reading the cache. The first request
        raises an error that says what is missing.
        """
        preset = preset_of(cls.called)
        address = preset.address(base_url)
        key = os.environ.get(preset.key) if preset.key else None
        direct = None if options.sdk is None else not options.sdk
        provider = cls(model, address, key or ("" if preset.owns(address) else NO_KEY), name=cls.called, direct=direct)
        if preset.start and address == preset.base_url:
            provider.not_running = (
                f"nothing answers at {address}: start {preset.title} with `{preset.start}`, or name the server's address with"
                " --base-url"
            )
        return provider

    @property
    def preset(self) -> Preset:
        """What the server accepts."""
        return _preset(self.name, self.base_url)

    @property
    def key_variable(self) -> str:
        return self.own_key_variable or self.preset.key

    @property
    def capabilities(self) -> Collection[Capability]:
        most: tuple[Capability, ...] = ("logprobs",)
        return most if self.preset.logprobs == "always" else ()

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self.key, *self.headers.values(), *secrets_in(self.base_url))

    def send_with(self, headers: Mapping[str, str], key_variable: str | None) -> None:
        self.headers = headers
        if key_variable is not None:
            self.own_key_variable, self.key = key_variable, os.environ.get(key_variable, "")

    def wire(self, request: Request) -> Wire:
        preset = self.preset
        able = abilities(self.name, self.model)
        body: Wire = {"model": self.model, "messages": [_message(message) for message in request.messages]}
        body |= _sampling(request.sampling, able, preset, self.model)
        if request.schema is not None and preset.schema == "json_schema":
            named = {"name": "verdicts", "strict": True, "schema": request.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif request.schema is not None and preset.schema:
            body["response_format"] = {"type": preset.schema}
        return body | dict(request.sampling.extra)

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Reply:
        return read_chat(raw)

    def batches(self) -> BatchAPI:
        if self.name != "openai":
            return super().batches()
        self._need_key()
        return OpenAIBatches(self._connect_alone, self.secrets)

    def _need_key(self) -> None:
        """Raise ConfigError without a key or an address."""
        preset = self.preset
        if preset.base_url is None and self.base_url is None:
            where = f"--base-url https://{preset.hosts[0].replace('*', 'RESOURCE')} or in {preset.base_url_env}"
            raise ConfigError(f"{self.name} needs an address: give it with {where}")
        if not self.key and not self.headers:
            other = "" if self.own_key_variable else ", or give your own server with --base-url"
            raise ConfigError(f"{self.name} needs a key: set {self.key_variable}{other}")

    def _connect_alone(self) -> AsyncOpenAI:
        import openai

        return self._connect(openai.DefaultAsyncHttpxClient(trust_env=not is_near(self.base_url), timeout=TIMEOUT))

    async def complete(self, wire: Wire) -> RawReply:
        try:
            reply = await super().complete(wire)
        except ProviderError as error:
            if self.not_running and not self._answered and error.cause == "refused":
                raise ConfigError(f"{self.name}/{self.model}: {self.not_running}") from None
            raise
        self._answered = True
        return reply

    def open_post(self) -> Post:
        self._need_key()
        direct = self.direct if self.direct is not None else not is_openai(self.base_url)
        if direct and self.base_url:
            headers = with_headers(self._authorization(), self.headers)
            return Direct(with_path(self.base_url, "/chat/completions"), headers, self.max_reply_bytes)
        return AsTheSDK("/chat/completions", self._connect, self.max_reply_bytes)

    def _authorization(self) -> dict[str, str]:
        """The header with the key: a user and password in the address, the header of the preset, or else a bearer token."""
        if basic := basic_credentials(self.base_url or ""):
            return {"Authorization": basic}
        if not self.key:
            return {}
        return {self.preset.key_header: self.key} if self.preset.key_header else {"Authorization": f"Bearer {self.key}"}

    def _connect(self, http: httpx2.AsyncClient) -> AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(
            api_key=self.key or NO_KEY,
            base_url=self.base_url,
            max_retries=0,
            http_client=http,
            default_headers=self.headers,
        )


PROVIDER = OpenAIProvider

NO_KEY = "none"
"""Sent in place of a key to servers that need none."""


def preset(name: str) -> SimpleNamespace:
    """The plug-in for a preset: its PROVIDER is a class of its own, so that addresses and replies are looked up by name."""
    found = presets()[name]
    own = {"called": name, "official_addresses": found.official_addresses, "__module__": __name__}
    return SimpleNamespace(PROVIDER=type(f"{found.name.title()}Provider", (OpenAIProvider,), own))


@cache
def _preset(name: str, base_url: str | None) -> Preset:
    return preset_of(name).at(base_url)


def is_openai(base_url: str | None) -> bool:
    """Whether the address is OpenAI's own (regional hosts included)."""
    return presets()["openai"].owns(base_url)


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


def _sampling(sampling: Sampling, able: Abilities, preset: Preset, model: str) -> Wire:
    body: Wire = {}
    reasons = (sampling.effort or able.default_effort) not in ("", "none")
    drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, preset.seed: sampling.seed}
    for name, value in drawn.items():
        if value is not None:
            body[_taken(name, "a seed", preset)] = _allowed(name, value, able.sampling, reasons, model)
    if sampling.logprobs is not None:
        _taken("" if preset.logprobs == "never" else "logprobs", "log-probabilities (--logprobs)", preset)
        wanted = _allowed("logprobs", True, able.logprobs, reasons, model)
        body |= {"logprobs": wanted, preset.logprobs_field: sampling.logprobs}
    if sampling.max_tokens is not None:
        body[preset.limit or able.limit] = sampling.max_tokens
    if sampling.stop and able.stop:
        body["stop"] = list(sampling.stop[: preset.stops])
    if sampling.effort is not None:
        with_effort(body, _taken(preset.effort, "a reasoning effort", preset), sampling.effort)
    return body


def _taken(name: str, what: str, preset: Preset) -> str:
    """The name of a field, or UsageError if the server has none for it."""
    if not name:
        raise UsageError(f"{preset.title} does not take {what}; leave it out")
    return name


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
    read, written = token_count(usage.get("prompt_tokens")), token_count(usage.get("completion_tokens"))
    return stated_usage(
        input=read,
        # xAI and Gemini count reasoning in the total, and bill it, but not as part of the completion.
        output=max(written, token_count(usage.get("total_tokens")) - read) if read else written,
        # The second is DeepSeek's, the third Moonshot's.
        cached=prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens"),
        written=prompt.get("cache_write_tokens") or prompt.get("cache_creation_tokens"),  # the second is LiteLLM's
        reasoning=completion.get("reasoning_tokens"),
        tier=tier or usage.get("service_tier"),
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _logprobs(stated: Any) -> tuple[TokenLogprob, ...]:
    """Parse the tokens of a reply. Returns none if any of them is malformed, because probabilities need all tokens."""
    try:
        if (stated or {}).get("content") is None and (stated or {}).get("tokens"):
            return _listed_logprobs(stated)
        return tuple(_logprob(token) for token in (stated or {}).get("content") or ())
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()


def _listed_logprobs(stated: Mapping[str, Any]) -> tuple[TokenLogprob, ...]:
    """Parse Together's format: lists of tokens, of their log-probabilities, and of objects with the alternatives."""
    tops = stated.get("top_logprobs") or [{}] * len(stated["tokens"])
    return tuple(
        TokenLogprob(str(token), _log(value), tuple((str(other), _log(chance)) for other, chance in top.items()))
        for token, value, top in zip(stated["tokens"], stated["token_logprobs"], tops, strict=True)
    )


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
