"""What HTTP providers share: a failed answer -> the class of failure; headers -> how long to wait and what is left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import orjson

from critic_prm.errors import Failure, ProviderError
from critic_prm.provider import Allowance

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
}
"""Other 4xx concern the row alone; 5xx are transient; 529 is a throttle."""

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


def failed(status: int, headers: Mapping[str, str], body: Any) -> ProviderError:
    """An HTTP answer that is no reply, as the ProviderError that says what to do about it."""
    error = body.get("error", body) if isinstance(body, dict) else {}
    details = error if isinstance(error, dict) else {"message": str(error)}
    said = _codes(details)
    failure = next((BY_CODE[code] for code in said if code in BY_CODE), None)
    if failure is None and "spend limit" in str(details.get("message", "")).lower():
        failure = "quota"
    if failure is None:
        failure = BY_STATUS.get(status) or ("throttle" if status == 529 else "transient" if status >= 500 else "row")
    message = str(details.get("message") or "").strip() or (body if isinstance(body, str) else "")
    text = f"HTTP {status}" + (f" {said[0]}" if said else "") + (f": {_short(message)}" if message else "")
    mend = MENDS.get(402 if failure == "quota" else status)
    return ProviderError(
        text + (f"; {mend}" if mend else ""), failure, status=status, retry_after=retry_after(headers), detail=_short(text, 500)
    )


def decoded(content: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a 200 answer. A proxy's HTML, a cut body or anything else is a transient ProviderError."""
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        start = content[:64].lstrip().lower()
        what = (
            "HTML"
            if start.startswith((b"<!doctype", b"<html"))
            else "a cut or broken JSON body"
            if start[:1] == b"{"
            else "no JSON"
        )
        raise ProviderError(
            f"the server answered 200 with {what} ({content_type or 'no content type'})", "transient", status=200
        ) from error
    if not isinstance(body, dict):
        raise ProviderError("the server answered 200 with JSON that is no object", "transient", status=200)
    if "error" in body and "choices" not in body and "content" not in body:
        raise failed(200, {}, body)
    return body


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
        except ValueError:
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
    return int(value) if value is not None and value.isdigit() else None


def _codes(details: Mapping[str, Any]) -> list[str]:
    """The error's own names, most telling first."""
    inner = details.get("details")
    names = [details.get("code"), inner.get("error_code") if isinstance(inner, dict) else None, details.get("type")]
    return [name for name in names if isinstance(name, str) and name]


def _short(text: str, limit: int = 240) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
