"""The model table: the row of a name, the parameters that follow from it, the values that are refused unsent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.runs import write_input
from bench.server import Behaviour, Judge, serving
from critic_prm.critics.llm import with_provider
from critic_prm.engine.budget import with_doubled_max_tokens
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.providers.models import abilities, check, did_you_mean, fits
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import Message, Request, Sampling
from critic_prm.providers.vllm import VLLMProvider
from tests.command import invoke

ASKED = Request((Message("user", "2+2?"),), Sampling(max_tokens=9))
AZURE = "https://my-res.openai.azure.com/openai/v1"


@pytest.mark.parametrize(
    ("model", "match", "expected"),
    [
        ("gpt-5.4-mini", "gpt-5.4-mini", True),
        ("gpt-5.4-mini-2026-03-17", "gpt-5.4-mini", True),
        ("gpt-5.4-mini-latest", "gpt-5.4-mini", True),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5", True),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5", True),
        ("gpt-4-0613", "gpt-4", True),
        ("gpt-5.4-minimax", "gpt-5.4-mini", False),
        ("gpt-5.4-mini-pro", "gpt-5.4-mini", False),
        ("gpt-5.4", "gpt-5.4-mini", False),
        ("claude-sonnet-5-5", "claude-sonnet-5", False),
        ("gpt-5.4-minimax", "gpt-5.4-mini*", True),
        ("o3", "o[1-9]*", True),
    ],
)
def test_a_name_means_itself_and_its_snapshots(model: str, match: str, expected: bool) -> None:
    assert fits(model, match) is expected


@pytest.mark.parametrize(
    "model", ["gpt-5.4-mini", "gpt-5.4-nano-2026-03-17", "gpt-6-luna", "gpt-6.1-sol", "gpt-5.5", "gpt-5.6-sol"]
)
def test_known_models_have_a_price(model: str) -> None:
    assert abilities("openai", model).prices is not None


@pytest.mark.parametrize(
    ("provider", "model", "hint"),
    [
        ("openai", "gpt-5.4-minimax", "gpt-5.4-mini"),
        ("openai", "gpt5.4-mini", "gpt-5.4-mini"),
        ("openai", "gpt-6-lunar", "gpt-6-luna"),
        ("anthropic", "claude-haiku-55", "claude-haiku-5-5"),
        ("openai", "gpt-4.1-mini", None),
        ("openai", "gpt-5-mini", None),
        ("openai", "gpt-5.5-pro", None),
        ("anthropic", "claude-opus-4-8", None),
        ("openai", "Qwen/Qwen3-8B", None),
        ("vllm", "local", None),
    ],
)
def test_no_other_model_lends_its_price(provider: str, model: str, hint: str | None) -> None:
    """`gpt-5.4-minimax` had the price of `gpt-5.4-mini`."""
    assert abilities(provider, model).prices is None
    assert did_you_mean(provider, model) == (f"; did you mean {hint}?" if hint else "")


def test_a_misspelt_name_is_still_of_its_family() -> None:
    assert abilities("openai", "gpt-5.4-minimax").limit == "max_completion_tokens"
    assert abilities("openai", "gpt-5.4-minimax").sampling == "no-effort"


@pytest.mark.parametrize("model", ["gpt-6-luna", "gpt-6-sol", "gpt-6-sol-2026-09-22"])
def test_gpt_6_takes_sampling_parameters_when_it_does_not_reason(model: str) -> None:
    """The table refused --temperature with --effort none, which OpenAI allows, and yes-no went without log-probabilities."""
    provider = OpenAIProvider(model, None, "sk-x")
    sampling = Sampling(temperature=0.7, logprobs=5, effort="none")
    body = provider.wire(Request(ASKED.messages, sampling))
    assert (body["temperature"], body["top_logprobs"], body["reasoning_effort"]) == (0.7, 5, "none")
    for refused in (Sampling(temperature=0.7), Sampling(logprobs=5), Sampling(top_p=0.5, effort="low")):
        with pytest.raises(UsageError, match="set --effort none"):
            provider.wire(Request(ASKED.messages, refused))


def test_gpt_6_1_sol_always_reasons() -> None:
    prices = abilities("openai", "gpt-6.1-sol").prices
    assert prices is not None
    assert prices.cached == 0.10
    with pytest.raises(UsageError, match=r"effort is 'none'; openai/gpt-6\.1-sol takes low, medium, high, xhigh, max"):
        check("openai", "gpt-6.1-sol", Sampling(effort="none"))


@pytest.mark.parametrize(
    ("model", "base_url", "name"),
    [
        ("gpt-5.4-mini", AZURE, "max_completion_tokens"),
        ("gpt-5", AZURE, "max_completion_tokens"),
        ("o3-mini", "https://gateway.example/v1", "max_completion_tokens"),
        ("gpt-6-luna", "http://localhost:4000/v1", "max_completion_tokens"),
        ("gpt-4.1", AZURE, "max_tokens"),
        ("gpt-4o", None, "max_completion_tokens"),
        ("my-deployment", AZURE, "max_tokens"),
        ("Qwen/Qwen3-8B", "http://localhost:8000/v1", "max_tokens"),
        ("any", None, "max_completion_tokens"),
    ],
)
def test_the_name_of_the_limit_follows_the_model(model: str, base_url: str | None, name: str) -> None:
    """Azure answers 400 to `max_tokens` for reasoning models; the name followed the host alone."""
    body = OpenAIProvider(model, base_url, "sk-x").wire(ASKED)
    assert set(body) == {"model", "messages", name}


def test_vllm_is_asked_as_before() -> None:
    assert VLLMProvider.connect("gpt-5.4-mini", "http://localhost:8000/v1").wire(ASKED)["max_tokens"] == 9


def test_a_limit_that_was_taken_out_stays_out_of_a_roomier_question() -> None:
    body = {"input": "x", "settings": {"limit": 50, "t": 1}}
    assert with_doubled_max_tokens(body, ("settings.limit",)) == {"input": "x", "settings": {"limit": 100, "t": 1}}
    assert with_doubled_max_tokens({"settings": "all"}, ("settings.limit",)) is None
    assert body["settings"] == {"limit": 50, "t": 1}  # the request that was sent is not changed
    assert with_doubled_max_tokens({"max_tokens": None, "max_completion_tokens": 5}) == {
        "max_tokens": None,
        "max_completion_tokens": 10,
    }


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("openai/gpt-4o", {"temperature": 9.0}, "temperature is 9; openai/gpt-4o takes 0 to 2"),
    ("openai/gpt-4o", {"temperature": -0.1}, "0 to 2"),
    ("openai/gpt-4o", {"temperature": float("nan")}, "0 to 2"),
    ("openai/gpt-4o", {"top_p": 7.0}, "top_p is 7; openai/gpt-4o takes 0 to 1"),
    ("openai/gpt-4o", {"logprobs": 50}, "logprobs is 50; openai/gpt-4o takes 0 to 20"),
    ("openai/gpt-4o", {"max_tokens": -5}, "max_tokens is -5; openai/gpt-4o takes at least 1"),
    ("openai/gpt-4o", {"max_tokens": 0}, "at least 1"),
    ("openai/gpt-5.4-mini", {"effort": "hihg"}, "takes none, low, medium, high, xhigh"),
    ("anthropic/claude-haiku-5-5", {"effort": "none"}, "takes low, medium, high, xhigh, max"),
    ("openai/gpt-4o", {"stop": ("a", "b", "c", "d", "e")}, "4 at most"),
    ("openai/gpt-4o", {"stop": ("",)}, "a stop string is empty"),
    ("openai/gpt-4o", {"extra_body": {"n": 3}}, "use --samples 3"),
    ("openai/gpt-4o", {"extra_body": {"stream": True}}, "leave it out"),
    ("vllm/m", {"top_p": 1.5}, "0 to 1"),
    ("vllm/m", {"logprobs": -2}, "at least -1"),
]
TAKEN: list[tuple[str, dict[str, Any]]] = [
    ("openai/gpt-4o", {"temperature": 2.0, "top_p": 1.0, "logprobs": 20, "max_tokens": 1}),
    ("openai/my-deployment", {"effort": "a word of its own"}),
    ("openai/gpt-4o", {"extra_body": {"n": 1, "stream": False}}),
    ("vllm/m", {"temperature": 3.0, "logprobs": 100}),
    ("vllm/m", {"logprobs": -1}),
]


@pytest.mark.parametrize(("judge", "given", "says"), REFUSED)
def test_values_out_of_range_are_refused_with_the_range(judge: str, given: dict[str, Any], says: str) -> None:
    provider, _, model = judge.partition("/")
    with pytest.raises(UsageError, match=says):
        check(provider, model, Sampling(**given))


@pytest.mark.parametrize(("judge", "given"), TAKEN)
def test_values_within_the_range_are_taken(judge: str, given: dict[str, Any]) -> None:
    provider, _, model = judge.partition("/")
    check(provider, model, Sampling(**given))


@pytest.fixture(scope="module")
def server() -> Iterator[Judge]:
    with serving() as judge:
        yield judge


@pytest.mark.parametrize(
    "options", [("--temperature", "9"), ("--logprobs", "50"), ("--max-tokens", "-5"), ("--extra-body", '{"n": 3}')]
)
def test_nothing_is_sent_with_a_value_out_of_range(server: Judge, tmp_path: Path, options: tuple[str, str]) -> None:
    server.behave(Behaviour(latency=0))
    source, db = write_input(tmp_path / "in.jsonl", 2), tmp_path / "cache.db"
    line = ("label", source, "-o", tmp_path / "o.jsonl", "--db", db, "--judge", "openai/m", "--base-url", server.url)
    done = invoke(*line, *options, catch=True)
    assert isinstance(done.exception, UsageError) or done.exit_code == 2
    assert server.seen.bodies.total() == 0
    assert not db.exists()


@pytest.mark.parametrize(("model", "matches"), [("gpt5.4-mini", ""), ("gpt-5.4-minni", " (it matches gpt-5.4*)")])
def test_a_dry_run_and_a_budget_suggest_the_name(tmp_path: Path, model: str, matches: str) -> None:
    source, db = write_input(tmp_path / "in.jsonl", 2), str(tmp_path / "cache.db")
    done = invoke("label", source, "--db", db, "--judge", f"openai/{model}", "--dry-run")
    assert f"model: {model} is not in the model table{matches}; did you mean gpt-5.4-mini?\n" in done.output
    assert "cost: price unknown; give it with --prices" in done.output
    with pytest.raises(UsageError, match=r"did you mean gpt-5\.4-mini"):
        with_provider(OpenAIProvider(model, None, "sk-x"), JudgeOptions(db=tmp_path / "c.db", budget_usd=1.0))
