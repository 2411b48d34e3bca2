"""Each provider's dialect: the body that is sent, the reading of what comes back, and what a model cannot take."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from critic_prm.errors import ConfigError, InputError, ProviderError, UsageError
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.http import AsTheSDK
from critic_prm.providers.models import Prices, abilities
from critic_prm.providers.openai import OpenAIProvider, read_chat
from critic_prm.providers.provider import Message, Request, Sampling, Usage, open_provider, request_key

MESSAGES = (Message("system", "judge"), Message("user", "2+2?"))
SCHEMA = {"type": "object", "properties": {}}


def openai(model: str = "gpt-4o", base_url: str | None = None) -> OpenAIProvider:
    return OpenAIProvider(model, base_url, "sk-secret-key")


def claude(model: str = "claude-haiku-5-5") -> AnthropicProvider:
    return AnthropicProvider(model, None, "sk-secret-key")


def test_chat_completions() -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, seed=3, max_tokens=100, stop=("END",), logprobs=5, extra_body={"user": "x"})
    assert openai().wire(Request(MESSAGES, sampling, SCHEMA)) == {
        "model": "gpt-4o",
        "messages": [{"role": "system", "content": "judge"}, {"role": "user", "content": "2+2?"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 5,
        "max_completion_tokens": 100,
        "stop": ["END"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "verdicts", "strict": True, "schema": SCHEMA}},
        "user": "x",
    }


def test_what_is_not_asked_for_is_not_sent() -> None:
    assert set(openai().wire(Request(MESSAGES))) == {"model", "messages"}


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        (None, "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("http://localhost:8000/v1", "max_tokens"),
    ],
)
def test_the_limit_goes_by_the_name_that_the_server_knows(base_url: str | None, name: str) -> None:
    assert openai(base_url=base_url).wire(Request(MESSAGES, Sampling(max_tokens=9)))[name] == 9


@pytest.mark.parametrize(
    ("model", "sampling", "problem"),
    [
        ("o3", Sampling(temperature=0.0), "does not accept temperature"),
        ("gpt-6-luna", Sampling(logprobs=5), "does not accept logprobs"),
        ("gpt-5.5", Sampling(top_p=0.5), "set --effort none"),
        ("gpt-5.2", Sampling(temperature=0.5, effort="high"), "set --effort none"),
    ],
)
def test_what_a_model_cannot_take_is_said_before_it_is_sent(model: str, sampling: Sampling, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        openai(model).wire(Request(MESSAGES, sampling))


@pytest.mark.parametrize(
    ("model", "sampling"),
    [
        ("gpt-5.5", Sampling(temperature=0.5, effort="none")),
        ("gpt-5.2", Sampling(temperature=0.5, logprobs=3)),
        ("some/local-model", Sampling(temperature=0.5, logprobs=3)),
    ],
)
def test_what_it_can_take_is_sent(model: str, sampling: Sampling) -> None:
    assert openai(model).wire(Request(MESSAGES, sampling))["temperature"] == 0.5


def test_messages_of_anthropic_mark_the_shared_part_for_the_prompt_cache() -> None:
    sampling = Sampling(max_tokens=100, stop=("END",), effort="low")
    assert claude().wire(Request(MESSAGES, sampling, SCHEMA)) == {
        "model": "claude-haiku-5-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "2+2?"}],
        "system": [{"type": "text", "text": "judge", "cache_control": {"type": "ephemeral"}}],
        "stop_sequences": ["END"],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    }


@pytest.mark.parametrize("sampling", [Sampling(temperature=0.0), Sampling(top_p=1.0), Sampling(seed=1), Sampling(logprobs=2)])
def test_claude_takes_no_sampling_parameters(sampling: Sampling) -> None:
    with pytest.raises(UsageError, match="leave it out"):
        claude().wire(Request(MESSAGES, sampling))


def test_pictures_are_sent_by_their_content(tmp_path: Path) -> None:
    picture = tmp_path / "figure.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    asked = Request((Message("user", "look", (str(picture),)),))
    url = openai().wire(asked)["messages"][0]["content"][1]["image_url"]["url"]
    assert url == f"data:image/png;base64,{data}"
    source = claude().wire(asked)["messages"][0]["content"][1]["source"]
    assert source == {"type": "base64", "media_type": "image/png", "data": data}
    elsewhere = tmp_path / "copy.png"
    elsewhere.write_bytes(b"\x89PNG\r\n\x1a\n")
    again = Request((Message("user", "look", (str(elsewhere),)),))
    assert request_key(openai().wire(asked)) == request_key(openai().wire(again))
    with pytest.raises(InputError, match="cannot be read"):
        openai().wire(Request((Message("user", "look", (str(tmp_path / "none.png"),)),)))


def chat(**choice: Any) -> dict[str, Any]:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 80, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }
    message = {"role": "assistant", "content": "fine"}
    return {"model": "m-1", "choices": [{"message": message, "finish_reason": "stop", **choice}], "usage": usage}


def test_usage_of_openai_includes_what_was_cached() -> None:
    assert read_chat(chat()).usage == Usage(input=100, output=50, cached=80, written=10, reasoning=40)


def test_usage_of_anthropic_leaves_out_what_was_cached() -> None:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 10, "output_tokens": 50}
    raw = {"content": [{"type": "thinking", "thinking": "..."}, {"type": "text", "text": "fine"}], "usage": usage}
    reply = claude().read({**raw, "stop_reason": "end_turn"})
    assert (reply.text, reply.finish) == ("fine", "stop")
    assert reply.usage == Usage(input=100, output=50, cached=80, written=10)


def test_both_conventions_cost_the_same() -> None:
    prices = Prices(input=1.0, cached=0.1, written=1.25, output=10.0)
    assert prices.cost(Usage(100, 50, 80, 10, 40)) == pytest.approx((10 * 1.0 + 80 * 0.1 + 10 * 1.25 + 50 * 10.0) / 1e6)


def test_a_free_cache_costs_nothing() -> None:
    assert Prices(input=1.0, output=1.0, cached=0.0).cost(Usage(input=100, cached=100)) == 0.0


def test_long_prompts_have_their_own_prices() -> None:
    prices = Prices(input=1.0, output=2.0, long_over=1000, long_input=5.0, long_output=10.0)
    assert prices.cost(Usage(1000, 10)) == pytest.approx(1020 / 1e6)
    assert prices.cost(Usage(1001, 10)) == pytest.approx((5005 + 100) / 1e6)


@pytest.mark.parametrize(
    ("raw", "finish"),
    [
        (chat(finish_reason="length"), "length"),
        (chat(finish_reason="content_filter"), "filter"),
        (chat(finish_reason="eos"), "stop"),
        (chat(finish_reason=None), "stop"),
        (chat(finish_reason=""), "stop"),
        (chat(finish_reason="STOP"), "stop"),
        (chat(finish_reason="eos_token"), "stop"),
        (chat(finish_reason="stop_sequence"), "stop"),
        (chat(finish_reason="MAX_TOKENS"), "length"),
        (chat(finish_reason="model_length"), "length"),
        (chat(finish_reason="sensitive"), "filter"),
        (chat(finish_reason="a word that nobody knows"), "other"),
        (chat(finish_reason=7), "other"),
        (chat(finish_reason="tool_calls"), "other"),
        (chat(message={"content": None, "refusal": "I cannot"}), "refusal"),
    ],
)
def test_how_an_answer_of_openai_ended(raw: dict[str, Any], finish: str) -> None:
    assert read_chat(raw).finish == finish


@pytest.mark.parametrize(
    "choice",
    [
        {"finish_reason": "error"},
        {"finish_reason": "insufficient_system_resource"},
        {"finish_reason": "stop", "error": {"code": 502, "message": "upstream died"}},
        {"finish_reason": None, "error": "upstream died"},
    ],
)
def test_an_answer_that_was_broken_off_is_a_failure_that_may_pass(choice: dict[str, Any]) -> None:
    """OpenRouter's and DeepSeek's words for a server that died in the middle were read as a natural end."""
    with pytest.raises(ProviderError) as caught:
        read_chat(chat(**choice))
    assert caught.value.failure == "transient"
    with pytest.raises(ProviderError, match="broke the answer off"):
        claude().read({"content": [{"type": "text", "text": "x"}], "stop_reason": "error"})


def test_deepseek_counts_cached_tokens_under_another_name() -> None:
    raw = chat()
    raw["usage"] = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36}
    assert read_chat(raw).usage == Usage(input=100, output=5, cached=64)


@pytest.mark.parametrize(
    ("base_url", "posted"),
    [
        ("http://localhost:1/v1", "http://localhost:1/v1/messages"),
        ("http://localhost:1/v1/", "http://localhost:1/v1/messages"),
        ("http://localhost:1", "http://localhost:1/v1/messages"),
        ("http://localhost:1/anthropic", "http://localhost:1/anthropic/v1/messages"),
        (None, "https://api.anthropic.com/v1/messages"),
    ],
)
async def test_the_address_of_anthropic_may_end_in_v1(
    base_url: str | None, posted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of an OpenAI-compatible server, which ends in /v1, made requests to /v1/v1/messages."""
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    provider = AnthropicProvider("claude-haiku-5-5", base_url, "sk-secret-key")
    direct = await AsTheSDK("/v1/messages", provider._connect)._learn()
    assert direct.url == posted


async def test_anthropic_is_sent_headers_and_the_key_of_another_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "sk-of-the-gateway")
    provider = open_provider("anthropic/claude-haiku-5-5", None, headers=["x-org=acme"], key_variable="GATEWAY_KEY")
    assert isinstance(provider, AnthropicProvider)
    direct = await AsTheSDK("/v1/messages", provider._connect)._learn()
    assert direct.headers["x-org"] == "acme"
    assert "sk-of-the-gateway" in " ".join(direct.headers.values())
    assert {"acme", "sk-of-the-gateway"} <= set(provider.secrets)
    official = open_provider("openai/gpt-4o", None, headers=["x-org=acme"], key_variable="GATEWAY_KEY")
    assert isinstance(official, OpenAIProvider)
    direct = await AsTheSDK("/chat/completions", official._connect)._learn()
    assert (direct.headers["x-org"], direct.headers["authorization"]) == ("acme", "Bearer sk-of-the-gateway")


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("stop_sequence", "stop"),
        ("tool_use", "other"),
        ("pause_turn", "other"),
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
    ],
)
def test_how_an_answer_of_anthropic_ended(stop: str, finish: str) -> None:
    raw = {"content": [{"type": "text", "text": "x"}], "stop_reason": stop, "stop_details": {"category": "frontier_llm"}}
    reply = claude().read(raw)
    assert (reply.finish, reply.note) == (finish, "frontier_llm")


@pytest.mark.parametrize("raw", [{}, {"choices": []}, {"choices": None}, {"choices": [{}]}, {"choices": ["x"]}])
def test_a_body_that_is_no_answer_is_a_failure_never_an_empty_label(raw: dict[str, Any]) -> None:
    with pytest.raises(ProviderError):
        read_chat(raw)
    with pytest.raises(ProviderError):
        claude().read(raw)


def test_logprobs_are_read() -> None:
    token = {
        "token": "Yes",
        "logprob": -0.1,
        "top_logprobs": [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}],
    }
    reply = read_chat(chat(logprobs={"content": [token]}))
    assert reply.logprobs[0].top == (("Yes", -0.1), ("No", -2.4))


async def test_a_key_is_needed_to_send_anything_but_not_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, variable in (("openai/gpt-4o", "OPENAI_API_KEY"), ("anthropic/claude-haiku-5-5", "ANTHROPIC_API_KEY")):
        provider = open_provider(name)
        wire = provider.wire(Request((Message("user", "2+2?"),)))
        with pytest.raises(ConfigError, match=f"set {variable}"):
            await provider.complete(wire)
    assert open_provider("openai/local", "http://localhost:8000/v1").base_url == "http://localhost:8000/v1"


def test_a_provider_never_shows_its_key() -> None:
    assert "sk-secret-key" not in repr(openai()) + repr(claude())


def test_an_unknown_model_has_no_price_rather_than_none_to_pay() -> None:
    assert abilities("openai", "gpt-99-unheard-of").prices is None
    assert "unknown" in abilities("openai", "gpt-99-unheard-of").note


def test_ones_own_table_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mine.toml"
    table.write_text('[[openai]]\nmatch = "gpt-99*"\nprices = {input = 1.0, output = 2.0}\n')
    monkeypatch.setenv("CRITIC_PRM_MODELS", str(table))
    assert abilities("openai", "gpt-99-x").prices == Prices(1.0, 2.0)
    assert abilities("openai", "gpt-4o").match == "gpt-4*"
