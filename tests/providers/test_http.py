"""A failed answer -> its class; headers -> how long to wait; and nothing of a key or a prompt in what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import orjson
import pytest

from critic_prm.errors import ProviderError
from critic_prm.providers.failures import allowance, reset_seconds, retry_after
from critic_prm.providers.http import Answered, arrival
from critic_prm.providers.provider import Wire

PROMPT = "Mara buys 7 croissants and 2 loaves and pays with a $50 note; step 3 of the solution says 2 * $4.75 = $9.50."
WIRE: Wire = {"model": "m", "messages": [{"role": "user", "content": PROMPT}]}
KEY = "sk-proj-not-a-real-key-1234567890"


def failure(status: int, body: Any, headers: Mapping[str, str] | None = None) -> ProviderError:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    with pytest.raises(ProviderError) as caught:
        arrival(Answered(status, headers or {}, content), WIRE, (KEY,))
    return caught.value


def error(code: str, message: str = "no", **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, **more}}


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, error("invalid_api_key"), "run"),
        (402, {}, "quota"),
        (403, {}, "run"),
        (404, error("model_not_found"), "run"),
        (405, {}, "row"),
        (408, {}, "transient"),
        (409, {}, "transient"),
        (413, {}, "row"),
        (429, error("rate_limit_exceeded"), "throttle"),
        (429, error("insufficient_quota"), "quota"),
        (429, {"error": {"type": "insufficient_quota", "message": "x"}}, "quota"),
        (429, {"error": {"type": "rate_limit_error", "details": {"error_code": "enforced_spend_limit_reached"}}}, "quota"),
        (429, error("", "You have reached your specified spend limit"), "quota"),
        (400, error("context_length_exceeded"), "row"),
        (400, error("unsupported_parameter", "temperature"), "run"),
        (400, error("content_policy_violation"), "row"),
        (400, {"detail": "bad"}, "row"),
        (500, {}, "transient"),
        (503, b"<html><title>503 Service Unavailable</title>", "transient"),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "throttle"),
        (301, b"", "run"),
        (200, {"error": {"code": 429, "message": "upstream is busy"}}, "throttle"),
        (200, {"error": {"message": "upstream broke"}}, "transient"),
    ],
)
def test_every_failure_has_its_class(status: int, body: Any, expected: str) -> None:
    assert failure(status, body).failure == expected


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", "HTML"),
        (b'{"choices": [{"mess', "cut or broken"),
        (b'data: {"choices": []}\n\n', "no JSON"),
        (b"", "no JSON"),
        (b"[1]", "not an object"),
    ],
)
def test_a_200_without_an_answer_is_tried_again(content: bytes, says: str) -> None:
    found = failure(200, content, {"content-type": "text/html"})
    assert found.failure == "transient"
    assert says in str(found)


def test_an_empty_error_field_beside_an_answer_is_an_answer() -> None:
    assert arrival(Answered(200, {}, b'{"error": null, "choices": []}'), WIRE, ()).raw == {"error": None, "choices": []}


def test_messages_say_what_to_do() -> None:
    assert "valid one" in str(failure(401, error("invalid_api_key", "bad key")))
    assert "--base-url" in str(failure(301, b"", {"location": "https://other.example/v1"}))
    assert "add some" in str(failure(429, error("insufficient_quota", "You exceeded your current quota")))
    assert "503 Service Unavailable" in str(failure(503, b"<html><title>503 Service Unavailable</title><body>..."))


def test_a_key_that_the_server_quotes_is_cut_out() -> None:
    found = failure(401, error("invalid_api_key", f"Incorrect API key provided: {KEY}. Find it at ..."))
    assert KEY not in str(found) + found.detail
    assert "[key]" in str(found)


def test_a_prompt_that_the_server_quotes_is_cut_out() -> None:
    found = failure(422, {"detail": f"value is not valid: messages[0].content: {PROMPT}"})
    for said in (str(found), found.detail):
        assert "croissants" not in said
        assert "value is not valid" in said


def date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "0.25"}, 0.25, 0.25),
        ({"retry-after-ms": "1500"}, 1.5, 1.5),
        ({"retry-after-ms": "20", "retry-after": "1"}, 0.02, 0.02),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0, 1.0),
    ],
)
def test_how_long_to_wait_is_understood(headers: dict[str, str], least: float, most: float) -> None:
    seconds = retry_after(headers)
    assert seconds is not None
    assert least <= seconds <= most


def test_a_date_to_wait_for_is_understood() -> None:
    seconds = retry_after({"retry-after": date(30)})
    assert seconds is not None
    assert 20 < seconds <= 30


NONSENSE = ["987654321", "-3", "soon", "", "nan", "inf", date(-60), date(10**7)]


@pytest.mark.parametrize("value", NONSENSE, ids=range(len(NONSENSE)))  # dates in ids would differ between workers
def test_a_wait_that_makes_no_sense_counts_as_not_said(value: str) -> None:
    assert retry_after({"retry-after": value}) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("6m0s", 360), ("17ms", 0.017), ("59m3.5s", 3543.5), ("3h", None), ("12", 12), ("", None), ("x", None), (None, None)],
)
def test_resets_of_rate_limits(value: str | None, seconds: float | None) -> None:
    assert reset_seconds(value) == (seconds if seconds is None else pytest.approx(seconds))


def test_resets_as_a_time() -> None:
    seconds = reset_seconds((datetime.now(UTC) + timedelta(seconds=20)).isoformat())
    assert seconds is not None
    assert 10 < seconds <= 20


def test_what_is_left_is_read_from_either_providers_headers() -> None:
    openai = allowance(
        {"x-ratelimit-limit-requests": "9", "x-ratelimit-remaining-requests": "3", "x-ratelimit-reset-tokens": "2s"}
    )
    assert (openai.requests, openai.tokens, openai.tokens_reset) == (3, None, 2.0)
    anthropic = allowance({"anthropic-ratelimit-requests-limit": "9", "anthropic-ratelimit-tokens-remaining": "0"})
    assert (anthropic.requests, anthropic.tokens) == (None, 0)
    azure = allowance({"x-ratelimit-limit-requests": "-1", "x-ratelimit-remaining-requests": "-1"})
    assert azure.requests is None
    assert allowance({"content-type": "application/json"}).requests is None


@pytest.mark.parametrize(
    ("encoding", "content_type"),
    [
        ("utf-8-sig", "application/json"),
        ("utf-16", "application/json"),
        ("utf-32-le", "application/json"),
        ("latin-1", "application/json; charset=ISO-8859-1"),
        ("cp1252", 'text/json; charset="windows-1252"'),
    ],
)
def test_json_in_another_encoding_is_read(encoding: str, content_type: str) -> None:
    """A byte order mark, or Latin-1 that the content type names, made an answer "a broken JSON body"."""
    body = {"choices": [{"message": {"content": "café"}}]}
    content = orjson.dumps(body).decode().encode(encoding)
    assert arrival(Answered(200, {"content-type": content_type}, content), WIRE, ()).raw == body


@pytest.mark.parametrize("charset", ["latin-1", "punycode", "idna", "zip", "no-such", "utf-7", ""])
def test_an_encoding_that_does_not_help_leaves_a_broken_body(charset: str) -> None:
    assert failure(200, b'{"text": "\xe9', {"content-type": f"application/json; charset={charset}"}).failure == "transient"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-ratelimit-remaining-requests": "\u00b2"},
        {"x-ratelimit-remaining-requests": "9" * 8000},
        {"x-ratelimit-limit-requests": "1", "x-ratelimit-reset-requests": "9" * 5000 + "h"},
        {"x-ratelimit-limit-requests": "1", "x-ratelimit-reset-tokens": "9999-12-31T23:59:59+23:59"},
    ],
)
def test_headers_that_make_no_sense_say_nothing(headers: dict[str, str]) -> None:
    """A superscript two is a digit to `isdigit` and no number to `int`."""
    found = arrival(Answered(200, headers, b'{"choices": []}'), WIRE, ()).allowance
    assert (found.requests, found.requests_reset, found.tokens, found.tokens_reset) == (None, None, None, None)


@pytest.mark.parametrize("value", ["Wed, 01 Jan 2020 00:00:00 +" + "9" * 18, "Wed, 01 Jan " + "9" * 4000 + " 00:00:00 GMT"])
def test_dates_that_cannot_be_are_no_reason_to_stop(value: str) -> None:
    assert failure(429, {}, {"retry-after": value}).failure == "throttle"


def test_a_time_of_thousands_of_digits_is_not_read() -> None:
    """A header of 8,000 digits held up the event loop, and with it every request, for seconds."""
    assert reset_seconds("0" * 62 + "1s") == 1
    assert reset_seconds("0" * 63 + "1s") is None
    assert reset_seconds("0" * 8000 + "1s") is None


KEY = "sk-canary-0123456789"


@pytest.mark.parametrize(("key", "kept"), [(KEY, "Bearer [key]"), ("correct", "Bearer correct")])
def test_a_key_that_a_reply_repeats_is_not_kept(key: str, kept: str) -> None:
    """A proxy that shows the headers it was sent had the key stored in the cache, which is made to be shared."""
    content = orjson.dumps({"choices": [], "debug": {"authorization": f"Bearer {key}"}})
    found = arrival(Answered(200, {"content-type": "application/json"}, content), {}, (key,))
    assert found.raw["debug"] == {"authorization": kept}
