"""Every body that is sent is valid by the SDKs' own types: all styles, providers and options, unknown fields being errors.

Fields that only vLLM has are taken out by name first; what is left is a Chat Completions body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any, get_args, get_origin

import orjson
import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from critic_prm.critics.conversation import Conversation, FollowUps, next_follow_up
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.providers.anthropic import AnthropicBatches, AnthropicProvider
from critic_prm.providers.openai import OpenAIBatches, OpenAIProvider
from critic_prm.providers.provider import Provider, Reply, Request, Sampling, Wire
from critic_prm.providers.vllm import VLLMProvider
from critic_prm.styles.prompt import expectations, open_style, question, render, style_names
from critic_prm.styles.reader import read_reply

VLLM_ONLY = ("structured_outputs", "continue_final_message", "add_generation_prompt", "chat_template_kwargs", "top_k", "min_p")
PICTURE = "data:image/png;base64,iVBORw0KGgo="
TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object", "properties": {}}}}
SOLUTION = Trajectory(
    "t", "What is 2 + 2?", (Step("2 + 2 = 5.", "5"), Step("So it is 5.")), gold_answer="4", images=(PICTURE,), tools=(TOOL,)
)


def openai(model: str) -> Provider:
    return OpenAIProvider(model, None, "sk")


def elsewhere(model: str) -> Provider:
    return OpenAIProvider(model, "http://127.0.0.1:1/v1", "sk")


def vllm(model: str) -> Provider:
    return VLLMProvider(model, "http://127.0.0.1:1/v1", OpenAIProvider(model, "http://127.0.0.1:1/v1", "none", name="vllm"))


def claude(model: str) -> Provider:
    return AnthropicProvider(model, None, "sk")


Opened = tuple[Callable[[str], Provider], str]
CHAT: dict[str, Opened] = {
    "gpt-4o": (openai, "gpt-4o"),
    "gpt-5.4-mini": (openai, "gpt-5.4-mini"),
    "gpt-6-luna": (openai, "gpt-6-luna"),
    "another server": (elsewhere, "local"),
    "vllm": (vllm, "local"),
}
CLAUDE: dict[str, Opened] = {"claude-haiku-5-5": (claude, "claude-haiku-5-5"), "claude-opus-5": (claude, "claude-opus-5")}
JUDGES = CHAT | CLAUDE

OPTIONS: dict[str, Sampling] = {
    "nothing": Sampling(),
    "max_tokens": Sampling(max_tokens=512),
    "stop": Sampling(stop=("END", "</verdict>")),
    "effort": Sampling(effort="low"),
    "temperature, top_p, seed": Sampling(temperature=0.7, top_p=0.9, seed=3),
    "logprobs": Sampling(logprobs=5),
    "service_tier": Sampling(extra_body={"service_tier": "auto"}),
    "everything": Sampling(temperature=0.7, top_p=0.9, seed=3, max_tokens=512, stop=("END",), logprobs=5, effort="none"),
}


@cache
def validator(dialect: str) -> TypeAdapter[Any]:
    """The SDK's own type of a body, in which no unknown field is allowed at any depth."""
    if dialect == "anthropic":
        from anthropic.types.message_create_params import MessageCreateParamsNonStreaming

        return TypeAdapter(strictly(MessageCreateParamsNonStreaming))
    from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

    return TypeAdapter(strictly(CompletionCreateParamsNonStreaming))


@pytest.fixture(scope="module", autouse=True)
def _types_as_they_were() -> Iterator[None]:
    """`strictly` configures the SDKs' types; they are as before afterwards."""
    yield
    for kind in _configured:
        del kind.__pydantic_config__
    _configured.clear()
    validator.cache_clear()


_configured: list[Any] = []


def strictly(kind: Any) -> Any:
    """`kind` with unknown fields forbidden in it and in all the typed dictionaries it is made of."""
    from typing import get_type_hints

    waiting, seen = [kind], set[Any]()
    while waiting:
        one = waiting.pop()
        if is_typeddict(one):
            if one in seen:
                continue
            seen.add(one)
            if not hasattr(one, "__pydantic_config__"):
                one.__pydantic_config__ = ConfigDict(extra="forbid")
                _configured.append(one)
            waiting += get_type_hints(one).values()
        elif get_origin(one) is not None:
            waiting += get_args(one)
    return kind


def violations(wire: Wire, dialect: str) -> list[str]:
    body = {name: value for name, value in orjson.loads(orjson.dumps(wire)).items() if name not in VLLM_ONLY}
    try:
        exhaust(validator(dialect).validate_python(body))
    except ValidationError as error:
        return [f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors()]
    return []


def exhaust(value: Any) -> None:
    """Read all of a validated value: pydantic checks the items of an Iterable only as they are taken."""
    if isinstance(value, dict):
        for inner in value.values():
            exhaust(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inner in value:
            exhaust(inner)


def able(provider: Provider, sampling: Sampling) -> Sampling:
    """`sampling` without what the model is known not to take."""
    from critic_prm.errors import UsageError

    for left_out in ((), ("temperature", "top_p", "seed"), ("logprobs",), ("temperature", "top_p", "seed", "logprobs")):
        nothing: dict[str, Any] = dict.fromkeys(left_out)
        asked = replace(sampling, **nothing)
        if left_out and provider.name == "anthropic":
            asked = replace(asked, effort=None if asked.effort == "none" else asked.effort)
        try:
            provider.wire(Request((), asked))
        except UsageError:
            continue
        return asked
    raise AssertionError("the model takes nothing at all")


def conversations(provider: Provider, style_name: str, sampling: Sampling) -> Iterator[tuple[Request, bool]]:
    """(request, whether its whole prompt is asked again) of all kinds: first questions with and without schema and reference
    answer, questions that say what was wrong, answers forced from a cut reply, further rounds of thinking."""
    style = open_style(style_name)
    expected = expectations(style, SOLUTION)[-1]
    asked = question(style, SOLUTION, expected.step)
    marks = "cache-markers" in provider.capabilities
    for reference, wanted, whole in product((False, True), (None, asked.schema), (False, True) if marks else (False,)):
        shown = SOLUTION if reference else replace(SOLUTION, images=())
        messages = question(style, shown, expected.step, reference=reference).messages
        yield Request(messages, sampling, wanted), whole
        if marks:
            cut = replace(messages[-1], shared=(messages[-1].content.rfind("\n") + 1,))
            yield Request((*messages[:-1], cut), sampling, wanted), whole
    can_continue = "continue" in provider.capabilities
    for text, finish in (("Nothing that can be read.", "stop"), ("Step 1: it says", "length"), *GOOD):
        talk = Conversation(asked.messages).with_reply(Reply(text, finish, {}))  # type: ignore[arg-type]
        reading = read_reply(style, expected, talk.reply)
        turn = next_follow_up(talk, reading, asked, FollowUps(think_rounds=2), can_continue)
        if turn is not None:
            yield turn.conversation.request(sampling, asked.schema), False


GOOD = tuple(
    (text, "stop")
    for text in (
        "Step 1: wrong.\nThe step is \\boxed{incorrect}",
        "It is wrong.\nVerdict: incorrect",
        "It is wrong.\nIs the step correct? No",
        "Paragraph 0: wrong.\n\\boxed{0}",
        '{"steps": [{"critique": "wrong", "verdict": "incorrect"}]}',
    )
)


@pytest.mark.parametrize("style", style_names())
@pytest.mark.parametrize("judge", JUDGES)
def test_every_body_is_what_the_sdk_would_send(judge: str, style: str) -> None:
    open_provider, model = JUDGES[judge]
    provider = open_provider(model)
    dialect = "anthropic" if judge in CLAUDE else "openai"
    kinds, sent = set(), 0
    for option, sampling in OPTIONS.items():
        for request, whole in conversations(provider, style, able(provider, sampling)):
            wire = provider.wire(request)
            bodies = [wire, provider.marked(wire, request, whole).wire]
            for body in bodies:
                assert violations(body, dialect) == [], (option, orjson.dumps(body).decode()[-400:])
                sent += 1
            kinds.add(len(request.messages))
    assert sent >= 5 * len(OPTIONS)
    assert len(kinds) > 1, "follow-ups are among them"


@pytest.mark.parametrize("judge", [name for name in JUDGES if name not in ("another server", "vllm")])
def test_lines_of_a_batch_hold_valid_bodies(judge: str) -> None:
    open_provider, model = JUDGES[judge]
    provider = open_provider(model)
    wire = provider.wire(Request(render(open_style("stepwise"), SOLUTION), Sampling(max_tokens=9)))
    if judge in CLAUDE:
        line = orjson.loads(AnthropicBatches(lambda: None).line("id-1", wire))  # type: ignore[arg-type, return-value]
        assert set(line) == {"custom_id", "params"}
        assert violations(line["params"], "anthropic") == []
    else:
        line = orjson.loads(OpenAIBatches(lambda: None).line("id-1", wire))  # type: ignore[arg-type, return-value]
        assert (line["method"], line["url"]) == ("POST", "/v1/chat/completions")
        assert violations(line["body"], "openai") == []


@pytest.mark.parametrize(
    ("dialect", "change", "said"),
    [
        ("openai", {"guided_json": {}}, "guided_json"),
        ("openai", {"messages": [{"role": "user", "content": "x", "cache_control": {}}]}, "cache_control"),
        ("openai", {"temperature": "warm"}, "temperature"),
        ("openai", {"response_format": {"type": "json_schema"}}, "response_format"),
        ("anthropic", {"temperature": 0.5}, "temperature"),
        ("anthropic", {"output_config": {"effort": "enormous"}}, "effort"),
        ("anthropic", {"messages": [{"role": "user", "content": [{"type": "text", "txt": "x"}]}]}, "txt"),
        ("anthropic", {"system": [{"type": "text", "text": "x", "cache_control": {"type": "for ever"}}]}, "type"),
    ],
)
def test_a_wrong_body_is_noticed(dialect: str, change: dict[str, Any], said: str) -> None:
    """The check itself: what must not pass, unknown fields inside messages among it, does not."""
    provider = claude("claude-haiku-5-5") if dialect == "anthropic" else openai("gpt-4o")
    wire = provider.wire(Request(render(open_style("stepwise"), SOLUTION)))
    assert violations(wire, dialect) == []
    found = violations(wire | change, dialect)
    assert found
    assert any(said in one for one in found)
