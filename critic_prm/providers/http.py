"""Shared code of HTTP providers: decode replies, classify errors, and read Retry-After and rate-limit headers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from critic_prm.errors import ProviderError
from critic_prm.providers.failures import DAILY, Heard, verdict
from critic_prm.providers.post import Answered, Post
from critic_prm.providers.provider import RateLimits, RawReply, Wire, prompt_parts, reading_answer
from critic_prm.safe_text import safe_text, without_keys

LONGEST_WAIT = 3600.0
"""Maximum seconds that a run waits on a server's request. A 429 that asks for more ends the run. With any other status, a
longer Retry-After is ignored and the rate limiter's own cooldown applies."""

LONGEST_CLOSED = 31 * 86400.0
"""Seconds. A longer waiting time is implausible and is ignored."""

ECHO = 32
"""If this many consecutive characters of a server's message occur in the prompt, they count as quoted from it."""


async def answer(post: Post, wire: Wire, secrets: Sequence[str]) -> RawReply:
    """Send `wire` and decode the reply. Raises ProviderError if it is not a JSON reply.

    The error's text contains neither secrets nor the prompt.
    """
    try:
        answered = await post(orjson.dumps(wire))
    except ProviderError as error:  # it may quote what the server sent
        raise without_echoes(error, wire, secrets) from None
    return arrival(answered, wire, secrets)


def arrival(answered: Answered, wire: Wire, secrets: Sequence[str]) -> RawReply:
    """Decode the response to a POST. Raises ProviderError if it is not a JSON reply.

    The error's text contains neither secrets nor the prompt.
    """
    content_type = answered.headers.get("content-type", "")
    try:
        with reading_answer():
            if 200 <= answered.status < 300:
                content = without_echoed_keys(answered.content, secrets)
                return RawReply(decoded(content, content_type, answered.headers), allowance(answered.headers))
            raise failed(answered.status, answered.headers, _error_body(answered.content, content_type))
    except ProviderError as error:
        raise without_echoes(error, wire, secrets) from None


LONG_KEY = 16
"""Characters from which on a key is taken out of replies. A shorter one may be a word of the reply."""


def without_echoed_keys(content: bytes | bytearray, secrets: Sequence[str]) -> bytes | bytearray:
    """A reply without the keys that a server, such as a proxy that shows what it was sent, repeats in it: replies are kept."""
    for secret in secrets:
        if len(secret) >= LONG_KEY and (key := secret.encode()) in content:
            content = content.replace(key, b"[key]")
    return content


def failed(status: int, headers: Mapping[str, str], body: Any) -> ProviderError:
    """Convert an HTTP error response to a ProviderError with its failure class and advice."""
    if isinstance(body, list) and body:
        body = body[0]  # Gemini wraps its errors in a list
    error = body.get("error") or body if isinstance(body, dict) else {}
    details = error if isinstance(error, dict) else {"message": str(error)}
    if status == 200 and (code := _status_in(details.get("code"))) is not None:
        status = code  # a gateway that forwards another server's error
    said = [name for name in _codes(details) if name != str(status)]
    message = str(details.get("message") or details.get("detail") or "").strip() or (body if isinstance(body, str) else "")
    opens = _opens(headers, details, message) if status == 429 else None
    heard = Heard(
        status,
        [name.lower() for name in said],
        " ".join([message, *_texts(details.get("details"))]),
        _dict(details.get("metadata")),
        opens is not None and opens > LONGEST_WAIT,
    )
    rule = verdict(heard)
    text = f"HTTP {status}" + (f" {said[0]}" if said else "") + (f": {_short(message)}" if message else "")
    if 300 <= status < 400 and (place := headers.get("location")):
        text += f": the server points to {_short(place)}; name that place with --base-url"
    if rule.advice == DAILY and opens is not None:
        text += f"; it opens again at {datetime.now().astimezone() + timedelta(seconds=opens):%Y-%m-%d %H:%M %Z}"
    return ProviderError(
        text + (f"; {rule.advice}" if rule.advice else ""),
        rule.failure,
        status=status,
        retry_after=retry_after(headers),
        detail=f"HTTP {status} {' '.join(said)} {_short(message, 400)}".strip(),
    )


def without_echoes(error: ProviderError, wire: Wire, secrets: Sequence[str]) -> ProviderError:
    """Return the same error without keys and without prompt text that the server quoted."""

    def clean(text: str) -> str:
        text = safe_text(without_keys(text, secrets))
        prompt = " ".join(" ".join(_texts(prompt_parts(wire))).split())
        for start in range(0, max(len(text) - ECHO, 0) + 1, ECHO // 2):
            if len(piece := text[start : start + ECHO]) == ECHO and piece in prompt:
                return text[:start].rstrip() + " [the server quotes the prompt]"
        return text

    return ProviderError(
        clean(str(error)), error.failure, status=error.status, retry_after=error.retry_after, detail=clean(error.detail)
    )


def decoded(content: bytes | bytearray, content_type: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Decode the JSON object of a 200 response. A proxy's HTML, a truncated body and other content are transient errors.

    Raises ProviderError.
    """
    try:
        body = parsed(content, content_type)
    except orjson.JSONDecodeError as error:
        start = content[:64].lstrip().lower()
        what = "HTML" if start.startswith((b"<!doctype", b"<html")) else "no JSON"
        if start[:1] == b"{":
            what = "a cut or broken JSON body"
        raise ProviderError(
            f"the server answered 200 with {what} ({content_type or 'no content type'})", "transient", status=200
        ) from error
    if not isinstance(body, dict):
        raise ProviderError("the server answered 200 with JSON that is not an object", "transient", status=200)
    if body.get("error") and "choices" not in body and "content" not in body:
        raise failed(200, headers, body)
    return body


ENCODINGS = frozenset({"iso-8859-1", "latin1", "latin-1", "windows-1252", "cp1252"})
"""Encodings other than UTF that a content type may name. Other names are not passed to Python's codecs."""


def parsed(content: bytes | bytearray, content_type: str) -> Any:
    """Parse JSON in UTF-8 or, as some servers send it, with a byte order mark, in UTF-16 or UTF-32, or in Latin-1 if the
    content type says so. Raises orjson.JSONDecodeError."""
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        named = _CHARSET.search(content_type.lower())
        encoding = named.group(1) if named and named.group(1) in ENCODINGS else json.detect_encoding(content)
        try:
            return orjson.loads(content.decode(encoding))
        except UnicodeDecodeError:
            pass
        raise


_CHARSET = re.compile(r"charset=[\"']?([a-z0-9_-]+)")


def unshaped(what: str, raw: Mapping[str, Any]) -> ProviderError:
    """Return the error for a decoded body that does not have the structure of a reply."""
    shown = ", ".join(list(raw)[:6]) or "nothing"
    return ProviderError(f"the server's answer has {what} (fields: {shown})", "transient", status=200)


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


def _error_body(content: bytes | bytearray, content_type: str) -> Any:
    """Decode the body of an error response: JSON, the title of an HTML page, or else the text."""
    try:
        return parsed(content, content_type)
    except orjson.JSONDecodeError:
        text = content[:4096].decode("utf-8", "replace")
        title = _TITLE.search(text)
        return title.group(1) if title else "" if text.lstrip().startswith("<") else text


_TITLE = re.compile(r"<title>([^<]*)", re.IGNORECASE)


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
