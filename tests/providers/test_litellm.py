"""The provider litellm: what it passes on and what it makes of errors; with the package itself where it is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import orjson
import pytest

from critic_prm.data.trust import Origin
from critic_prm.errors import ConfigError, InputError, ProviderError
from critic_prm.providers.provider import Message, Provider, Reply, Request, Sampling, Usage, open_provider
from tests.providers.test_presets import Server, serving

ASKED = Request((Message("system", "Judge."), Message("user", "2 + 2 = 5?")), Sampling(max_tokens=64))
ANSWER = {
    "model": "anthropic.claude",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "no"}}],
    "usage": {
        "prompt_tokens": 90,
        "completion_tokens": 5,
        "total_tokens": 95,
        "prompt_tokens_details": {"cached_tokens": 40, "cache_creation_tokens": 20},
    },
}


class Refused(Exception):
    """An exception as LiteLLM raises it."""

    def __init__(self, message: str, status_code: int, **more: Any) -> None:
        super().__init__(f"litellm.{type(self).__name__}: {message}")
        self.status_code, self.response = status_code, None
        vars(self).update(more)


class UnsupportedParamsError(Refused):
    """What LiteLLM calls a parameter that its provider does not take."""


@pytest.fixture
def litellm(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stand-in for the package: `answer` is a body to return or an exception to raise, `given` what it was called with."""
    stub, seen = ModuleType("litellm"), SimpleNamespace(answer=ANSWER, given={})

    async def acompletion(**given: Any) -> Any:
        seen.given = given
        if isinstance(seen.answer, Exception):
            raise seen.answer
        text = orjson.dumps(seen.answer).decode()
        return SimpleNamespace(
            model_dump_json=lambda: text,
            _hidden_params={"additional_headers": {"llm_provider-x-ratelimit-remaining-requests": "7"}},
        )

    async def close_litellm_async_clients() -> None:
        seen.closed = True

    vars(stub).update(acompletion=acompletion, close_litellm_async_clients=close_litellm_async_clients)
    monkeypatch.setitem(sys.modules, "litellm", stub)
    return seen


async def test_a_request_goes_through_litellm(litellm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN_KEY", "sk-own")
    provider = open_provider("litellm/bedrock/anthropic.claude", "https://gate.example", (), ["X-Org=acme"], "OWN_KEY")
    wire = provider.wire(ASKED)
    arrival = await provider.complete(wire)
    reply = provider.read(arrival.raw)
    assert litellm.given | wire == litellm.given
    assert (wire["model"], wire["max_tokens"]) == ("bedrock/anthropic.claude", 64)
    passed = {name: litellm.given[name] for name in ("base_url", "api_key", "extra_headers", "num_retries")}
    assert passed == {
        "base_url": "https://gate.example",
        "api_key": "sk-own",
        "extra_headers": {"X-Org": "acme"},
        "num_retries": 0,
    }
    assert (reply.text, reply.usage) == ("no", Usage(input=90, output=5, cached=40, written=20))
    assert arrival.allowance.requests == 7
    await provider.close()
    assert litellm.closed


@pytest.mark.parametrize(
    ("error", "failure", "says"),
    [
        (Refused("OpenAIException - Incorrect API key", 401), "run", "that LiteLLM reads for this provider to a valid one"),
        (Refused("BedrockException - Unable to locate credentials", 500), "run", "the key was refused"),
        (Refused("throttled", 429, headers={"retry-after": "9"}), "throttle", "throttled"),
        (Refused("Your credit balance is too low to access the Anthropic API", 400), "quota", "add some"),
        (Refused("prompt is too long", 400), "row", "too long"),
        (UnsupportedParamsError("bedrock does not support parameters: ['logprobs']", 400), "run", "logprobs"),
        (Refused("no such model", 404), "run", "check the name"),
        (TimeoutError("slow"), "transient", "TimeoutError: slow"),
    ],
)
async def test_errors_of_litellm(litellm: SimpleNamespace, error: Exception, failure: str, says: str) -> None:
    litellm.answer = error
    provider = open_provider("litellm/bedrock/m")
    with pytest.raises(ProviderError) as caught:
        await provider.complete(provider.wire(ASKED))
    assert (caught.value.failure, says in str(caught.value)) == (failure, True), str(caught.value)


async def test_no_credential_of_the_environment_is_in_an_error(
    litellm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMIK7MDENG0001")
    litellm.answer = Refused("signed with wJalrXUtnFEMIK7MDENG0001", 403)
    provider = open_provider("litellm/bedrock/m")
    with pytest.raises(ProviderError, match=r"signed with \[key\]"):
        await provider.complete(provider.wire(ASKED))


async def test_what_is_missing_is_named(litellm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    litellm.answer = ImportError("No module named 'boto3'")
    provider = open_provider("litellm/bedrock/m")
    with pytest.raises(ConfigError, match="needs a further package: No module named 'boto3'"):
        await provider.complete(provider.wire(ASKED))
    monkeypatch.setitem(sys.modules, "litellm", None)  # importing it fails
    with pytest.raises(ConfigError, match="the provider litellm needs litellm"):
        await provider.complete(provider.wire(ASKED))


def test_a_file_may_name_it_only_if_it_is_trusted(tmp_path: Path) -> None:
    """Which servers get which keys is LiteLLM's decision, by the model's name."""
    path = tmp_path / "theirs.toml"
    with pytest.raises(InputError, match="--trust"):
        Origin(path).provider("a critic", "litellm/bedrock/m")
    assert Origin(path, (path,)).provider("a critic", "litellm/bedrock/m") == "litellm/bedrock/m"


# With the package itself

loud = pytest.mark.filterwarnings("default")  # LiteLLM warns when it is imported
real = pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed; it needs an environment of its own")

CONVERSE = {
    "output": {"message": {"role": "assistant", "content": [{"text": "no"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 90, "outputTokens": 5, "totalTokens": 95},
    "metrics": {"latencyMs": 300},
}
GEMINI = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "no"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 90, "candidatesTokenCount": 5, "thoughtsTokenCount": 30, "totalTokenCount": 125},
    "modelVersion": "gemini-3.8-flash",
}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1795300000,
    "status": "completed",
    "model": "gpt-5.4-pro",
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "no", "annotations": []}],
        },
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "usage": {
        "input_tokens": 90,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 35,
        "output_tokens_details": {"reasoning_tokens": 30},
        "total_tokens": 125,
    },
}
NATIVE: dict[str, tuple[str, str, Any, Usage]] = {
    "bedrock/converse/anthropic.claude-haiku-4-5": ("", "/converse", CONVERSE, Usage(input=90, output=5)),
    "gemini/gemini-3.8-flash": ("", ":generateContent", GEMINI, Usage(input=90, output=35, reasoning=30)),
    "openai/responses/gpt-5.4-pro": ("/v1", "/v1/responses", RESPONSE, Usage(input=90, output=35, reasoning=30)),
}
"""Model -> the address below the server's, the path that is posted to, the provider's own answer, and the usage in it."""


async def _answered(model: str, server: Server, path: str) -> tuple[Provider, Reply]:
    provider = open_provider(f"litellm/{model}", f"{server.url}{path}")
    try:
        return provider, provider.read((await provider.complete(provider.wire(ASKED))).raw)
    finally:
        await provider.close()


@real
@loud
@pytest.mark.parametrize("model", NATIVE)
async def test_apis_that_are_not_chat_completions(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "key-of-this-test-0123")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    path, posted, body, usage = NATIVE[model]
    with serving({"status": 200, "headers": {}, "body": body}) as server:
        _, reply = await _answered(model, server, path)
        assert server.path.partition("?")[0].endswith(posted)
    assert (reply.text, reply.finish, reply.usage) == ("no", "stop", usage)


@real
@loud
@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (
            401,
            {"error": {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": "invalid_api_key"}},
            "run",
        ),
        (429, {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}, "throttle"),
        (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, "quota"),
        (400, {"error": {"message": "This model's maximum context length is 9", "code": "context_length_exceeded"}}, "row"),
        (503, {"error": {"message": "overloaded"}}, "transient"),
    ],
)
async def test_errors_of_the_package_itself(status: int, body: Any, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-this-test-0123")
    with serving({"status": status, "headers": {}, "body": body}) as server:
        with pytest.raises(ProviderError) as caught:
            await _answered("openai/gpt-4o", server, "/v1")
        assert server.requests == 1
    assert caught.value.failure == failure, str(caught.value)
    assert "key-of-this-test" not in str(caught.value)
