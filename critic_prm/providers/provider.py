"""The provider protocol and its data types: Request, Sampling, Reply, Usage and RateLimits."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol, cast

import orjson

from critic_prm.errors import CriticPrmError, ProviderError, UsageError
from critic_prm.option import Option, parse_options
from critic_prm.providers.addresses import check_address
from critic_prm.providers.presets import provider_called
from critic_prm.registry import load, names

if TYPE_CHECKING:
    from critic_prm.providers.batches import BatchAPI

Wire = dict[str, Any]
"""The exact JSON body of a request, as it is sent. The cache key is a hash of it."""

LIMIT_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
"""The fields of a body that limit the tokens of a reply, by OpenAI's, Anthropic's and other servers' names."""

Finish = Literal["stop", "length", "refusal", "filter", "other"]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message."""

    role: str
    """Either "system", "user" or "assistant"."""
    content: str
    images: tuple[str, ...] = ()
    """Paths, data URLs or https URLs."""
    shared: tuple[int, ...] = ()
    """Ascending character offsets into `content` at which shared prefixes end. Later requests share the text up to the last
    offset; earlier requests shared it up to the offsets before. A provider may put prompt-cache markers there, which do not
    change the request."""


def parse_extra_body(text: str) -> dict[str, Any]:
    """Parse the value of --extra-body. Raises UsageError unless it is a JSON object."""
    try:
        extra = orjson.loads(text)
    except ValueError as error:
        raise UsageError(f"--extra-body is not JSON: {error}") from error
    if not isinstance(extra, dict):
        raise UsageError(f"--extra-body is {extra!r}; it must be a JSON object")
    return extra


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. A parameter that is None is not sent."""

    temperature: float | None = None
    """Sampling temperature; the model's default if not given."""
    top_p: float | None = None
    """Nucleus sampling cutoff; the model's default if not given."""
    max_tokens: int | None = None
    """Maximum tokens per reply, including thinking."""
    seed: Annotated[int | None, Option(("--sampling-seed",))] = None
    """Sampling seed, sent to servers that accept one."""
    stop: Annotated[tuple[str, ...], Option(hidden=True)] = ()
    """Strings at which the reply ends."""
    effort: str | None = None
    """Reasoning effort, by the provider's names for the levels."""
    logprobs: int | None = None
    """Request N alternatives per token, for verdict probabilities. 0 turns this off."""
    extra_body: Annotated[Mapping[str, Any], Option(parse=parse_extra_body)] = field(default_factory=dict)
    """JSON object merged into every request body."""
    service_tier: str | None = None
    """Service tier, by the provider's name, such as flex or priority."""

    @property
    def extra(self) -> dict[str, Any]:
        """The parameters that are merged into the request body unchanged."""
        return {**self.extra_body} | ({} if self.service_tier is None else {"service_tier": self.service_tier})


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a model, independent of any provider's format."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    schema: Mapping[str, Any] | None = None
    """JSON schema for the reply."""
    continues: bool = False
    """The last message is the beginning of the model's own reply. Needs a provider with the capability "continue"."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one reply, or of several added up."""

    input: int = 0
    """All prompt tokens, including those read from and written to the provider's prompt cache."""
    output: int = 0
    """All generated tokens, including reasoning tokens."""
    cached: int = 0
    """Prompt tokens read from the provider's prompt cache."""
    written: int = 0
    """Prompt tokens written to the provider's prompt cache."""
    reasoning: int = 0
    """Reasoning tokens, part of `output`."""
    written_hour: int = 0
    """Tokens cached for an hour, part of `written`."""
    tier: str = ""
    """Service tier for billing (see `service_tier`); MIXED in a sum over several tiers."""

    def __add__(self, other: Usage) -> Usage:
        # A usage without tokens was not billed in any tier.
        tiers = {usage.tier for usage in (self, other) if usage.input or usage.output}
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.written + other.written,
            self.reasoning + other.reasoning,
            self.written_hour + other.written_hour,
            MIXED if len(tiers) > 1 else tiers.pop() if tiers else "",
        )


MIXED = "mixed"
"""The tier of a sum over several tiers. It has no price."""

STANDARD_TIERS = frozenset(("", "auto", "default", "standard", "standard_only", "on_demand"))
"""The names of the standard service tier: OpenAI's, Anthropic's and Groq's."""

LONGEST_TIER = 40


def service_tier(stated: object, speed: object = None) -> str:
    """Return the name under which a requested or reported service tier is priced; "" is the standard tier.

    `speed` is Anthropic's parameter; every speed but the standard one has its own price.
    """
    if isinstance(speed, str) and speed not in STANDARD_TIERS:
        return f"speed {speed}"[:LONGEST_TIER]
    if stated is None or (isinstance(stated, str) and stated in STANDARD_TIERS):
        return ""
    name = str(stated)[:LONGEST_TIER]
    return "priority" if name == "fast" else name  # OpenAI's names for the same tier


def requested_tier(body: Mapping[str, Any]) -> str:
    """Return the service tier that a request body, or parameters to be merged into one, asks for."""
    return service_tier(body.get("service_tier"), body.get("speed"))


MOST_TOKENS = 2**53
"""The largest token count that SQLite and every JSON parser represent exactly."""


def token_count(stated: object) -> int:
    """Parse a token count reported by a server or file; "10" and 10.0 are accepted.

    Anything but an integer from 0 to 2**53 counts as 0, so no reported count can lower what a run has spent.
    """
    if type(stated) is int:
        return stated if 0 <= stated <= MOST_TOKENS else 0
    digits = isinstance(stated, str) and len(stated) <= 16 and stated.isascii() and stated.isdecimal()
    if digits or (isinstance(stated, float) and stated.is_integer()):
        return token_count(int(stated))  # type: ignore[call-overload]
    return 0


def stated_usage(
    input: object = 0,
    output: object = 0,
    cached: object = 0,
    written: object = 0,
    reasoning: object = 0,
    written_hour: object = 0,
    tier: object = "",
) -> Usage:
    """Build a Usage from unchecked counts. A part is clipped to the total that includes it."""
    whole, out, read = token_count(input), token_count(output), token_count(cached)
    read = min(read, whole)
    write = min(token_count(written), whole - read)
    hour, thought = min(token_count(written_hour), write), min(token_count(reasoning), out)
    return Usage(whole, out, read, write, thought, hour, service_tier(tier) if whole or out else "")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One sampled token and its log-probability (natural log)."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()
    """The alternatives that the server returned, as (token, log-probability)."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A parsed reply."""

    text: str
    """The visible reply alone, without reasoning."""
    finish: Finish
    raw: Mapping[str, Any]
    """The decoded body, complete and unchanged."""
    usage: Usage = Usage()
    logprobs: tuple[TokenLogprob, ...] = ()
    model: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """The rate limits that a server reports with a reply. None where it reports none."""

    requests: int | None = None
    """Requests left."""
    requests_reset: float | None = None
    """Seconds until the request quota is full again."""
    tokens: int | None = None
    """Tokens left."""
    tokens_reset: float | None = None
    """Seconds until the token quota is full again."""


@dataclass(frozen=True, slots=True)
class RawReply:
    """The result of one round trip: the decoded body and the rate limits that the server reports."""

    raw: Mapping[str, Any]
    allowance: RateLimits = RateLimits()


@dataclass(frozen=True, slots=True)
class Marked:
    """A request body with the prompt-cache markers that some providers need."""

    wire: Wire
    prefix: str = ""
    """Identifies the prefix that later requests share, if it is long enough to be cached; else empty."""


MAX_REPLY_BYTES = 16_000_000
"""Default maximum size of a decoded reply. With five alternatives per token, a reply of 8,192 tokens has about 3 MB."""

Capability = Literal["continue", "logprobs", "in-process", "cache-markers"]


class Provider(Protocol):
    """Client for one model API. Each provider is a module in `providers/` or of another package (see `critic_prm.registry`).

    The module names its class as `PROVIDER`. It may define a dataclass `Options`: values for `--option KEY=VALUE`, see
    `critic_prm.option`. Subclass this class: `connect`, `wire`, `complete` and `read` are required, everything else has a
    default.
    """

    official_addresses: ClassVar[tuple[str, ...]] = ()
    """Addresses of the provider's own servers, where its API key may be sent even if a file names them."""
    model_is_path: ClassVar[bool] = False
    """Whether the model may be a file or folder. A name read from a file is then checked (see `critic_prm.data.trust`)."""
    files_need_trust: ClassVar[bool] = False
    """Whether only a trusted file may name the provider, because where it sends the user's keys is not known here."""
    cache_only: ClassVar[bool] = False
    """Whether all its replies are in a cache, which must exist."""

    name: str
    """The provider's name in cache rows."""
    model: str
    base_url: str | None
    max_reply_bytes: int = MAX_REPLY_BYTES
    """Maximum size of a reply body, if it comes from a network. A run sets it before it sends anything."""

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: Any = None) -> Provider:
        """Open the provider for a model. `options` is an object of the module's `Options` class, None if it has none.

        Nothing may be sent or loaded before the first request. Raises UsageError for invalid options. A missing key or address
        is not an error here: a dry run needs neither. The first request raises ConfigError.
        """
        ...

    @property
    def capabilities(self) -> Collection[Capability]:
        """What the provider can do besides answering. "continue": the model can continue a partial reply. "logprobs": available
        for every model. "in-process": the model runs in this process, so there is no rate limit to discover. "cache-markers":
        its prompt cache needs the markers of `marked`."""
        return ()

    @property
    def token_limits(self) -> Sequence[str]:
        """The fields of a body that limit the tokens of a reply, such as "max_tokens", or "settings.limit" for a field of an
        object. A truncated reply is requested again with twice the limit."""
        return LIMIT_FIELDS

    @property
    def secrets(self) -> tuple[str, ...]:
        """Strings that must not appear in any message, such as the API key."""
        return ()

    @property
    def key_variable(self) -> str:
        """The environment variable that holds the API key, for messages; empty if there is none."""
        return ""

    def send_with(self, headers: Mapping[str, str], key_variable: str | None) -> None:
        """Add these headers to every request and, if given, take the API key from another environment variable. Called before
        the first request. Raises UsageError for a provider without HTTP requests."""
        raise UsageError(f"{self.name} sends no HTTP requests; leave out --header and --api-key-env")

    @property
    def gpus(self) -> float:
        """Number of GPUs that one copy of a model in this process uses."""
        return 0

    def wire(self, request: Request) -> Wire:
        """Convert a request to this provider's format: exactly the JSON that will be sent. Pure. Raises UsageError."""
        ...

    async def complete(self, wire: Wire) -> RawReply:
        """Send a body once, without retries, and decode the reply. Raises ProviderError."""
        ...

    @staticmethod
    def read(raw: Mapping[str, Any]) -> Reply:
        """Parse a decoded body, fresh or stored. Pure. Raises ProviderError when it does not have the structure of a reply; the
        caller converts any other exception, such as a KeyError, to one (see `reading_answer`)."""
        ...

    def marked(self, wire: Wire, request: Request, whole: bool = False) -> Marked:
        """Add prompt-cache markers to the body of `request`, just before it is sent. With `whole`, the whole prompt will be
        sent again."""
        return Marked(wire)

    def batches(self) -> BatchAPI:
        """Open the provider's batch API. Raises UsageError if it has none and ConfigError for a missing key."""
        raise UsageError(
            f"{self.name} has no batch API; `critic-prm batch export` writes the requests to a file, for `vllm run-batch`"
            " or another program, and `critic-prm batch import` imports the results"
        )

    @staticmethod
    def batch_row(custom: str, wire: Wire) -> dict[str, Any]:
        """One request of a batch file, by default in OpenAI's format. `custom` identifies it."""
        return {"custom_id": custom, "method": "POST", "url": "/v1/chat/completions", "body": wire}

    async def close(self) -> None:
        """Close all connections."""
        return


class reading_answer:
    """Context manager for parsing a server's reply: turn any unexpected exception into a ProviderError (malformed reply)."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, CriticPrmError):
            name = type(error).__name__
            raise ProviderError(f"the server's answer is malformed and cannot be read ({name})", "transient") from error


def request_key(wire: Mapping[str, Any], sample: int = 0, salt: str = "") -> str:
    """Return the cache key of a request: the SHA-256 (hex) of the canonical JSON of the body, the sample index and the salt.

    The key does not depend on the provider, address, concurrency, retries, file names, row order or template name.
    """
    canonical = orjson.dumps([wire, sample, salt], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()


def prompt_parts(wire: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a body that hold the prompt: `messages` and `system`, or the whole body if it has no `messages`."""
    return [wire["messages"], wire.get("system")] if "messages" in wire else [wire]


def asks_for_schema(wire: Mapping[str, Any]) -> bool:
    """Whether a body asks for structured outputs, in any provider's format."""
    output = wire.get("output_config")
    return any(name in wire for name in ("response_format", "structured_outputs", "schema")) or (
        isinstance(output, dict) and "format" in output
    )


def provider_class(name: str) -> type[Provider] | None:
    """Return the class of a provider; None for a name that no installed provider has."""
    return cast("type[Provider]", load("provider", name).PROVIDER) if name in names("provider") else None


def official_addresses(name: str) -> tuple[str, ...]:
    """Return the addresses of a provider's own servers, where its API key may be sent safely."""
    provider = provider_class(name)
    return provider.official_addresses if provider else ()


def read_stored(name: str, raw: Mapping[str, Any]) -> Reply | None:
    """Parse a stored body with the `read` of the provider that sent the request; a provider that is not installed here is taken
    for one of chat completions. None if the body cannot be parsed."""
    try:
        with reading_answer():
            return (provider_class(name) or load("provider", "openai").PROVIDER).read(raw)
    except ProviderError:
        return None


def open_provider(
    name: str,
    base_url: str | None = None,
    options: Sequence[str] = (),
    headers: Sequence[str] = (),
    key_variable: str | None = None,
) -> Provider:
    """Open a provider by name: "openai/gpt-...", "anthropic/claude-...", "scripted/replies.jsonl" or
    "package.module:factory/model".

    `options` are "key=value" texts for the provider's own options, `headers` "name=value" texts of HTTP headers, and
    `key_variable` is the environment variable of the API key, if not the provider's own. The last form imports and runs code.
    Use it only for names given on the command line or in Python; a name read from a file must pass `trust.Origin` first. Raises
    UsageError for a name without a provider and ConfigError when a key is missing.
    """
    kind, slash, model = name.partition("/")
    if not slash or not kind or not model:
        raise UsageError(f"judge {name!r} names no provider; write provider/model, for example openai/{name or 'MODEL'}")
    if ":" in kind:
        module, _, factory = kind.partition(":")
        plugin = import_module(module)
        connect = getattr(plugin, factory)
    else:
        try:
            plugin = load("provider", kind)
            connect = plugin.PROVIDER.connect
        except UsageError as error:
            if (meant := provider_called(kind)) is not None:
                raise UsageError(f"there is no provider {kind!r}; did you mean {meant}/{model}?") from None
            raise UsageError(f"{error}, or litellm/{name}; and {name!r} is not a verifier folder") from None
    given = parse_options(plugin, options, f"provider {kind}")
    check_address(base_url)
    provider: Provider = connect(model, base_url) if given is None else connect(model, base_url, given)
    check_address(provider.base_url)  # it may come from the environment
    if headers or key_variable is not None:
        provider.send_with(parse_headers(headers), key_variable)
    return provider


def parse_headers(texts: Sequence[str]) -> dict[str, str]:
    """Parse "name=value" texts. Raises UsageError, which shows nothing of a text that is not in this form: it may be secret."""
    headers: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not _HEADER.fullmatch(name):
            raise UsageError("a --header is not of the form NAME=VALUE; write it as in --header X-Team=judges, without a colon")
        if name.lower() in TRANSPORT_HEADERS:
            raise UsageError(f"--header {name} belongs to the transport and cannot be set; leave it out")
        if not value.isprintable() or not value.isascii():
            raise UsageError(f"the value of --header {name} has characters that HTTP headers do not allow")
        headers[name] = value
    return headers


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

TRANSPORT_HEADERS = frozenset(
    ("host", "connection", "content-length", "content-type", "transfer-encoding", "accept-encoding", "te", "upgrade")
)
"""Headers that describe the body or the connection."""


WORDS: dict[Finish, str] = {
    "stop": "stop eos eos_token stop_token end_turn stop_sequence complete completed",
    "length": "length max_tokens max_output_tokens model_length model_context_window_exceeded",
    "filter": "content_filter safety sensitive",
    "refusal": "refusal",
}
"""Servers' finish reasons in lower case. Any other one ("tool_calls", or an undocumented one) maps to "other" (incomplete)."""


BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"})
"""Finish reasons of aborted replies at OpenRouter, Mistral, vLLM, SGLang, DeepSeek and Zhipu."""


FINISH: dict[str, Finish] = {word: finish for finish, words in WORDS.items() for word in words.split()}


def finish_of(reason: Any, absent: Finish = "stop") -> Finish:
    """Map a finish reason; `absent` is the result if there is none. Raises a transient ProviderError for an aborted reply."""
    word = str(reason or "").lower()
    if word in BROKEN:
        raise ProviderError(f"the server broke the answer off (finish reason {word!r})", "transient", status=200)
    return FINISH.get(word, "other") if word else absent
