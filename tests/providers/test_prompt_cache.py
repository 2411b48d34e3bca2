"""Claude's prompt cache: what is marked, that the key stays as it was, and what a server that follows the rule then reads."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.claude_cache import REPLIES, Case, PromptCache, Refused, Unmarked, agent_run, measure, solution
from critic_prm.engine.cache import Cache
from critic_prm.engine.entries import PendingRequest, Sharing
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.models import abilities
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import Message, Request, Sampling, request_key
from critic_prm.styles.prompt import open_style, questions, style_names

MARK = {"cache_control": {"type": "ephemeral"}}


def claude(model: str = "claude-haiku-5-5") -> AnthropicProvider:
    return AnthropicProvider(model, None, "sk-secret-key")


def asked(text: str, *shared: int, images: tuple[str, ...] = (), extra: dict[str, Any] | None = None) -> Request:
    messages = (Message("system", "judge"), Message("user", text, images, shared))
    return Request(messages, Sampling(extra_body=extra or {}))


def bare(body: Any) -> Any:
    """A body without markers and with adjacent text blocks joined, in the shape that goes into a key."""
    messages = []
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, list):
            rest = [{k: v for k, v in block.items() if k != "cache_control"} for block in content if block["type"] != "text"]
            text = "".join(block["text"] for block in content if block["type"] == "text")
            content = [{"type": "text", "text": text}, *rest] if rest else text
        messages.append({**message, "content": content})
    return {**body, "messages": messages}


def test_markers_stand_where_later_requests_share_the_text_and_not_in_the_key() -> None:
    request = asked("task\nstep one\nstep two\nJudge.", 14, 23)
    wire = claude().wire(request)
    assert wire == claude().wire(asked("task\nstep one\nstep two\nJudge."))
    assert wire["messages"] == [{"role": "user", "content": "task\nstep one\nstep two\nJudge."}]
    assert claude().marked(wire, request).wire["messages"][0]["content"] == [
        {"type": "text", "text": "task\nstep one\n", **MARK},
        {"type": "text", "text": "step two\n", **MARK},
        {"type": "text", "text": "Judge."},
    ]


def test_paid_replies_are_found_under_the_keys_they_were_kept_under() -> None:
    body = {
        "model": "claude-haiku-5-5",
        "max_tokens": 8192,
        "messages": [{"role": "user", "content": "2+2?"}],
        "system": [{"type": "text", "text": "judge", "cache_control": {"type": "ephemeral"}}],
    }
    for request in (asked("2+2?"), asked("2+2?", 2)):
        assert request_key(claude().wire(request)) == request_key(body)


def test_all_of_a_prompt_that_is_sent_again_is_marked_pictures_included() -> None:
    picture = "data:image/png;base64,AAAA"
    request = asked("look", images=(picture,))
    wire = claude().wire(request)
    assert claude().marked(wire, request).wire == wire
    blocks = claude().marked(wire, request, whole=True).wire["messages"][0]["content"]
    assert [block.get("cache_control") for block in blocks] == [None, {"type": "ephemeral"}]
    text = asked("look")
    assert claude().marked(claude().wire(text), text, whole=True).wire["messages"][0]["content"][0] == {
        "type": "text",
        "text": "look",
        **MARK,
    }


@pytest.mark.parametrize("extra", [{"cache_control": {"type": "ephemeral"}}, {"messages": [{"role": "user", "content": "x"}]}])
def test_markers_of_the_users_own_are_left_alone(extra: dict[str, Any]) -> None:
    request = asked("a\nb", 2, extra=extra)
    wire = claude().wire(request)
    assert claude().marked(wire, request, whole=True).wire == wire


@pytest.mark.parametrize(("text", "shared"), [("\n\nstep\nJudge.", (2, 7)), ("step\n\n \n", (5,)), ("step\n \nJudge", (5, 7))])
def test_no_block_is_blank(text: str, shared: tuple[int, ...]) -> None:
    request = asked(text, *shared)
    blocks = claude().marked(claude().wire(request), request).wire["messages"][0]["content"]
    assert all(block["text"].strip() for block in blocks) if isinstance(blocks, list) else True


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5-5", 512),
        ("claude-sonnet-5-5", 512),
        ("claude-haiku-5-5", 512),
        ("claude-opus-5", 512),
        ("claude-fable-5", 512),
        ("claude-fable-5-1", 512),
        ("claude-sonnet-5", 1024),
        ("claude-sonnet-4-6", 1024),
        ("claude-sonnet-4-5-20250929", 1024),
        ("claude-opus-4-8", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-6", 4096),
        ("claude-opus-4-5", 4096),
        ("claude-haiku-4-5", 4096),
        ("claude-unheard-of", None),
    ],
)
def test_the_minimum_is_the_models_own(model: str, minimum: int | None) -> None:
    assert abilities("anthropic", model).cached_from == minimum
    tokens = minimum or 4096
    for length, named in ((4 * tokens - 6, False), (4 * tokens, True)):  # "judge" has 5 characters
        request = asked("x" * length + "\nJudge", length)
        assert bool(claude(model).marked(claude(model).wire(request), request).prefix) is named


@pytest.mark.parametrize("name", style_names())
def test_questions_in_turn_are_the_same_questions_and_cut_alike(name: str) -> None:
    style, trajectory = open_style(name), agent_run(12)
    turns = list(questions(style, trajectory, shared=True))
    uncut = [replace(asked, messages=tuple(replace(message, shared=()) for message in asked.messages)) for asked in turns]
    assert uncut == list(questions(style, trajectory))
    texts = [(asked.messages[-1].content, asked.messages[-1].shared) for asked in turns]
    for (text, shared), (following, cuts) in pairwise(texts):
        assert shared
        assert shared[-1] > len(text) - 600, "all but the question itself is shared"
        assert following[: shared[-1]] == text[: shared[-1]]
        assert cuts[: len(shared)] == shared or cuts == shared, "earlier blocks stay as they were"


def test_a_template_that_shares_nothing_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "own.jinja"
    path.write_text(
        "{# reader: verdict-line | per: step #}\n{% block system %}{{ asked.number }}{% endblock %}\n"
        "{% block user %}{{ problem }}\n{{ asked.text }}{% endblock %}\n"
    )
    turns = list(questions(open_style(path), agent_run(3), shared=True))
    assert [asked.messages[-1].shared for asked in turns] == [(), (), ()]


def test_other_providers_send_what_they_sent() -> None:
    whole = (Message("system", "judge"), Message("user", "a\nb"))
    cut = (whole[0], replace(whole[1], shared=(2,)))
    chat = OpenAIProvider("gpt-4o", None, "sk")
    assert chat.wire(Request(cut)) == chat.wire(Request(whole))
    question = PendingRequest("key", chat.wire(Request(cut)), 0, "", request=Request(cut), whole=True)
    assert question.marked(chat).wire is question.wire


def test_most_of_an_agents_run_is_read_from_the_cache() -> None:
    """The long part of the prompts, which every question about a run repeats, was never marked: nothing of it was read."""
    case = Case("agent", "agent", (agent_run(),))
    before, _ = asyncio.run(measure("claude-sonnet-5", case, Unmarked))
    after, bodies = asyncio.run(measure("claude-sonnet-5", case))
    assert before.cached == 0
    assert after.input == pytest.approx(before.input, abs=20)
    assert after.cached > 0.85 * after.input
    assert len(bodies) == 20
    prices = abilities("anthropic", "claude-sonnet-5").prices
    assert prices is not None
    now, then = (prices.cost(replace(used, output=0)) for used in (after, before))
    assert now is not None
    assert then is not None
    assert now < 0.3 * then
    first = bare(bodies[0])
    assert isinstance(first["messages"][0]["content"], str)


def test_the_first_of_several_samples_goes_alone_and_the_others_read_what_it_wrote() -> None:
    case = Case("samples", "stepwise", (solution(1, 30),), samples=6)
    usage, bodies = asyncio.run(measure("claude-haiku-5-5", case))
    each = usage.input // 6
    assert len(bodies) == 6
    assert usage.written <= each, "one request writes"
    assert usage.cached >= 5 * (each - 20), "the others read"


def test_a_single_sample_of_a_whole_solution_writes_nothing_that_nobody_reads() -> None:
    case = Case("one", "stepwise", (solution(1, 30),))
    _, bodies = asyncio.run(measure("claude-haiku-5-5", case))
    assert isinstance(bodies[0]["messages"][0]["content"], str)


def test_replies_of_earlier_versions_are_not_bought_again(tmp_path: Path) -> None:
    from bench.claude_cache import serving
    from critic_prm.critics.llm import with_provider
    from critic_prm.engine.options import JudgeOptions

    async def run(kind: type[AnthropicProvider]) -> tuple[int, int]:
        async with serving(PromptCache(512), REPLIES["agent"]) as (url, seen):
            judging = JudgeOptions(style="agent", db=tmp_path / "cache.db", base_url=url)
            critic = with_provider(kind("claude-haiku-5-5", url, "key"), judging)
            await critic.judge([agent_run(5)])
            counts = critic.client.counts["paid"], len(seen.bodies)
            await critic.close()
            return counts

    assert asyncio.run(run(Unmarked)) == (5, 5)
    assert asyncio.run(run(AnthropicProvider)) == (0, 0)
    stored = [row["wire"] for row in Cache(tmp_path / "cache.db").export()]
    assert all(isinstance(wire["messages"][0]["content"], str) for wire in stored)


async def test_those_that_wait_go_on_when_the_first_fails() -> None:
    sharing, order = Sharing(), []
    request = asked("x" * 20000)
    question = PendingRequest("key", claude().wire(request), 0, "", request=request)

    async def ask(name: str, *, fails: bool = False) -> None:
        async with sharing.turn(claude(), question) as turned:
            assert turned.whole
            order.append(name)
            await asyncio.sleep(0)
            if fails:
                raise OSError("lost")

    outcomes = await asyncio.gather(ask("first", fails=True), ask("second"), ask("third"), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OSError, type(None), type(None)]
    assert order == ["first", "second", "third"]
    assert not sharing._first
    assert not sharing._alike


def test_the_servers_rule() -> None:
    """The benchmark's server: minimum, lookback of 20 blocks, 4 markers, 5 minutes."""
    now = [0.0]
    cache = PromptCache(100, clock=lambda: now[0])

    def body(texts: list[str], *marked: int) -> dict[str, Any]:
        blocks = [{"type": "text", "text": text} | (MARK if place in marked else {}) for place, text in enumerate(texts)]
        return {"model": "m", "messages": [{"role": "user", "content": blocks}]}

    def send(texts: list[str], *marked: int) -> tuple[int, int]:
        used, entries = cache.use(body(texts, *marked))
        cache.begin(entries)
        return used["cache_read_input_tokens"], used["cache_creation_input_tokens"]

    long = "a" * 700
    assert send(["short", "end"], 0) == (0, 0)
    assert send([long, "end"], 0) == (0, 200)
    assert send([long, "other"], 0) == (200, 0)
    assert send([long, "other"]) == (0, 0)
    assert send([long, *map(str, range(19))], 19)[0] == 200
    now[0] += 301
    assert send([long, "end"], 0) == (0, 200)
    assert send([long, *map(str, range(30, 50))], 20)[0] == 0, "21 blocks from the marker"
    with pytest.raises(Refused, match="maximum of 4"):
        cache.use(body(["a"] * 5, 0, 1, 2, 3, 4))
    assert orjson.dumps(body(["a"]))
