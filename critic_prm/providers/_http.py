"""What HTTP providers share: a failed answer -> the class of failure; headers -> how long to wait and what is left."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from critic_prm.errors import Failure, ProviderError
from critic_prm.provider import Allowance, Arrival, Wire, reading_answer
from critic_prm.providers._post import Answered

LONGEST_WAIT = 3600.0
"""Seconds. A Retry-After beyond this, or one that makes no sense, counts as not said: the gate's own cooldown holds then."""

BY_STATUS: dict[int, Failure] = {
    401: "run",
    402: "quota",
    403: "run",
    404: "run",
    408: "transient",
    409: "transient",
    429: "throttle",
    529: "throttle",
}
"""Other 4xx concern the row alone; 5xx are transient; a redirection means a wrong address."""

ECHO = 32
"""Characters in a row of a server's message that are also in the prompt are taken to be quoted from it."""

BY_CODE: dict[str, Failure] = {
    "insufficient_quota": "quota",
    "credit_balance_exhausted": "quota",
    "organization_spend_limit_exceeded": "quota",
    "project_spend_limit_exceeded": "quota",
    "organization_usage_limit_exceeded": "quota",
    "contract_spend_limit_reached": "quota",
    "enforced_spend_limit_reached": "quota",
    "billing_error": "quota",
    "unknown_parameter": "run",
    "unsupported_parameter": "run",
    "unsupported_value": "run",
    "model_not_found": "run",
    "context_length_exceeded": "row",
    "content_filter": "row",
    "content_policy_violation": "row",
}
"""Error codes and types that say more than the status does. A spend limit is no rate limit, although it comes as a 429."""

MENDS: dict[int, str] = {
    401: "the key was refused; set the provider's environment variable to a valid one",
    402: "the account has no credit; add some and run the same command again: everything paid for is kept",
    403: "this key may not use this model or region",
    404: "the server knows no such model or path; check the name and --base-url",
}


def arrival(answered: Answered, wire: Wire, secrets: Sequence[str]) -> Arrival:
    """What a POST brought. Raises ProviderError for all that is no JSON answer; it holds neither secrets nor the prompt."""
    content_type = answered.headers.get("content-type", "")
    try:
        with reading_answer():
            if 200 <= answered.status < 300:
                return Arrival(decoded(answered.content, content_type), allowance(answered.headers))
            raise failed(answered.status, answered.headers, _error_body(answered.content, content_type))
    except ProviderError as error:
        raise without_echoes(error, wire, secrets) from None


def failed(status: int, headers: Mapping[str, str], body: Any) -> ProviderError:
    """An HTTP answer that is no reply, as the ProviderError that says what to do about it."""
    error = body.get("error") or body if isinstance(body, dict) else {}
    details = error if isinstance(error, dict) else {"message": str(error)}
    if status == 200 and isinstance(code := details.get("code"), int) and 400 <= code < 600:
        status = code  # a gateway that passes on another server's failure
    said = _codes(details)
    message = str(details.get("message") or details.get("detail") or "").strip() or (body if isinstance(body, str) else "")
    failure = next((BY_CODE[code] for code in said if code in BY_CODE), None) or _by_words(status, message)
    text = f"HTTP {status}" + (f" {said[0]}" if said else "") + (f": {_short(message)}" if message else "")
    if 300 <= status < 400 and (place := headers.get("location")):
        text += f": the server points to {place}; name that place with --base-url"
    mend = MENDS.get(402 if failure == "quota" else status)
    return ProviderError(
        text + (f"; {mend}" if mend else ""),
        failure,
        status=status,
        retry_after=retry_after(headers),
        detail=f"HTTP {status} {' '.join(said)} {_short(message, 400)}".strip(),
    )


def _by_words(status: int, message: str) -> Failure:
    """The class of a failure whose code says nothing."""
    if status in BY_STATUS and "spend limit" not in message.lower():
        return BY_STATUS[status]
    if status in BY_STATUS:
        return "quota"
    if 300 <= status < 400:
        return "run"
    return "transient" if status >= 500 or status == 200 else "row"


def without_echoes(error: ProviderError, wire: Wire, secrets: Sequence[str]) -> ProviderError:
    """The same error with keys, and prompt text that the server quoted back, cut out of what it says."""

    def clean(text: str) -> str:
        for secret in secrets:
            if len(secret) >= 6:
                text = text.replace(secret, "[key]")
        prompt = " ".join(" ".join(_texts([wire.get("messages"), wire.get("system")])).split())
        for start in range(0, max(len(text) - ECHO, 0) + 1, ECHO // 2):
            if len(piece := text[start : start + ECHO]) == ECHO and piece in prompt:
                return text[:start].rstrip() + " [the server quotes the prompt]"
        return text

    return ProviderError(
        clean(str(error)), error.failure, status=error.status, retry_after=error.retry_after, detail=clean(error.detail)
    )


def decoded(content: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a 200 answer. A proxy's HTML, a cut body or anything else is a transient ProviderError."""
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
        raise ProviderError("the server answered 200 with JSON that is no object", "transient", status=200)
    if body.get("error") and "choices" not in body and "content" not in body:
        raise failed(200, {}, body)
    return body


ENCODINGS = frozenset({"iso-8859-1", "latin1", "latin-1", "windows-1252", "cp1252"})
"""What else than UTF a content type may name; a name of the server's choice is not handed to Python's codecs."""


def parsed(content: bytes, content_type: str) -> Any:
    """JSON in UTF-8 or, as some servers send it, with a byte order mark, in UTF-16 or -32, or in the Latin-1 that the content
    type names. Raises orjson.JSONDecodeError."""
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
    """A decoded body that has not the shape of an answer."""
    shown = ", ".join(list(raw)[:6]) or "nothing"
    return ProviderError(f"the server's answer has {what} (fields: {shown})", "transient", status=200)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, from retry-after-ms, or retry-after as seconds or a date. None when absent, absurd or in the past."""
    milliseconds = headers.get("retry-after-ms")
    if milliseconds is not None:
        return _sane(_number(milliseconds), 1e-3)
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _number(value)
    if seconds is None:
        try:
            when = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        seconds = (when - datetime.now(UTC)).total_seconds()
    return _sane(seconds, 1.0)


def allowance(headers: Mapping[str, str]) -> Allowance:
    """What OpenAI's and Anthropic's rate-limit headers say is left. Servers without them cost one lookup."""
    if "x-ratelimit-limit-requests" in headers or "x-ratelimit-remaining-requests" in headers:
        prefix, suffixes = "x-ratelimit-", ("remaining-requests", "reset-requests", "remaining-tokens", "reset-tokens")
    elif "anthropic-ratelimit-requests-limit" in headers or "anthropic-ratelimit-requests-remaining" in headers:
        prefix, suffixes = "anthropic-ratelimit-", ("requests-remaining", "requests-reset", "tokens-remaining", "tokens-reset")
    else:
        return Allowance()
    requests, requests_reset, tokens, tokens_reset = (headers.get(prefix + suffix) for suffix in suffixes)
    return Allowance(_count(requests), reset_seconds(requests_reset), _count(tokens), reset_seconds(tokens_reset))


_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def reset_seconds(value: str | None) -> float | None:
    """Seconds from "6m0s", "17ms", "12" or an RFC 3339 time."""
    if not value:
        return None
    parts = _PART.findall(value)
    if parts and "".join(number + unit for number, unit in parts) == value:
        return _sane(sum(float(number) * _UNIT[unit] for number, unit in parts), 1.0)
    seconds = _number(value)
    if seconds is None:
        try:
            when = datetime.fromisoformat(value)
        except ValueError:
            return None
        seconds = max((when - datetime.now(UTC)).total_seconds(), 0.0) if when.tzinfo else None
    return _sane(seconds, 1.0)


def _sane(value: float | None, unit: float) -> float | None:
    return value * unit if value is not None and 0 <= value * unit <= LONGEST_WAIT else None


def _number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _count(value: str | None) -> int | None:
    """Azure sends -1 for "not counted"."""
    return int(value) if value is not None and len(value) <= 16 and value.isascii() and value.isdecimal() else None


def _error_body(content: bytes, content_type: str) -> Any:
    """The body of a failed answer: decoded JSON, or text, of an HTML page its title."""
    try:
        return parsed(content, content_type)
    except orjson.JSONDecodeError:
        text = content[:4096].decode("utf-8", "replace")
        title = _TITLE.search(text)
        return title.group(1) if title else "" if text.lstrip().startswith("<") else text


_TITLE = re.compile(r"<title>([^<]*)", re.IGNORECASE)


def _texts(value: Any) -> Iterator[str]:
    """All texts in a nested value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _codes(details: Mapping[str, Any]) -> list[str]:
    """The error's own names, most telling first."""
    inner = details.get("details")
    names = [details.get("code"), inner.get("error_code") if isinstance(inner, dict) else None, details.get("type")]
    return [name for name in names if isinstance(name, str) and name]


def _short(text: str, limit: int = 240) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
