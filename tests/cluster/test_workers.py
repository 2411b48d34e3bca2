"""The worker actor without Ray: nothing is done twice, and errors keep their class."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from critic_prm.engine.options import RayOptions
from critic_prm.engine.ray import workers
from critic_prm.engine.ray.workers import Pool, Worker, WorkerActor, WorkerLost, failure, result_of
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, InputError, ProviderError
from tests.effort import until_async


@dataclass
class Doubling:
    """Doubles numbers; never returns from None, fails at a text."""

    seen: list[Any] = field(default_factory=list)
    cancelled: int = 0

    async def do(self, item: Any) -> Any:
        self.seen.append(item)
        if item is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        if isinstance(item, str):
            raise ProviderError(item, "row", status=400)
        await asyncio.sleep(0)
        return 2 * item

    async def close(self) -> None:
        pass


async def opened(work: Doubling) -> WorkerActor:
    actor = WorkerActor()
    assert (await actor.open(pickle.dumps(Doubling)))[0] == "ok"
    actor._work = work
    return actor


async def test_a_call_that_ray_repeats_gets_the_first_result() -> None:
    work = Doubling()
    actor = await opened(work)
    first, again = await asyncio.gather(actor.do(1, 10), actor.do(1, 10))  # the connection broke while it was running
    assert first == again == await actor.do(1, 10) == ("ok", 20)  # the connection broke before the answer arrived
    assert work.seen == [10]
    failed = await actor.do(2, "no")
    assert failed == await actor.do(2, "no") == ("provider", ("no", "row", 400, None, "", ""))
    assert work.seen == [10, "no"]


async def test_only_the_latest_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "REMEMBERED", 3)
    work = Doubling()
    actor = await opened(work)
    waiting = asyncio.create_task(actor.do(0, None))
    await until_async(lambda: work.seen == [None])
    for ticket in range(1, 21):
        await actor.do(ticket, ticket)
        assert len(actor._tasks) <= 7
    await actor.do(20, 20)
    assert work.seen == [None, *range(1, 21)]
    assert 0 in actor._tasks, "an item in progress is never forgotten"
    waiting.cancel()


async def test_an_item_that_nobody_waits_for_is_cancelled() -> None:
    work = Doubling()
    actor = await opened(work)
    waiting = asyncio.create_task(actor.do(1, None))
    await until_async(lambda: work.seen == [None])
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await until_async(lambda: work.cancelled == 1)


@pytest.mark.parametrize("error", [ConfigError("no key"), BudgetError("no money"), CriticPrmError("odd")])
def test_errors_keep_their_class_and_words_on_the_way(error: CriticPrmError) -> None:
    with pytest.raises(type(error), match=str(error)):
        result_of(pickle.loads(pickle.dumps(failure(error))))


def test_a_failed_request_keeps_what_decides_about_its_next_try() -> None:
    error = ProviderError("slow down", "throttle", status=429, retry_after=7.0, detail="said so")
    with pytest.raises(ProviderError, match="slow down") as caught:
        result_of(pickle.loads(pickle.dumps(failure(error))))
    found = caught.value
    assert (found.failure, found.status, found.retry_after, found.detail) == ("throttle", 429, 7.0, "said so")


def test_other_errors_say_that_it_was_a_worker_and_where() -> None:
    with pytest.raises(CriticPrmError, match=r"f\.jsonl:3: bad"):
        result_of(failure(InputError("f.jsonl:3", "bad")))
    try:
        dict[str, int]()["x"]
    except KeyError as error:
        outcome = failure(error)
    with pytest.raises(CriticPrmError, match=r"a worker failed: KeyError: 'x' \(test_workers.py:\d+\)"):
        result_of(outcome)


async def test_a_worker_that_died_is_not_chosen_again() -> None:
    """Before its keeper heard of its death, the idle dead worker was chosen for every item that it had lost."""
    exceptions = pytest.importorskip("ray").exceptions

    def actor(outcome: object) -> Any:
        async def do(ticket: int, item: object) -> object:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return SimpleNamespace(do=SimpleNamespace(remote=do))

    pool = Pool(RayOptions(workers=2), Doubling)
    pool.workers = {0: Worker(actor(exceptions.ActorDiedError())), 1: Worker(actor(("ok", 2)), in_flight=3)}
    with pytest.raises(WorkerLost):
        await pool.do(1)
    assert await pool.do(1) == 2
    assert list(pool.workers) == [1]
