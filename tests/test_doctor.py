"""The doctor: one request, and it says what works, what is ignored and what is refused."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.server import Behaviour, Judge, serving
from critic_prm.cli.doctor_judge import Finding, compare, examine, own_options
from critic_prm.critics.llm import with_provider
from critic_prm.engine.options import JudgeOptions
from critic_prm.engine.place import cache_path
from critic_prm.errors import InputError
from critic_prm.providers import vllm
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import Provider, Reply, TokenLogprob
from tests import command


@pytest.fixture(scope="module")
def server() -> Iterator[Judge]:
    with serving() as judge:
        yield judge


def look(folder: Path, provider: Provider, patience: float = 20.0, style: str = "stepwise") -> dict[str, Finding]:
    async def run() -> list[Finding]:
        critic = with_provider(provider, JudgeOptions(db=folder / "doctor.db", style=style))
        try:
            return await examine(critic, patience)
        finally:
            await critic.close()

    return {finding.what: finding for finding in asyncio.run(run())}


def openai(server: Judge, model: str = "local") -> OpenAIProvider:
    return OpenAIProvider(model, server.url, "sk-of-this-test")


def test_a_judge_that_does_everything(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0, obeys=True, limits=True))
    found = look(tmp_path, openai(server))
    assert server.seen.bodies.total() == 1
    assert not [finding for finding in found.values() if finding.state == "bad"]
    assert found["schema"].state == "ok"
    assert "9,999 requests left" in found["rate limit"].said
    assert "ended by 'stop'; max_tokens was accepted" in found["answer"].said
    assert found["a run sends"].said == '{"model":"local","max_tokens":8192}'
    assert found["price"].state == "note"


def test_a_server_that_ignores_the_schema_is_caught(server: Judge, tmp_path: Path) -> None:
    """vLLM has ignored `guided_json` in silence since 0.12: a status of 200 shows nothing."""
    server.behave(Behaviour(latency=0))
    found = look(tmp_path, openai(server))
    assert (found["schema"].state, found["logprobs"].state) == ("note", "note")
    assert "ignored" in found["schema"].said


def test_what_is_refused_is_told_from_what_works(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0, marked={"response_format": "400"}))
    found = look(tmp_path, openai(server))
    assert server.seen.bodies.total() == 2
    assert "made to fail: 400" in found["request"].said
    assert "response_format" in found["sent"].said
    assert "works" in found["plainly"].said


def test_a_parameter_that_the_server_names_is_replaced(server: Judge, tmp_path: Path) -> None:
    """Azure refuses `max_tokens` for a reasoning model, whose deployment may have any name."""
    message = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    error = {
        "error": {"message": message, "type": "invalid_request_error", "param": "max_tokens", "code": "unsupported_parameter"}
    }
    server.behave(Behaviour(latency=0, told={"azure": (400, "", error)}, marked={'"max_tokens"': "azure"}))
    found = look(tmp_path, openai(server, "my-deployment"))
    assert found["fix"].said == """add --extra-body '{"max_tokens":null,"max_completion_tokens":8192}'"""
    assert "works" in found["plainly"].said
    assert server.seen.bodies.total() == 2


@pytest.mark.parametrize(
    ("kind", "what", "fix"),
    [
        ("401", "key or model", "the key was refused"),
        ("404", "key or model", "no such model"),
        ("quota", "account", "add some"),
        ("503", "server", "HTTP 503"),
        ("html", "server", "200 with HTML"),
        ("stall", "server", "no answer within"),
    ],
)
def test_what_is_wrong_is_said(server: Judge, tmp_path: Path, kind: str, what: str, fix: str) -> None:
    server.behave(Behaviour(latency=0, faults={kind: 1.0}))
    found = look(tmp_path, openai(server), 0.5 if kind == "stall" else 20.0)
    assert kind == "stall" or server.seen.bodies.total() == 1  # a busy machine may not even send within so short a patience
    assert found[what].state == "bad"
    assert fix in found[what].said


@pytest.mark.parametrize(
    ("kind", "says"), [("length", "raise --max-tokens"), ("blank", "0 characters"), ("refusal", "refusal")]
)
def test_an_answer_that_is_none_is_bad(server: Judge, tmp_path: Path, kind: str, says: str) -> None:
    server.behave(Behaviour(latency=0, faults={kind: 1.0}))
    found = look(tmp_path, openai(server))
    assert found["answer"].state == "bad"
    assert says in found["answer"].said


def test_what_the_table_knows_is_not_asked_for(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0, obeys=True))
    found = look(tmp_path, AnthropicProvider("claude-haiku-5-5", server.url.removesuffix("/v1"), "sk-of-this-test"))
    assert "not asked for" in found["logprobs"].said
    assert found["schema"].state == "ok"
    assert "$0.1 in" in found["price"].said


def test_a_server_that_is_no_vllm_is_told(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0, obeys=True))
    found = look(tmp_path, vllm.PROVIDER.connect("local", server.url))
    assert found["server"].state == "bad"
    assert "no vLLM" in found["server"].said
    assert "openai/MODEL" in found["server"].said
    assert "grammar" not in found  # what only vLLM knows is not asked for


def scored(**p: float) -> Reply:
    top = tuple((token, math.log(chance)) for token, chance in p.items())
    return Reply("Yes", "stop", {}, logprobs=(TokenLogprob(*top[0], top),))


def test_golden_scores_are_kept_and_compared_with(tmp_path: Path) -> None:
    path = tmp_path / "golden.json"
    assert "kept in" in compare(path, "vllm/m", scored(Yes=0.7, No=0.2)).said
    for near in (scored(Yes=0.71, No=0.19), scored(Yes=0.7, Right=0.2)):
        assert compare(path, "vllm/m", near).state == "ok"  # what is just beyond the words that came is at most as likely
    for far in (scored(Yes=0.5, No=0.4), scored(No=0.9, Never=0.05)):
        found = compare(path, "vllm/m", far)
        assert found.state == "bad"
        assert "P('Yes') = 0.7000" in found.said
    assert compare(path, "vllm/m", Reply("Yes", "stop", {})).state == "bad"
    path.write_text("{}")
    with pytest.raises(InputError, match="no golden scores"):
        compare(path, "vllm/m", scored(Yes=0.7))


@pytest.mark.parametrize(
    ("model", "style", "state", "said"),
    [
        ("claude-haiku-5-5", "agent", "ok", "from 512 tokens; the instructions, at least 6.*, are cached"),
        ("claude-haiku-4-5", "yes-no", "ok", "from 4,096 tokens; .* the steps of a solution share a cached prompt once"),
        ("claude-haiku-4-5", "stepwise", "note", "only several samples of a solution with 3,.* more are cached"),
        ("claude-unheard-of", "stepwise", "note", "unknown"),
    ],
)
def test_whether_prompts_are_long_enough_for_claudes_cache(
    server: Judge, tmp_path: Path, model: str, style: str, state: str, said: str
) -> None:
    """The instructions were marked for every model, and it was not said that most do not cache a prompt so short."""
    server.behave(Behaviour(latency=0))
    found = look(tmp_path, AnthropicProvider(model, server.url.removesuffix("/v1"), "sk-of-this-test"), style=style)
    assert found["prompt cache"].state == state
    assert re.search(said, found["prompt cache"].said), found["prompt cache"].said


def test_a_cache_without_markers_is_not_spoken_of(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0))
    assert "prompt cache" not in look(tmp_path, openai(server))


def test_the_options_of_the_provider_are_listed(server: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    server.behave(Behaviour(latency=0))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    result = command.invoke("doctor", "openai/local", "--base-url", server.url, "--option", "sdk=false")
    assert f"cache       a run uses {cache_path()}, a new file" in result.output
    assert "note  option      --option sdk=: Send requests with the headers of OpenAI's SDK" in result.stdout
    assert [finding.said.partition(":")[0] for finding in own_options("vllm/model")] == ["--option engine={}"]
    assert own_options("anthropic/model") == []
