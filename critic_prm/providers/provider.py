"""What goes on the wire and what comes back: Request, Sampling, Reply, and the Provider that turns one into the other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, Protocol

import orjson

from critic_prm.errors import CriticPrmError, ProviderError, UsageError
from critic_prm.registry import load, names

Wire = dict[str, Any]
"""The exact JSON body of a request; what the cache key is made of."""

Finish = Literal["stop", "length", "refusal", "filter", "other"]


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message. `role` is "system", "user" or "assistant"; `images` are paths, data or https URLs.

    `shared` are places in `content`, ascending: later requests begin with the same text up to the last of them, earlier ones
    did up to those before. A provider with a prompt cache may mark them; what is asked stays the same.
    """

    role: str
    content: str
    images: tuple[str, ...] = ()
    shared: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to sample. None means: do not send the parameter. `logprobs` is how many alternatives to ask for per token.

    `effort` is the reasoning effort, by the provider's own names. `extra` is merged into the body as it is.
    """

    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    effort: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a model, in no provider's dialect yet. `schema` is a JSON schema the answer should obey. With `continues`
    the last message is the beginning of the model's own answer, for providers that have "continue" among their `gives`."""

    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    schema: Mapping[str, Any] | None = None
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply: `input` is the whole prompt, of which `cached` were read from and `written` to the provider's
    prompt cache, `written_hour` of these for an hour; `output` includes `reasoning`. `tier` is the service tier that they are
    billed in (see `service_tier`), MIXED in a sum over several tiers."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    reasoning: int = 0
    written_hour: int = 0
    tier: str = ""

    def __add__(self, other: Usage) -> Usage:
        # Without tokens, no tier was used.
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
"""The tier of a sum over several tiers: it has no price."""

STANDARD_TIERS = frozenset(("", "auto", "default", "standard", "standard_only", "on_demand"))
"""The names of the standard service tier: OpenAI's, Anthropic's and Groq's."""

LONGEST_TIER = 40


def service_tier(stated: object, speed: object = None) -> str:
    """The service tier that a request asks for or a reply reports, in the name under which it has a price; "" is the standard
    one. `speed` is Anthropic's, of which any but the standard one has a price of its own."""
    if isinstance(speed, str) and speed not in STANDARD_TIERS:
        return f"speed {speed}"[:LONGEST_TIER]
    if stated is None or (isinstance(stated, str) and stated in STANDARD_TIERS):
        return ""
    name = str(stated)[:LONGEST_TIER]
    return "priority" if name == "fast" else name  # OpenAI's names for the same tier


def requested_tier(body: Mapping[str, Any]) -> str:
    """The service tier that a request's body, or what is merged into it, asks for."""
    return service_tier(body.get("service_tier"), body.get("speed"))


MOST_TOKENS = 2**53
"""The largest count that every JSON parser and SQLite keep exactly."""


def token_count(stated: object) -> int:
    """A token count as a server or a file states it, also as "10" or 10.0. Anything but a whole number from 0 to 2**53 counts
    as not stated, which is 0: no count can lower what a run has spent."""
    digits = isinstance(stated, str) and len(stated) <= 16 and stated.isascii() and stated.isdecimal()
    if digits or (isinstance(stated, float) and stated.is_integer()):
        stated = int(stated)  # type: ignore[call-overload]
    return stated if type(stated) is int and 0 <= stated <= MOST_TOKENS else 0


def stated_usage(
    input: object = 0,
    output: object = 0,
    cached: object = 0,
    written: object = 0,
    reasoning: object = 0,
    written_hour: object = 0,
    tier: object = "",
) -> Usage:
    """The usage that counts of an unchecked source state: parts never exceed the whole that includes them."""
    whole, out, read = token_count(input), token_count(output), token_count(cached)
    read = min(read, whole)
    write = min(token_count(written), whole - read)
    hour, thought = min(token_count(written_hour), write), min(token_count(reasoning), out)
    return Usage(whole, out, read, write, thought, hour, service_tier(tier) if whole or out else "")


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """One sampled token with the alternatives the server returned, as (token, natural log of its probability)."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `text` is the visible answer alone; `raw` the decoded body, complete and unchanged."""

    text: str
    finish: Finish
    raw: Mapping[str, Any]
    usage: Usage = Usage()
    logprobs: tuple[TokenLogprob, ...] = ()
    model: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What the server says is left: of requests and of tokens, and in how many seconds each is full again. None: not said."""

    requests: int | None = None
    requests_reset: float | None = None
    tokens: int | None = None
    tokens_reset: float | None = None


@dataclass(frozen=True, slots=True)
class RawReply:
    """What one round trip brought: the decoded body, and the server's word on its rate limits."""

    raw: Mapping[str, Any]
    allowance: RateLimits = RateLimits()


@dataclass(frozen=True, slots=True)
class Marked:
    """A body as it is sent to a provider whose prompt cache wants markers. `prefix` names the part that later requests share,
    where it is long enough to be cached; empty otherwise."""

    wire: Wire
    prefix: str = ""


class Provider(Protocol):
    """What completes a request. One file in `providers/` each, with `connect(model, base_url) -> Provider`.

    One that can do more may say so in an attribute `gives`: "continue" (goes on with an answer that was begun for it),
    "logprobs" (has them for every model) and "near" (answers from this process: there is no rate limit to find out about).
    One whose prompt cache needs markers has a method `marked(wire, request, whole) -> Marked`, which adds them to the body of
    `request` just before it is sent; with `whole`, all of the prompt will be sent again.
    One that reads from a network has the attributes `max_reply_bytes`, which a run sets before it sends anything, and
    `secrets`, which no message may hold.
    """

    name: str
    model: str
    base_url: str | None

    def wire(self, request: Request) -> Wire:
        """The request in this provider's dialect: exactly the JSON that will be sent. Pure; raises UsageError."""
        ...

    async def complete(self, wire: Wire) -> RawReply:
        """Send it once (no retries) and decode the body. Raises ProviderError."""
        ...

    def read(self, raw: Mapping[str, Any]) -> Reply:
        """Read a decoded body, fresh or stored. Pure; raises ProviderError when it has not the shape of an answer."""
        ...

    async def close(self) -> None: ...


@contextmanager
def reading_answer() -> Iterator[None]:
    """Within it, whatever a server's answer makes the reading code raise is a ProviderError: the answer is malformed."""
    try:
        yield
    except CriticPrmError:
        raise
    except Exception as error:
        name = type(error).__name__
        raise ProviderError(f"the server's answer is malformed and cannot be read ({name})", "transient") from error


def request_key(wire: Mapping[str, Any], sample: int = 0, salt: str = "") -> str:
    """The SHA-256 (hex) under which a reply is kept: canonical JSON of the body, the sample's index and the salt.

    Not in it: provider, address, concurrency, retries, file names, row order, the template's name.
    """
    canonical = orjson.dumps([wire, sample, salt], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(canonical).hexdigest()


def asks_for_schema(wire: Mapping[str, Any]) -> bool:
    """Whether a body asks for structured outputs, in any provider's dialect."""
    output = wire.get("output_config")
    return any(name in wire for name in ("response_format", "structured_outputs", "schema")) or (
        isinstance(output, dict) and "format" in output
    )


def official_addresses(kind: str) -> tuple[str, ...]:
    """The addresses of a packaged provider's own servers: nobody else sees a key that is sent there."""
    return tuple(getattr(load("provider", kind), "OFFICIAL", ())) if kind in names("provider") else ()


def open_provider(name: str, base_url: str | None = None) -> Provider:
    """Open "openai/gpt-...", "anthropic/claude-...", "scripted/replies.jsonl" or "package.module:factory/model".

    The last form imports and calls what it names. It is for names from the command line and from Python: one that was read
    from a file goes through `trust.Origin` first. Raises UsageError for a name without a provider, ConfigError where a key is
    missing.
    """
    kind, slash, model = name.partition("/")
    if not slash or not kind or not model:
        raise UsageError(f"judge {name!r} names no provider; write provider/model, for example openai/{name or 'MODEL'}")
    if ":" in kind:
        module, _, factory = kind.partition(":")
        connect = getattr(import_module(module), factory)
    else:
        try:
            connect = load("provider", kind).connect
        except UsageError as error:
            raise UsageError(f"{error}; and {name!r} is no folder with a verifier") from None
    provider: Provider = connect(model, base_url)
    return provider
