"""Convert HTTP errors of model servers to ProviderErrors with a failure class and advice; read Retry-After and rate limits."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from critic_prm.errors import Failure, ProviderError
from critic_prm.providers.addresses import without_keys
from critic_prm.providers.provider import RateLimits, Wire, prompt_parts
from critic_prm.terminal import safe_text

CREDIT = "the account has no credit; add some and run the same command again: everything paid for is kept"
KEY = "the key was refused; set {key} to a valid one"
ACCESS = "this key may not use this model or region"
NAME = "the server has no such model or path; check the name and --base-url"
DAILY = "this limit lasts for hours; run the same command again when it is over: everything paid for is kept"
LOAD = "load the model in the server first"
MODERATED = "the provider's moderation refused this row"
HTTPS = "the server expects https; write https:// in --base-url"


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table. It matches an error if all fields that are set match; fields left out match anything."""

    failure: Failure
    advice: str = ""
    statuses: Container[int] = range(1000)
    names: frozenset[str] = frozenset()
    words: str = ""
    keys: tuple[str, ...] = ()
    closed: bool = False

    def holds(self, status: int, names: Sequence[str], text: str, keys: Container[str], closed: bool) -> bool:
        """Whether the rule matches an error: its codes and types in lower case, its text, and the names in its metadata.
        `closed` says whether the limit that was hit resets in more than an hour."""
        return (
            status in self.statuses
            and (not self.names or any(name in self.names for name in names))
            and (not self.words or re.search(self.words, text, re.IGNORECASE) is not None)
            and (not self.keys or any(key in keys for key in self.keys))
            and (closed or not self.closed)
        )


def names(text: str) -> frozenset[str]:
    """Split a list of names at whitespace."""
    return frozenset(text.split())


MONEY = names("""
    insufficient_quota credit_balance_exhausted billing_error
    organization_spend_limit_exceeded project_spend_limit_exceeded organization_usage_limit_exceeded
    contract_spend_limit_reached enforced_spend_limit_reached
    exceeded_current_quota_error arrearage 1113
""")
"""OpenAI's and Anthropic's names, then those of Moonshot, DashScope and Zhipu."""

RULES: tuple[Rule, ...] = (
    # Billing. A spend limit is a 429 at OpenAI, a 400 at Anthropic and a 403 at OpenRouter.
    Rule("quota", CREDIT, names=MONEY),
    Rule("quota", CREDIT, (400,), words="credit balance is too low to access|reached your specified api usage limits"),
    Rule("quota", CREDIT, (402, 403, 429), words="spend(ing)? limit|key limit exceeded|credit balance is too low|credits yet"),
    Rule("quota", CREDIT, (412,), words="suspended"),
    # Limits that last too long for a run to wait.
    Rule("quota", DAILY, (429,), words=r"per[\s_-]?day|\b[rt]pd\b|\bdaily\b"),
    Rule("quota", DAILY, (429,), closed=True),
    # Errors that affect every request. Gemini and xAI reject a key with a 400.
    Rule("run", KEY, (400, 401, 403), names=names("invalid_api_key api_key_invalid")),
    Rule("run", KEY, (400,), words="api key not valid|incorrect api key provided"),
    Rule("run", HTTPS, (400,), words="plain http request was sent to https port|sent an http request to an https server"),
    Rule("run", NAME, names=names("model_not_found deploymentnotfound invalid_model model_decommissioned")),
    Rule("run", LOAD, (400, 404), words="no models? loaded|failed to load model"),
    Rule("run", ACCESS, (400,), names=names("organization_restricted")),
    Rule("run", names=names("unknown_parameter unsupported_parameter unsupported_value unsupportedparamserror")),
    # Errors of one row. OpenRouter's 403 for moderation names the flagged input.
    Rule("row", MODERATED, (403,), keys=("reasons", "flagged_input")),
    Rule("row", MODERATED, names=names("content_filter content_policy_violation data_inspection_failed")),
    Rule("row", names=names("context_length_exceeded exceed_context_size_error")),
    Rule("row", statuses=(403,), words="model context length|max_new_tokens"),  # Together
    # Fallbacks by status alone.
    Rule("run", statuses=range(300, 400)),
    Rule("run", KEY, (401,)),
    Rule("quota", CREDIT, (402,)),
    Rule("run", ACCESS, (403,)),
    Rule("run", NAME, (404,)),
    Rule("transient", statuses=(408, 409)),
    Rule("throttle", statuses=(429, 498, 529)),  # 498: Groq's flex tier is full
    Rule("row", statuses=range(400, 500)),
    Rule("transient"),  # 5xx, and an error in a body that came with 200
)
"""The first rule that matches decides."""

LONGEST_WAIT = 3600.0
"""Maximum seconds that a run waits on a server's request. A 429 that asks for more ends the run. With any other status, a
longer Retry-After is ignored and the rate limiter's own cooldown applies."""

LONGEST_CLOSED = 31 * 86400.0
"""Seconds. A longer waiting time is implausible and is ignored."""

ECHO = 32
"""If this many consecutive characters of a server's message occur in the prompt, they count as quoted from it."""


def failed(status: int, headers: Mapping[str, str], body: Any, key: str = "") -> ProviderError:
    """Convert an HTTP error response to a ProviderError with its failure class and advice. `key` is the environment variable of
    the API key."""
    if isinstance(body, list) and body:
        body = body[0]  # Gemini wraps its errors in a list
    error = body.get("error") or body if isinstance(body, dict) else {}
    details = error if isinstance(error, dict) else {"message": str(error)}
    if status == 200 and (code := _status_in(details.get("code"))) is not None:
        status = code  # a gateway that forwards another server's error
    said = [name for name in _codes(details) if name != str(status)]
    message = _message(details.get("message") or details.get("detail")) or (body if isinstance(body, str) else "")
    opens = _opens(headers, details, message) if status == 429 else None
    codes = [name.lower() for name in said]
    words = " ".join([message, *_texts(details.get("details"))])
    closed = opens is not None and opens > LONGEST_WAIT
    rule = next(rule for rule in RULES if rule.holds(status, codes, words, _dict(details.get("metadata")), closed))
    text = f"HTTP {status}" + (f" {said[0]}" if said else "") + (f": {_short(message)}" if message else "")
    if 300 <= status < 400 and (place := headers.get("location")):
        text += f": the server points to {_short(place)}; name that place with --base-url"
    if rule.advice == DAILY and opens is not None:
        text += f"; it opens again at {datetime.now().astimezone() + timedelta(seconds=opens):%Y-%m-%d %H:%M %Z}"
    return ProviderError(
        text + (f"; {rule.advice}" if rule.advice else "").replace("{key}", key or "its environment variable"),
        rule.failure,
        status=status,
        retry_after=retry_after(headers),
        detail=f"HTTP {status} {' '.join(said)} {_short(message, 400)}".strip(),
    )


def _message(stated: Any) -> str:
    """The text of an error's message, which may be a list of objects with `msg`, or an object with such a list as `detail`."""
    if isinstance(stated, dict) and "detail" in stated:
        stated = stated["detail"]
    if isinstance(stated, list) and stated and all(isinstance(one, dict) and "msg" in one for one in stated):
        places = [".".join(map(str, one["loc"])) if isinstance(one.get("loc"), list) else "" for one in stated]
        return "; ".join(f"{place}: {one['msg']}".removeprefix(": ") for place, one in zip(places, stated, strict=True))
    return str(stated or "").strip()


def without_echoes(error: ProviderError, wire: Wire, secrets: Sequence[str]) -> ProviderError:
    """Return the same error without keys and without prompt text that the server quoted."""

    def clean(text: str) -> str:
        text = safe_text(without_keys(text, secrets))
        prompt = " ".join(" ".join(_texts(prompt_parts(wire))).split())
        for start in range(0, max(len(text) - ECHO, 0) + 1, ECHO // 2):
            if len(piece := text[start : start + ECHO]) == ECHO and piece in prompt:
                return text[:start].rstrip() + " [the server quotes the prompt]"
        return text

    facts = {"status": error.status, "retry_after": error.retry_after, "detail": clean(error.detail), "cause": error.cause}
    return ProviderError(clean(str(error)), error.failure, **facts)  # type: ignore[arg-type]  # each has its own type


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait from retry-after-ms, or from retry-after in seconds or as a date.

    None if absent, in the past or longer than LONGEST_WAIT.
    """
    return _sane(_asked_to_wait(headers))


def _asked_to_wait(headers: Mapping[str, str]) -> float | None:
    if (milliseconds := _number(headers.get("retry-after-ms", ""))) is not None:
        return milliseconds / 1e3
    value = headers.get("retry-after", "")
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return (when - datetime.now(UTC)).total_seconds()


def _opens(headers: Mapping[str, str], details: Mapping[str, Any], message: str) -> float | None:
    """Return the seconds until a limit resets, or None if unknown.

    Retry-After comes first. Otherwise it is the longest of the reset headers of exhausted limits, the headers that OpenRouter
    quotes in the body, Gemini's retryDelay, and text such as "try again in 7m12s".
    """
    told = _sane(_asked_to_wait(headers), LONGEST_CLOSED)
    if told is None:
        used_up = [
            headers.get(prefix + reset)
            for prefix, pairs in LIMITS.items()
            for left, reset in pairs
            if headers.get(prefix + left) in (None, "0")
        ]
        quoted = _dict(_dict(details.get("metadata")).get("headers"))
        used_up += [str(value) for name, value in quoted.items() if name.lower() == "x-ratelimit-reset"]
        delays = details.get("details")
        used_up += [_dict(one).get("retryDelay") for one in delays] if isinstance(delays, list) else []
        used_up += [found[1] for found in [_AGAIN.search(message)] if found]
        told = max(
            (seconds for value in used_up if (seconds := _sane(_reset(value), LONGEST_CLOSED)) is not None), default=None
        )
    return told


_AGAIN = re.compile(r"(?:try again|retry) in ((?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+)")


LIMITS = {
    "x-ratelimit-": (("remaining-requests", "reset-requests"), ("remaining-tokens", "reset-tokens")),
    "anthropic-ratelimit-": (("requests-remaining", "requests-reset"), ("tokens-remaining", "tokens-reset")),
}
"""Headers for remaining requests and tokens and for their reset times: OpenAI's names, then Anthropic's."""


def allowance(headers: Mapping[str, str]) -> RateLimits:
    """Read OpenAI's or Anthropic's rate-limit headers; an empty RateLimits if there are none."""
    if "x-ratelimit-limit-requests" in headers or "x-ratelimit-remaining-requests" in headers:
        prefix = "x-ratelimit-"
    elif "anthropic-ratelimit-requests-limit" in headers or "anthropic-ratelimit-requests-remaining" in headers:
        prefix = "anthropic-ratelimit-"
    else:
        return RateLimits()
    requests, requests_reset, tokens, tokens_reset = (headers.get(prefix + name) for pair in LIMITS[prefix] for name in pair)
    return RateLimits(_count(requests), reset_seconds(requests_reset), _count(tokens), reset_seconds(tokens_reset))


LONGEST_TIME = 64
"""Characters of a time in a header. The pattern below takes time that grows with the square of them: seconds for 8 KB."""

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def reset_seconds(value: str | None) -> float | None:
    """Parse "6m0s", "17ms", "12" or an RFC 3339 time to seconds; None if longer than LONGEST_WAIT."""
    return _sane(_reset(value))


def _reset(value: Any) -> float | None:
    """Seconds from a duration, a number of seconds, a Unix time in seconds or milliseconds, or an RFC 3339 time."""
    if not value or not isinstance(value, str) or len(value) > LONGEST_TIME:
        return None
    parts = _PART.findall(value)
    if parts and "".join(number + unit for number, unit in parts) == value:
        return sum(float(number) * _UNIT[unit] for number, unit in parts)
    seconds = _number(value)
    if seconds is not None:
        now = datetime.now(UTC).timestamp()
        return seconds if seconds < 1e9 else max((seconds if seconds < 1e11 else seconds / 1e3) - now, 0.0)
    try:
        when = datetime.fromisoformat(value)
    except ValueError:
        return None
    return max((when - datetime.now(UTC)).total_seconds(), 0.0) if when.tzinfo else None


def _sane(seconds: float | None, longest: float = LONGEST_WAIT) -> float | None:
    return seconds if seconds is not None and 0 <= seconds <= longest else None


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _count(value: str | None) -> int | None:
    """Parse a header's count; None if it is not one. Azure sends -1 for "not counted"."""
    return int(value) if value is not None and len(value) <= 16 and value.isascii() and value.isdecimal() else None


def _texts(value: Any) -> Iterator[str]:
    """Yield all strings in a nested value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _codes(details: Mapping[str, Any]) -> list[str]:
    """Return the names of an error, most specific first: OpenAI's code, Anthropic's error_code, Google's reason, the type."""
    inner = details.get("details")
    parts = [_dict(part) for part in (inner if isinstance(inner, list) else [inner])]
    named = [part.get(name) for name in ("error_code", "reason") for part in parts]
    names = [details.get("code"), *named, details.get("type"), details.get("status")]
    return [_short(name, 80) for name in names if isinstance(name, str) and name]


def _status_in(code: Any) -> int | None:
    """Return the HTTP status in a body's error code, which may be a number or a string; None if there is none."""
    status = int(code) if isinstance(code, str) and code.isascii() and code.isdigit() and len(code) == 3 else code
    return status if isinstance(status, int) and 400 <= status < 600 else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _short(text: str, limit: int = 240) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
