"""The post between driver and worker, without Ray: nothing is worked on twice, nothing that was done is lost."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import dataclass, field
from typing import Any

import pytest

from critic_prm.engine.ray import worker_actor as desks
from critic_prm.engine.ray.worker_actor import WorkerActor, failure, result_of
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, InputError, ProviderError
from tests.effort import until_async


@dataclass
class Doubling:
    """Doubles numbers; waits for ever at None, fails at a text."""

    seen: list[Any] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    async def do(self, job: str, item: Any) -> Any:
        self.seen.append(item)
        if item is None:
            await asyncio.Event().wait()
        if isinstance(item, str):
            raise ProviderError(item, "row", status=400)
        return 2 * item

    def state(self) -> Any:
        return len(self.seen)

    def gone(self, job: str) -> None:
        self.left.append(job)

    async def close(self) -> None:
        pass


async def opened(work: Doubling) -> WorkerActor:
    desk = WorkerActor()
    assert (await desk.open(pickle.dumps(Doubling)))[0] == "ok"
    desk._work = work
    return desk


def read(shard: list[bytes]) -> dict[int, Any]:
    return dict(pickle.loads(packed) for packed in shard)


async def test_results_are_handed_out_again_until_the_driver_has_them() -> None:
    desk = await opened(Doubling())
    await desk.post("job", pickle.dumps([(1, 10), (2, 20)]), [])
    number, first, state = await desk.collect("job", 0)
    assert (number, read(first), state) == (1, {1: ("ok", 20), 2: ("ok", 40)}, 2)
    again, second, _ = await desk.collect("job", 0)  # the answer to the first call never arrived
    assert (again, second) == (1, first)
    await desk.post("job", pickle.dumps([(3, 30)]), [])
    number, third, _ = await desk.collect("job", 1)
    assert (number, read(third)) == (2, {3: ("ok", 60)})


async def test_what_is_posted_twice_is_worked_on_once() -> None:
    work = Doubling()
    desk = await opened(work)
    for _ in range(3):
        await desk.post("job", pickle.dumps([(1, 10)]), [])
    _, shard, _ = await desk.collect("job", 0)
    assert work.seen == [10]
    assert len(shard) == 1


async def test_each_driver_gets_its_own_results() -> None:
    desk = await opened(Doubling())
    await desk.post("a", pickle.dumps([(1, 1)]), [])
    await desk.post("b", pickle.dumps([(1, 2)]), [])
    assert read((await desk.collect("a", 0))[1]) == {1: ("ok", 2)}
    assert read((await desk.collect("b", 0))[1]) == {1: ("ok", 4)}


async def test_a_shard_is_small_enough_to_travel_in_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "SHARD", 1000)
    desk = await opened(Doubling())
    await desk.post("job", pickle.dumps([(n, [0] * 200) for n in range(1, 7)]), [])
    had, got = 0, dict[int, Any]()
    while len(got) < 6:
        had, shard, _ = await desk.collect("job", had)
        assert sum(map(len, shard)) < 1000 or len(shard) == 1
        got |= read(shard)
    assert had > 1


async def test_what_nobody_waits_for_any_more_is_dropped() -> None:
    work = Doubling()
    desk = await opened(work)
    await desk.post("job", pickle.dumps([(1, None)]), [])
    await asyncio.sleep(0)
    await desk.post("job", pickle.dumps([(2, 5)]), [1])
    _, shard, _ = await desk.collect("job", 0)
    assert read(shard) == {2: ("ok", 10)}
    assert not desk._boxes["job"].running


async def test_a_driver_that_is_silent_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desks, "SILENCE", 0.04)
    work = Doubling()
    desk = await opened(work)
    await desk.post("job", pickle.dumps([(1, None)]), [])
    await until_async(lambda: work.left)
    assert work.left == ["job"]
    assert not desk._boxes


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
    with pytest.raises(CriticPrmError, match=r"a worker failed: KeyError: 'x' \(test_desk.py:\d+\)"):
        result_of(outcome)
