"""Parse the lines of batch result files in OpenAI's format (also used by vLLM) and Anthropic's."""

from __future__ import annotations

from typing import Any

import orjson

from critic_prm.errors import ProviderError
from critic_prm.providers.batches import Result
from critic_prm.providers.http import failed
from critic_prm.providers.provider import reading_answer

UNRUN = {"batch_expired": "expired", "batch_cancelled": "cancelled", "expired": "expired", "canceled": "cancelled"}
"""The names that each API gives to a request that was never run."""

STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP statuses of Anthropic's error types; errors of single requests in a batch come without one."""


def result_in(line: bytes) -> Result | None:
    """Parse a line of a result file. None if it is not a result. Raises ProviderError if the line is cut off or damaged."""
    try:
        return read_result(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise ProviderError(f"the results break off or are damaged: {error}", "transient") from error


def read_result(row: Any) -> Result | None:
    """Parse a decoded line of a result file. None if it is not a result."""
    if not isinstance(row, dict) or not isinstance(custom := row.get("custom_id"), str):
        return None
    try:
        with reading_answer():
            if isinstance(result := row.get("result"), dict):
                return _anthropic(custom, result)
            if "response" in row or "error" in row:
                return _openai(custom, row.get("response"), row.get("error"))
    except ProviderError as error:
        return Result(custom, error=error)
    return None


def _anthropic(custom: str, result: dict[str, Any]) -> Result:
    kind = result.get("type")
    if kind == "succeeded" and isinstance(message := result.get("message"), dict):
        return Result(custom, message)
    if kind in UNRUN:
        return Result(custom, unrun=UNRUN[kind])
    body = result.get("error") or {}
    inner = body.get("error") if isinstance(body, dict) else None
    details = inner if isinstance(inner, dict) else body if isinstance(body, dict) else {}
    return Result(custom, error=failed(STATUS.get(str(details.get("type")), 500), {}, {"error": details}))


def _openai(custom: str, response: Any, error: Any) -> Result:
    """Parse an OpenAI result. `error` is null, an object, a nested object (vLLM) or a string; then `response` may be null."""
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if isinstance(error, dict) and error.get("code") in UNRUN:
        return Result(custom, unrun=UNRUN[error["code"]])
    response = response if isinstance(response, dict) else {}
    status, body = response.get("status_code"), response.get("body")
    if status == 200 and isinstance(body, dict) and not error and not (body.get("error") and "choices" not in body):
        return Result(custom, body)
    if isinstance(body, dict) and body.get("error"):
        error = body["error"]
    if not error:
        return Result(custom, error=ProviderError(f"the result has no body (status {status})", "transient", detail="no body"))
    code = error.get("code") if isinstance(error, dict) else None
    status = status if isinstance(status, int) and status != 200 else code if isinstance(code, int) else 500
    return Result(custom, error=failed(status, {}, {"error": error}))
