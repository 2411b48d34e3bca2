"""Error bodies as providers document them -> failure class, advice, and what `label` makes of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.runs import command, write_input
from bench.server import Behaviour, Judge, serving
from critic_prm.cli import main
from critic_prm.engine.retries import REFUSED, HealthMonitor
from critic_prm.errors import ProviderError
from critic_prm.providers.anthropic import AnthropicBatches, AnthropicProvider
from critic_prm.providers.batches import BatchAPI, read_result
from critic_prm.providers.failures import RULES
from critic_prm.providers.http import Answered, arrival, no_answer
from critic_prm.providers.openai import OpenAIBatches, OpenAIProvider


def anthropic(kind: str, message: str, **more: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message, **more}, "request_id": "req_1"}


def gemini(code: int, message: str, status: str, *details: Any) -> list[Any]:
    return [{"error": {"code": code, "message": message, "status": status, "details": list(details)}}]


CREDIT = anthropic(
    "invalid_request_error",
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
)
SPENT = anthropic(
    "invalid_request_error",
    "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC.",
)
MODERATED = {
    "error": {
        "code": 403,
        "message": "Your chosen model requires moderation and your input was flagged",
        "metadata": {"reasons": ["violence"], "flagged_input": "step 3", "provider_name": "OpenAI", "model_slug": "openai/m"},
    }
}
BAD_KEY = gemini(
    400,
    "API key not valid. Please pass a valid API key.",
    "INVALID_ARGUMENT",
    {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"},
)
FREE_DAY = gemini(
    429,
    "You exceeded your current quota, please check your plan and billing details.",
    "RESOURCE_EXHAUSTED",
    {
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "20"}],
    },
    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"},
)
FREE_MINUTE = gemini(
    429,
    "You exceeded your current quota, please check your plan and billing details.",
    "RESOURCE_EXHAUSTED",
    {"violations": [{"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},
    {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "26s"},
)
RPM = {"error": {"message": "Rate limit reached for requests", "type": "requests", "code": "rate_limit_exceeded"}}
RPD = {
    "error": {
        "message": "Rate limit reached for gpt-5.4 in organization o on requests per day (RPD): Limit 200, Used 200."
        " Please try again in 7m12s.",
        "type": "requests",
        "code": "rate_limit_exceeded",
    }
}
OPENROUTER_DAY = {
    "error": {
        "code": 429,
        "message": "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day",
        "metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1795392000000"}},
    }
}
NO_MAX_TOKENS = {
    "error": {
        "message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
        "type": "invalid_request_error",
        "param": "max_tokens",
        "code": "unsupported_parameter",
    }
}
HOURS = {"retry-after": "25920", "x-ratelimit-reset-requests": "7h12m"}

CASES: list[tuple[str, int, Mapping[str, str], Any, str, str]] = [
    ("anthropic: no credit", 400, {}, CREDIT, "quota", "add some"),
    ("anthropic: own spend limit", 400, {}, SPENT, "quota", "regain access on 2026-12-01"),
    ("anthropic: billing", 402, {}, anthropic("billing_error", "x"), "quota", "add some"),
    ("anthropic: ramp limit", 429, {"retry-after": "9"}, anthropic("rate_limit_error", "x"), "throttle", "HTTP 429"),
    ("anthropic: overloaded", 529, {}, anthropic("overloaded_error", "Overloaded"), "throttle", "Overloaded"),
    ("anthropic: daily", 429, {}, anthropic("rate_limit_error", "exceeds your daily rate limit"), "quota", "run the same"),
    (
        "anthropic: requests closed for hours",
        429,
        {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": (datetime.now(UTC) + timedelta(hours=5)).isoformat(),
        },
        anthropic("rate_limit_error", "x"),
        "quota",
        "opens again at 20",
    ),
    ("anthropic: a prompt about credit", 400, {}, anthropic("invalid_request_error", "prompt: her credit balance"), "row", ""),
    ("openrouter: moderation", 403, {}, MODERATED, "row", "moderation refused this row"),
    ("openrouter: key limit", 403, {}, {"error": {"code": 403, "message": "Key limit exceeded (total limit)"}}, "quota", ""),
    ("openrouter: free models, a day", 429, {}, OPENROUTER_DAY, "quota", "2026-11-2"),
    (
        "openrouter: inside a 200",
        200,
        {"retry-after": "7"},
        {"error": {"code": 429, "message": "busy"}},
        "throttle",
        "HTTP 429",
    ),
    ("openrouter: code in digits", 200, {}, {"error": {"code": "502", "message": "died"}}, "transient", "HTTP 502: died"),
    ("gemini: key", 400, {}, BAD_KEY, "run", "API key not valid"),
    ("gemini: a day", 429, {}, FREE_DAY, "quota", "opens again at 20"),
    ("gemini: a minute", 429, {}, FREE_MINUTE, "throttle", "You exceeded"),
    ("gemini: a bad argument", 400, {}, gemini(400, "Invalid value at 'n'", "INVALID_ARGUMENT"), "row", "Invalid value"),
    (
        "xai: key",
        400,
        {},
        {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: x"},
        "run",
        "key",
    ),
    ("openai: a minute", 429, {"retry-after": "7", "x-ratelimit-reset-requests": "8h"}, RPM, "throttle", "Rate limit"),
    (
        "openai: a minute, many requests left",
        429,
        {"x-ratelimit-remaining-requests": "9", "x-ratelimit-reset-requests": "8h"},
        RPM,
        "throttle",
        "Rate limit",
    ),
    ("openai: closed for hours", 429, HOURS, RPM, "quota", "opens again at 20"),
    ("openai: closed for hours, by the reset alone", 429, {"x-ratelimit-reset-requests": "7h12m"}, RPM, "quota", "again at 20"),
    ("openai: a day", 429, {}, RPD, "quota", "opens again at 20"),
    ("openai: a wait that makes no sense", 429, {"retry-after": "987654321"}, RPM, "throttle", "Rate limit"),
    ("openai: quota", 429, {}, {"error": {"type": "insufficient_quota", "code": None, "message": "x"}}, "quota", "add some"),
    ("azure: name of the limit", 400, {}, NO_MAX_TOKENS, "run", "Use 'max_completion_tokens' instead"),
    ("litellm: the status as code", 400, {}, {"error": {"message": "no", "code": "400"}}, "row", "HTTP 400: no"),
    ("azure: the status as code", 401, {}, {"error": {"message": "no", "code": "401"}}, "run", "HTTP 401: no"),
    ("vllm: key", 401, {}, {"error": "Unauthorized"}, "run", "the key was refused"),
    (
        "nginx: http to an https port",
        400,
        {},
        "<title>400 The plain HTTP request was sent to HTTPS port</title>",
        "run",
        "https://",
    ),
]


def failure(status: int, headers: Mapping[str, str], body: Any) -> ProviderError:
    content = body.encode() if isinstance(body, str) else orjson.dumps(body)
    with pytest.raises(ProviderError) as caught:
        arrival(Answered(status, headers, content), {"model": "m", "messages": []}, ())
    return caught.value


@pytest.mark.parametrize(
    ("status", "headers", "body", "expected", "says"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_what_providers_answer(status: int, headers: Mapping[str, str], body: Any, expected: str, says: str) -> None:
    found = failure(status, headers, body)
    assert found.failure == expected
    assert says in str(found)


def test_the_time_at_which_a_limit_opens_is_local() -> None:
    opens = datetime.now().astimezone() + timedelta(seconds=25920)
    said = str(failure(429, HOURS, RPM))
    assert f"{opens:%Y-%m-%d %H:%M}" in said or f"{opens + timedelta(minutes=1):%Y-%m-%d %H:%M}" in said


def test_waits_inside_a_200_are_heard() -> None:
    assert failure(200, {"retry-after": "7"}, {"error": {"code": 429, "message": "busy"}}).retry_after == 7


def test_every_rule_but_the_last_names_something_and_the_last_nothing() -> None:
    *rules, last = RULES
    assert all(rule.names or rule.words or rule.keys or rule.closed or rule.statuses != range(1000) for rule in rules)
    assert last.statuses == range(1000)


@pytest.mark.parametrize("body", [CREDIT, SPENT])
def test_no_credit_in_a_batch_is_no_fault_of_the_row(body: dict[str, Any]) -> None:
    """An `errored` line with Anthropic's 400 for credit was a row's failure, never sent again."""
    found = read_result({"custom_id": "k-0", "result": {"type": "errored", "error": body}})
    assert found is not None
    assert found.error is not None
    assert found.error.failure == "quota"


def test_a_403_after_successes_is_taken_for_its_rows_own_until_many_come_in_a_row() -> None:
    luck, forbidden = HealthMonitor(), ProviderError("no", "run", status=403)
    assert not luck.spares(ProviderError("no", "run", status=401))
    assert all(luck.spares(forbidden) for _ in range(REFUSED - 1))
    assert not luck.spares(forbidden)
    luck.success()
    assert luck.spares(forbidden)


def test_a_wrong_scheme_is_told_from_an_untrusted_certificate() -> None:
    """https to an http port was said to be an untrusted certificate."""
    import ssl

    assert "http://" in str(no_answer(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")))
    trusted = str(no_answer(ssl.SSLCertVerificationError(1, "certificate verify failed: self-signed certificate")))
    assert "trusted" in trusted
    assert "http://" not in trusted


@pytest.fixture(scope="module")
def server() -> Iterator[Judge]:
    with serving() as judge:
        yield judge


Label = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture
def label(tmp_path: Path, server: Judge, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Label:
    """Labels `rows` solutions, in this process: exit code, what was said on stderr, report."""
    for name in (name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "CRITIC_PRM_"))):
        monkeypatch.delenv(name)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-of-this-test")

    def run(rows: int, judge: str, *options: str) -> tuple[int, str, dict[str, Any]]:
        out = tmp_path / "labels.jsonl"
        line = command(write_input(tmp_path / "in.jsonl", rows), out, tmp_path / "cache.db", server.url, *options, judge=judge)
        with pytest.raises(SystemExit) as end:
            main(line[line.index("label") :])
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return int(end.value.code or 0), said, orjson.loads(Path(f"{out}.run.json").read_bytes())

    return run


STOPS = {
    "credit": (400, "", CREDIT),
    "hours": (429, "Retry-After: 25920\r\n", RPM),
    "day": (429, "", RPD),
}


@pytest.mark.parametrize(
    ("kind", "judge", "says"),
    [
        ("credit", "anthropic/claude-haiku-5-5", "add some"),
        ("hours", "openai/m", "opens again at"),
        ("day", "openai/m", "opens again at"),
    ],
)
def test_money_and_daily_limits_stop_the_run(server: Judge, label: Label, kind: str, judge: str, says: str) -> None:
    """Without credit at Anthropic all 400 rows were sent and failed, exit 3; a limit of hours was asked every minute."""
    server.behave(Behaviour(latency=0.002))
    assert label(10, judge)[0] == 0
    assert server.seen.answers["ok"] == 10
    server.behave(Behaviour(latency=0.002, told=STOPS, faults={kind: 1.0}))
    code, said, report = label(400, judge, "--max-connections", "4")
    assert code == 5
    assert says in said
    assert report["exit_code"] == 5
    assert says in report["stopped_by"]
    assert server.seen.bodies.total() <= 8  # what was out when the first answer came
    server.behave(Behaviour(latency=0.002))
    assert label(20, judge)[0] == 0
    assert server.seen.bodies.total() == 10


def test_a_moderated_row_fails_alone(server: Judge, label: Label, tmp_path: Path) -> None:
    """OpenRouter's 403 for a flagged input stopped the run, and every run after it at the same row."""
    server.behave(Behaviour(latency=0.002, told={"flagged": (403, "", MODERATED)}, marked={"Order 7:": "flagged"}))
    code, _, report = label(60, "openai/m", "--max-connections", "4")
    assert (code, report["labels"]) == (3, {"ok": 59, "provider_error": 1})
    assert server.seen.bodies.total() == 60
    rows = [orjson.loads(line) for line in (tmp_path / "labels.jsonl").read_bytes().splitlines()]
    assert "moderation refused this row" in orjson.dumps(rows[7]).decode()


def test_a_403_without_a_reason_fails_its_row_once_others_have_passed(server: Judge, label: Label) -> None:
    server.behave(Behaviour(latency=0.002, marked={"Order 40:": "403"}))
    code, _, report = label(60, "openai/m", "--max-connections", "4")
    assert (code, report["labels"]) == (3, {"ok": 59, "provider_error": 1})
    server.behave(Behaviour(latency=0.002, faults={"403": 1.0}))
    assert label(300, "openai/m", "--max-connections", "4")[0] == 4
    assert REFUSED <= server.seen.bodies.total() <= REFUSED + 8


BROKEN_OFF = {
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "error",
            "error": {"code": 502, "message": "upstream died"},
            "message": {"role": "assistant", "content": "Step 1: fine\nThe step is \\boxed{correct}\n\nStep 2:"},
        }
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 9},
}


def test_an_answer_that_the_server_broke_off_is_asked_for_again(server: Judge, label: Label) -> None:
    """OpenRouter's finish_reason "error" was read as a natural end, and the half answer kept for every later run."""
    server.behave(Behaviour(latency=0.002, told={"broken": (200, "", BROKEN_OFF)}, faults={"broken": 1.0}))
    code, _, report = label(1, "openai/m", "--max-retries", "1")
    assert (code, report["labels"]) == (3, {"provider_error": 1})
    assert server.seen.bodies.total() == 2
    server.behave(Behaviour(latency=0.002))
    assert label(1, "openai/m")[0] == 0
    assert server.seen.bodies.total() == 1


def test_a_server_that_fails_at_every_schema_is_named(server: Judge, label: Label) -> None:
    """llama-cpp-python answers `json_schema` with HTTP 500; the json style retried that as an outage."""
    server.behave(Behaviour(latency=0.002, marked={"json_schema": "500"}))
    code, said, _ = label(20, "openai/m", "--style", "json")
    assert code == 4
    assert "--no-schema" in said


@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_200_that_is_no_batch_is_said_to_be_none(name: str) -> None:
    """A server that answers /batches with a 200 of its own shape ended the run in a traceback."""
    import httpx2

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json={"object": "chat.completion", "choices": []})

    def http() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(answer))

    api: BatchAPI
    if name == "openai":
        api = OpenAIBatches(lambda: OpenAIProvider("m", "http://localhost:1/v1", "sk-x")._connect(http()))
    else:
        api = AnthropicBatches(lambda: AnthropicProvider("m", "http://localhost:1", "sk-x")._connect(http()))
    for call in (api.look("batch_1"), api.cancel("batch_1")):
        with pytest.raises(ProviderError, match="is there a batch API") as caught:
            await call
        assert caught.value.failure == "run"
    await api.close()
