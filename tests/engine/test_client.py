"""The client: what is asked, what is kept, what is tried again, and what stops the whole run."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from critic_prm.engine import retries
from critic_prm.engine.budget import Budget
from critic_prm.engine.cache import Cache
from critic_prm.engine.client import Client
from critic_prm.engine.limiter import AdaptiveLimiter
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, Failure, Interrupted, ProviderError
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Message, RawReply, Request, Sampling, Usage, Wire
from critic_prm.providers.scripted import ScriptedProvider
from tests.effort import PATIENCE, until_async

GOOD = {"text": "fine", "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
Script = Callable[[Wire], Any]


def question(text: str = "2+2?", **sampling: Any) -> Request:
    return Request((Message("user", text),), Sampling(**sampling))


def fails(failure: Failure, status: int | None = None) -> ProviderError:
    return ProviderError(f"made to fail: {failure}", failure, status=status)


@pytest.fixture(autouse=True)
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between tries take no time here."""
    monkeypatch.setattr(retries, "backoff", lambda state: 0.0)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


def client(db: Path, script: Any, money: Budget | None = None, places: int = 64, **options: Any) -> Client:
    turns: Iterator[Any] = iter(script) if isinstance(script, list) else iter(())
    ask: Script = script if callable(script) else lambda wire: next(turns)
    return Client(ScriptedProvider(ask), JudgeOptions(db=db, **options), AdaptiveLimiter(places, start=places), money)


def asked(one: Client) -> int:
    assert isinstance(one.provider, ScriptedProvider)
    return len(one.provider.asked)


def attempts(db: Path) -> list[str]:
    return [row[0] for row in sqlite3.connect(db).execute("SELECT failure FROM attempt ORDER BY id")]


async def test_a_reply_is_bought_once_and_kept(db: Path) -> None:
    one = client(db, [GOOD])
    first, second = await one.ask(question()), await one.ask(question())
    assert (first.reply and first.reply.text, first.cached, first.usage.input) == ("fine", False, 10)
    assert (second.reply and second.reply.text, second.cached, second.usage) == ("fine", True, Usage())
    await one.close()
    again = client(db, [])
    assert (await again.ask(question())).cached
    await again.close()


async def test_a_reply_is_durable_before_it_counts(db: Path) -> None:
    one = client(db, [GOOD])
    answer = await one.ask(question())
    assert Cache(db, readonly=True).get(answer.key)
    await one.close()


async def test_equal_requests_on_their_way_are_one(db: Path) -> None:
    one = client(db, [GOOD])
    answers = await asyncio.gather(*(one.ask(question()) for _ in range(20)))
    assert asked(one) == 1
    assert one.counts["shared"] == 19
    assert len({answer.key for answer in answers}) == 1
    await one.close()


async def test_samples_are_bought_apart(db: Path) -> None:
    one = client(db, [GOOD] * 3)
    keys = {(await one.ask(question(), sample)).key for sample in range(3)}
    assert (len(keys), asked(one)) == (3, 3)
    await one.close()


class Slow(ScriptedProvider):
    """Answers when told to."""

    def __init__(self) -> None:
        super().__init__([GOOD])
        self.go = asyncio.Event()

    async def complete(self, wire: Wire) -> RawReply:
        await self.go.wait()
        return await super().complete(wire)


async def test_when_the_one_who_asked_gives_up_the_next_one_asks(db: Path) -> None:
    provider = Slow()
    one = Client(provider, JudgeOptions(db=db), AdaptiveLimiter(4))
    first, second = asyncio.create_task(one.ask(question())), asyncio.create_task(one.ask(question()))
    await until_async(lambda: one.gate.out == 1)
    first.cancel()
    provider.go.set()
    answer = await second
    assert answer.reply
    assert answer.reply.text == "fine"
    await one.close()


async def test_an_error_that_is_a_bug_reaches_all_who_wait(db: Path) -> None:
    def broken(wire: Wire) -> Any:
        raise ZeroDivisionError

    one = client(db, broken)
    found = await asyncio.gather(one.ask(question()), one.ask(question()), return_exceptions=True)
    assert [type(error) for error in found] == [ZeroDivisionError, ZeroDivisionError]
    await one.close()


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_an_answer_that_is_not_whole_is_asked_again_kept_as_attempt_and_never_served(db: Path, finish: str) -> None:
    cut = {"text": "Step 1: I", "finish": finish, "usage": {"completion_tokens": 3}}
    one = client(db, [cut, cut])
    answer = await one.ask(question())
    assert answer.reply
    assert answer.reply.finish in ("length", "filter")
    assert answer.usage.output == 6  # both were paid for
    assert asked(one) == 2
    await one.close()
    assert len(attempts(db)) == 2
    again = client(db, [GOOD])
    answer = await again.ask(question())
    assert answer.reply
    assert answer.reply.text == "fine"
    await again.close()


async def test_an_empty_answer_is_no_answer(db: Path) -> None:
    """A judge whose tokens all went into reasoning comes back with nothing: that is no verdict."""
    one = client(db, [{"text": "  "}, GOOD])
    answer = await one.ask(question())
    assert answer.reply
    assert answer.reply.text == "fine"
    await one.close()
    assert attempts(db) == ["empty"]


async def test_a_cut_answer_is_asked_for_with_twice_the_room_and_found_there_again(db: Path) -> None:
    def script(wire: Wire) -> Any:
        return GOOD if wire["max_tokens"] >= 200 else {"text": "Step", "finish": "length"}

    one = client(db, script)
    answer = await one.ask(question(max_tokens=100))
    assert answer.reply
    assert answer.reply.text == "fine"
    await one.close()
    again = client(db, [])
    later = await again.ask(question(max_tokens=100))
    assert (later.cached, later.key) == (True, answer.key)
    await again.close()


async def test_more_room_than_the_server_grants_leaves_the_cut_answer(db: Path) -> None:
    def script(wire: Wire) -> Any:
        return fails("run", 400) if wire["max_tokens"] > 100 else {"text": "Step", "finish": "length"}

    one = client(db, script)
    answer = await one.ask(question(max_tokens=100))
    assert answer.reply
    assert answer.reply.finish == "length"
    assert (await one.ask(question("other", max_tokens=50))).reply  # and the run goes on
    await one.close()


async def test_what_may_pass_is_tried_again(db: Path) -> None:
    one = client(db, [fails("transient"), fails("throttle"), fails("transient"), GOOD])
    assert (await one.ask(question())).reply
    assert attempts(db) == ["transient", "throttle", "transient"]
    await one.close()


async def test_a_request_that_fails_while_others_pass_is_given_up(db: Path) -> None:
    def script(wire: Wire) -> Any:
        return fails("transient", 500) if "bad" in str(wire) else GOOD

    one = client(db, script, max_retries=3)
    bad = asyncio.create_task(one.ask(question("bad")))
    for i in range(50):
        await one.ask(question(str(i)))
    answer = await bad
    assert answer.failure
    assert answer.reply is None
    assert attempts(db).count("transient") == 4
    await one.close()


async def test_a_bad_row_is_not_tried_again(db: Path) -> None:
    one = client(db, [fails("row", 413)])
    answer = await one.ask(question())
    assert answer.failure
    assert asked(one) == 1
    await one.close()


@pytest.mark.parametrize(("failure", "error"), [("run", ConfigError), ("quota", BudgetError)])
async def test_what_fails_for_all_stops_the_run_at_once(db: Path, failure: Failure, error: type[CriticPrmError]) -> None:
    """A refused key, an unknown model or an empty account: one round trip, and everything that waits is turned away."""
    one = client(db, lambda wire: fails(failure), places=4)
    found = await asyncio.gather(*(one.ask(question(str(i))) for i in range(100)), return_exceptions=True)
    assert all(isinstance(each, error) for each in found)
    assert asked(one) <= 4
    with pytest.raises(error):
        await one.ask(question("later"))
    await one.close()


async def test_after_a_stop_what_is_cached_is_still_there(db: Path) -> None:
    one = client(db, [GOOD, fails("run", 401)])
    await one.ask(question())
    with pytest.raises(ConfigError):
        await one.ask(question("other"))
    assert (await one.ask(question())).cached
    await one.close()


async def test_requests_refused_from_the_first_one_on_stop_the_run(db: Path) -> None:
    """A parameter that the model does not take is a 400 on every row: no run of 10,000 of them."""
    one = client(db, lambda wire: fails("row", 400))
    found = await asyncio.gather(*(one.ask(question(str(i))) for i in range(500)), return_exceptions=True)
    assert any(isinstance(each, ConfigError) and "all refused" in str(each) for each in found)
    assert asked(one) <= 64 + retries.REFUSED
    await one.close()


async def test_some_bad_rows_among_good_ones_do_not(db: Path) -> None:
    one = client(db, lambda wire: fails("row", 400) if "bad" in str(wire) else GOOD)
    await one.ask(question("good"))
    found = await asyncio.gather(*(one.ask(question(f"bad {i}")) for i in range(100)))
    assert all(answer.failure for answer in found)
    await one.close()


async def test_a_server_that_is_down_stops_the_run(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "STILLBORN", 0.0)
    one = client(db, lambda wire: fails("transient"))
    found = await asyncio.gather(*(one.ask(question(str(i))) for i in range(100)), return_exceptions=True)
    assert any(isinstance(each, ConfigError) and "all failed" in str(each) for each in found)
    await one.close()


async def test_offline_sends_nothing(db: Path) -> None:
    Cache(db).close()
    one = client(db, [GOOD], offline=True)
    answer = await one.ask(question())
    assert answer.failure
    assert asked(one) == 0
    await one.close()


async def test_an_answer_that_does_not_come_is_a_failure(db: Path) -> None:
    one = Client(Slow(), JudgeOptions(db=db, max_retries=0, timeout=0.02), AdaptiveLimiter(4))
    answer = await one.ask(question())
    assert answer.failure
    assert "no answer within 0.02 s" in str(answer.failure)
    await one.close()


async def test_halting_lets_out_who_waits_and_brings_in_who_is_out(db: Path) -> None:
    provider = Slow()
    one = Client(provider, JudgeOptions(db=db), AdaptiveLimiter(2, fixed=True))
    asking = [asyncio.create_task(one.ask(question(str(i)))) for i in range(5)]
    await until_async(lambda: one.gate.out == 2)
    one.halt(Interrupted())
    provider.go.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [isinstance(each, Interrupted) for each in found] == [False, False, True, True, True]
    await one.close()
    assert Cache(db, readonly=True).count()["models"][0]["replies"] == 2


async def test_a_request_that_rests_does_not_outlast_the_run(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "backoff", lambda state: 3600.0)
    one = client(db, lambda wire: fails("transient"))
    asking = asyncio.create_task(one.ask(question()))
    await until_async(lambda: one.resting)
    one.halt(Interrupted())
    with pytest.raises(Interrupted):
        await asyncio.wait_for(asking, PATIENCE)
    await one.close()


async def test_max_requests_is_never_passed(db: Path) -> None:
    one = client(db, lambda wire: GOOD, money=Budget(max_requests=7))
    found = await asyncio.gather(*(one.ask(question(str(i))) for i in range(30)), return_exceptions=True)
    assert asked(one) == 7
    assert sum(not isinstance(each, BaseException) for each in found) == 7
    assert sum(isinstance(each, BudgetError) for each in found) == 23
    await one.close()


async def test_a_budget_in_dollars_holds_with_many_in_flight_and_is_nearly_used_up(db: Path) -> None:
    def script(wire: Wire) -> Mapping[str, Any]:
        tokens = 10 + int(wire["messages"][-1]["content"]) % 40
        return {"text": "fine", "usage": {"prompt_tokens": 20, "completion_tokens": tokens}}

    money = Budget(Prices(input=1.0, output=100.0), budget_usd=0.2)
    one = client(db, script, money=money)
    requests = (one.ask(question(str(i), max_tokens=50)) for i in range(400))
    await asyncio.gather(*requests, return_exceptions=True)
    assert 0.19 < money.spent <= 0.2
    await one.close()


async def test_a_budget_too_small_for_one_request_says_so(db: Path) -> None:
    one = client(db, [GOOD], money=Budget(Prices(1.0, 100.0), budget_usd=0.01))
    with pytest.raises(BudgetError, match=r"may cost up to \$0.80"):
        await one.ask(question(max_tokens=8000))
    assert asked(one) == 0
    await one.close()


async def test_the_cost_of_answers_that_came_to_nothing_counts(db: Path) -> None:
    cut = {"text": "Step", "finish": "length", "usage": {"prompt_tokens": 0, "completion_tokens": 1_000_000}}
    one = client(db, [cut, cut], money=Budget(Prices(1.0, 2.0)))
    await one.ask(question())
    assert one.money.cost() == pytest.approx(4.0)
    await one.close()


async def test_a_disk_that_is_full_stops_the_run(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = client(db, lambda wire: GOOD)
    await one.ask(question("before"))

    def full(self: Cache, *rows: Any) -> None:
        from critic_prm.engine.cache import _unusable

        raise _unusable(db, sqlite3.OperationalError("database or disk is full"))

    monkeypatch.setattr(Cache, "add", full)
    with pytest.raises(CriticPrmError, match="disk is full; make room"):
        await one.ask(question("after"))
    with pytest.raises(CriticPrmError, match="disk is full"):
        await one.ask(question("later"))
    await one.close()
