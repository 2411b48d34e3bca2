"""Replies of every shape: a malformed one costs its own row, whichever way it came, and lowers no count of the budget."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm.critics.llm import with_provider
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine import retries
from critic_prm.engine.batch.manager import _row
from critic_prm.engine.budget import Budget
from critic_prm.engine.cache import Attempt, Cache, Entry
from critic_prm.engine.client import Client
from critic_prm.engine.entries import PendingRequest
from critic_prm.engine.limiter import AdaptiveLimiter
from critic_prm.engine.options import JudgeOptions
from critic_prm.engine.writer import Writer
from critic_prm.errors import CriticPrmError, ProviderError
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.batches import read_result
from critic_prm.providers.models import Prices
from critic_prm.providers.openai import read_chat
from critic_prm.providers.provider import MOST_TOKENS, Message, Request, Usage, Wire, read_stored, stated_usage, token_count
from critic_prm.providers.scripted import ScriptedProvider
from critic_prm.styles.reader import read_reply


def chat(text: Any = "fine", **more: Any) -> dict[str, Any]:
    """A chat completion; `more` replaces fields of the body, or of the choice after "choice_"."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    choice |= {name.removeprefix("choice_"): value for name, value in more.items() if name.startswith("choice_")}
    body = {"model": "m", "choices": [choice], "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    return body | {name: value for name, value in more.items() if not name.startswith("choice_")}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


MALFORMED: dict[str, Mapping[str, Any]] = {
    "content a number": chat(5),
    "content an object": chat({"text": "fine"}),
    "content a list of numbers": chat([5]),
    "a part whose type is a list": chat([{"type": ["text"]}, None]),
    "no message": chat(choice_message=None),
    "choices an object": chat(choices={"0": 1}),
    "choices of texts": chat(choices=["fine"]),
    "nested more deeply than can be stored": chat(extra=nested(300)),
}

ODD_BUT_READABLE: dict[str, tuple[Mapping[str, Any], Usage]] = {
    "usage a list": (chat(usage=[1]), Usage()),
    "usage a text": (chat(usage="10"), Usage()),
    "details a text": (chat(usage={"prompt_tokens": 10, "prompt_tokens_details": "none"}), Usage(10)),
    "counts as texts": (chat(usage={"prompt_tokens": "10", "completion_tokens": "5"}), Usage(10, 5)),
    "counts as objects": (chat(usage={"prompt_tokens": {"n": 1}, "completion_tokens": [5]}), Usage()),
    "an unsigned 64-bit count": (chat(usage={"prompt_tokens": 2**63, "completion_tokens": 5}), Usage(0, 5)),
    "more than 64 bits": (chat(usage={"prompt_tokens": 2.0**80, "completion_tokens": 5}), Usage(0, 5)),
    "negative": (chat(usage={"prompt_tokens": -10, "completion_tokens": -5}), Usage()),
    "fractions": (chat(usage={"prompt_tokens": 10.5, "completion_tokens": 5.0}), Usage(0, 5)),
    "booleans": (chat(usage={"prompt_tokens": True, "completion_tokens": False}), Usage()),
    "more cached than sent": (
        chat(usage={"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 2**50}}),
        Usage(10, 0, 10),
    ),
    "more reasoning than output": (
        chat(usage={"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 50}}),
        Usage(0, 5, 0, 0, 5),
    ),
    "logprobs a text": (chat(choice_logprobs="none"), Usage(10, 5)),
    "logprobs a list": (chat(choice_logprobs=[1]), Usage(10, 5)),
    "a null logprob": (chat(choice_logprobs={"content": [{"token": "a", "logprob": None}]}), Usage(10, 5)),
    "a logprob above 0": (chat(choice_logprobs={"content": [{"token": "a", "logprob": 1e308}]}), Usage(10, 5)),
    "a token without a name": (chat(choice_logprobs={"content": [{"logprob": -1.0}]}), Usage(10, 5)),
    "alternatives of numbers": (
        chat(choice_logprobs={"content": [{"token": "a", "logprob": -1, "top_logprobs": [5]}]}),
        Usage(10, 5),
    ),
    "the model an object": (chat(model={"name": "m"}), Usage(10, 5)),
}


def request(text: str = "2+2?") -> Request:
    return Request((Message("user", text),))


def client(db: Path, script: Any, money: Budget | None = None) -> Client:
    return Client(ScriptedProvider(script), JudgeOptions(db=db, max_retries=1), AdaptiveLimiter(64, start=64), money)


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "backoff", lambda state: 0.0)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


async def test_a_malformed_reply_costs_its_own_row(db: Path) -> None:
    """One reply whose usage was a text, or whose content was a number, ended a run of 200 with a traceback."""
    bad = {f"bad: {name}": body for name, body in MALFORMED.items()}

    def script(wire: Wire) -> Any:
        return bad.get(wire["messages"][-1]["content"]) or chat()

    one = client(db, script)
    texts = [*bad, *(f"good {i}" for i in range(200))]
    answers = dict(zip(texts, await asyncio.gather(*(one.ask(request(text)) for text in texts)), strict=True))
    await one.close()
    for text, answer in answers.items():
        if text in bad:
            assert answer.failure is not None, text
            assert answer.failure.failure == "transient"
        else:
            assert answer.reply is not None
            assert answer.reply.text == "fine"
    assert sqlite3.connect(db).execute("SELECT count(*) FROM reply").fetchone() == (200,)
    assert sqlite3.connect(db).execute("SELECT count(DISTINCT key) FROM attempt").fetchone() == (len(bad),)


@pytest.mark.parametrize("name", ODD_BUT_READABLE)
async def test_what_surrounds_an_answer_may_be_odd(db: Path, name: str) -> None:
    """A count of 2**63 tokens ended the writer's thread, and the run waited for it without end."""
    body, usage = ODD_BUT_READABLE[name]
    one = client(db, lambda wire: body)
    async with asyncio.timeout(30):
        answer = await one.ask(request())
        await one.close()
    assert answer.reply is not None
    assert (answer.reply.text, answer.reply.usage, answer.reply.logprobs) == ("fine", usage, ())
    assert Cache(db).get(answer.key) is not None


@pytest.mark.parametrize(
    ("stated", "count"),
    [
        *((n, n) for n in (0, 1, MOST_TOKENS)),
        *((n, 0) for n in (MOST_TOKENS + 1, 2**64, -1, True, 0.5, float("inf"), float("nan"), -0.5, 1e300)),
        (None, 0),
        ([5], 0),
        ({}, 0),
        ("10", 10),
        ("10 ", 0),
        ("²", 0),
        ("-3", 0),
        ("9" * 5000, 0),
        (10.0, 10),
    ],
)
def test_a_token_count_is_a_whole_number_in_bounds(stated: object, count: int) -> None:
    assert token_count(stated) == count


def test_no_usage_costs_less_than_nothing() -> None:
    """Negative counts, and more cached tokens than the prompt has, could lower what a run had spent."""
    odd = (-(10**9), 2**53, 2**63, "x", None, 7)
    prices = Prices(1.0, 2.0, 0.1, 1.25)
    for a in odd:
        for b in odd:
            for c in odd:
                usage = stated_usage(a, b, c, a, b)
                cost = prices.cost(usage)
                assert usage.tier if cost is None else cost >= 0
                assert usage.cached + usage.written <= usage.input


async def test_a_budget_cannot_be_undone(db: Path) -> None:
    money = Budget(Prices(1000.0, 1000.0), budget_usd=1000.0)
    one = client(db, lambda wire: chat(usage={"prompt_tokens": -(10**6), "completion_tokens": 100}), money)
    await one.ask(request())
    await one.close()
    assert money.spent == pytest.approx(0.1)


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_body_in_the_cache_costs_its_own_row(db: Path, name: str) -> None:
    """Imported rows are not ours: the same shapes in a cache ended every later run that met them with a traceback."""
    if name.startswith("nested"):
        pytest.skip("it cannot be stored")
    one = client(db, lambda wire: chat())
    await one.ask(request())
    await one.close()
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE reply SET raw = ?, digest = NULL", (orjson.dumps(MALFORMED[name]).decode(),))
    again = client(db, lambda wire: chat())
    again.options = JudgeOptions(db=db, offline=True)
    answer = await again.ask(request())
    await again.close()
    assert again.provider.asked == []  # type: ignore[attr-defined]
    assert answer.failure is not None
    assert answer.failure.failure == "row"
    assert "the reply in the cache cannot be read" in str(answer.failure)
    assert read_stored("openai", MALFORMED[name]) is None


BROKEN_OFF = {"choices": [{"message": {"role": "assistant", "content": "Step 1 is"}, "finish_reason": "error"}], "usage": {}}


@pytest.mark.parametrize("stored", [BROKEN_OFF, {"choices": []}], ids=["broken off", "no choices"])
async def test_a_stored_answer_that_was_broken_off_is_bought_again_and_replaced(db: Path, stored: dict[str, Any]) -> None:
    """Older versions kept such answers as whole ones: they were read as failures and kept in the way of the new answer."""
    one = client(db, lambda wire: chat())
    await one.ask(request())
    await one.close()
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE reply SET raw = ?, digest = NULL", (orjson.dumps(stored).decode(),))
    found = []
    for script in (lambda wire: BROKEN_OFF, lambda wire: chat(), lambda wire: chat()):
        again = client(db, script)
        again.options = JudgeOptions(db=db, max_retries=0)
        answer = await again.ask(request())
        await again.close()
        found.append((answer.failure is None, answer.cached, len(again.provider.asked)))  # type: ignore[attr-defined]
    assert found == [(False, False, 1), (True, False, 1), (True, True, 0)]
    cache = Cache(db, readonly=True)
    assert [row["raw"] for row in cache.export()] == [chat()]
    cache.close()


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_result_of_a_batch_costs_its_own_row(name: str) -> None:
    line = {"custom_id": "a", "response": {"status_code": 200, "body": MALFORMED[name]}}
    result = read_result(line)
    assert result is not None
    row, usage, error = _row(ScriptedProvider([]), PendingRequest("k", {}, 0, ""), result)
    assert isinstance(row, Attempt)
    assert row.failure == "transient"
    assert usage == Usage()
    assert error is not None


@pytest.mark.parametrize(
    "line",
    [
        {"custom_id": "a", "error": {"code": ["batch_expired"]}},
        {"custom_id": "a", "error": {"code": {}}, "response": 5},
        {"custom_id": "a", "result": {"type": ["succeeded"]}},
        {"custom_id": "a", "result": {"type": "errored", "error": {"type": [], "error": {"type": [], "message": []}}}},
        {"custom_id": "a", "response": {"status_code": "200", "body": []}},
    ],
)
def test_a_line_of_results_of_any_shape_is_at_worst_a_failed_request(line: dict[str, Any]) -> None:
    result = read_result(line)
    assert result is not None
    assert isinstance(result.error, ProviderError)


@pytest.mark.parametrize(
    ("content", "text", "finish"),
    [
        ([{"type": "text", "text": "It is "}, {"type": "text", "text": "right."}], "It is right.", "stop"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "No."}], "No.", "stop"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "No."}, {"type": "image_url"}], "No.", "stop"),
        (["plain ", {"type": "output_text", "text": "text"}], "plain text", "stop"),
        ([{"type": "refusal", "refusal": "I cannot."}], "", "refusal"),
        ([{"type": "text", "text": None}], "", "stop"),
        ([], "", "stop"),
        (None, "", "stop"),
    ],
)
def test_content_in_parts_is_read_part_by_part(content: Any, text: str, finish: str) -> None:
    """Mistral's reasoning models answer with a list of parts, which was read as Python writes a list, thinking included."""
    reply = read_chat(chat(content))
    assert (reply.text, reply.finish) == (text, finish)


@pytest.mark.parametrize(
    "change",
    [
        {"usage": "x"},
        {"usage": {"input_tokens": 2**63, "output_tokens": "5"}},
        {"usage": {"input_tokens": 1, "output_tokens_details": []}},
        {"stop_details": "x"},
        {"model": 5},
    ],
)
def test_what_surrounds_claudes_answer_may_be_odd(change: dict[str, Any]) -> None:
    raw = {"content": [{"type": "text", "text": "fine"}], "stop_reason": "end_turn", "usage": {"input_tokens": 3}}
    reply = AnthropicProvider("m", None, None).read(raw | change)
    assert reply.text == "fine"
    assert 0 <= reply.usage.input <= MOST_TOKENS


def entry(key: str, raw: Any = None, usage: Usage = Usage()) -> Entry:
    return Entry(key, {"messages": []}, 0, "", "p", "m", None, raw or {}, "text", "stop", usage, 0.0)


async def test_one_row_that_cannot_be_written_does_not_take_the_others_with_it(db: Path) -> None:
    """The writer's thread died of an error that was not its own, and everybody waited for ever."""
    writer = Writer(lambda: Cache(db))
    rows: list[Entry | Attempt] = [
        entry("a"),
        entry("b", usage=Usage(2**63)),
        entry("c", raw=nested(300)),
        entry("d"),
        Attempt("e", "p", "m", "\ud800"),
    ]
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(writer.put(row) for row in rows), return_exceptions=True)
        await writer.put(entry("f"))
        await writer.close()
    assert [isinstance(one, CriticPrmError) for one in found] == [False, True, True, False, True]
    assert Cache(db).known(list("abcdef")) == {"a", "d", "f"}


class Ending(BaseException):
    """What no handler for errors takes for one."""


async def test_a_writer_that_has_ended_turns_every_row_away_at_once(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*parts: Any) -> None:
        raise Ending("the thread is gone")

    monkeypatch.setattr(Cache, "add", end)
    writer = Writer(lambda: Cache(db))
    async with asyncio.timeout(30):
        found = await asyncio.gather(*(writer.put(entry(str(i))) for i in range(600)), return_exceptions=True)
        assert all(isinstance(one, CriticPrmError) and "Ending" in str(one) for one in found)
        with pytest.raises(CriticPrmError, match="the thread is gone"):
            await writer.put(entry("later"))
        await writer.close()


async def test_a_reply_longer_than_any_judgement_is_kept_and_not_read(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader took six seconds for 100,000 verdicts, in which nothing else moved; a follow-up would send it all back."""
    monkeypatch.setattr("critic_prm.critics.llm.LONGEST", 1000)
    monkeypatch.setattr("critic_prm.styles.reader.LONGEST", 1000)
    provider = ScriptedProvider(lambda wire: chat("Step 1 is \\boxed{correct}\n" * 100))
    critic = with_provider(provider, JudgeOptions(db=db))
    [found] = await critic.judge([Trajectory("a", "2+2?", (Step("4"),))])
    await critic.close()
    assert found.status == "unparseable"
    assert "2,600 characters" in found.notes[0]
    assert len(provider.asked) == 1


async def test_a_long_reply_is_read_in_a_thread(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def read(style: Any, expected: Any, reply: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return read_reply(style, expected, reply)

    monkeypatch.setattr("critic_prm.critics.llm.read_reply", read)
    texts = ["The step is \\boxed{correct}", "so " * 30_000 + "the step is \\boxed{correct}"]
    critic = with_provider(ScriptedProvider([chat(text) for text in texts]), JudgeOptions(db=db))
    for sample in range(2):
        await critic.judge([Trajectory("a", "2+2?", (Step("4"),))], sample)
    await critic.close()
    assert threads[0] is True
    assert not any(threads[1:])
