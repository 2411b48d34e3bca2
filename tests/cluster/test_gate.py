"""The gate that a cluster shares, without Ray: leases of all jobs count together, and those of a lost job are given back."""

from __future__ import annotations

import asyncio

from critic_prm.engine.adaptive_limiter import AdaptiveLimiter
from critic_prm.engine.ray.shared_limiter import Enter, Join, Leave, LimiterActor, Throttled, door_name
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import RateLimits


async def joined(*jobs: tuple[str, int], start: int = 100) -> LimiterActor:
    keeper = LimiterActor()
    for job, most in jobs:
        await keeper.do(job, Join(most, None, None, start))
    return keeper


async def test_the_places_of_all_jobs_are_those_of_the_gate() -> None:
    keeper = await joined(("a", 2), ("b", 3))
    assert keeper.gate is not None
    assert keeper.gate.most == 5
    leases = [await keeper.do("a", Enter()), await keeper.do("b", Enter())]
    assert len(set(leases)) == 2
    assert keeper.gate.out == 2
    assert leases[0] is not None
    await keeper.do("a", Leave(leases[0], 10, True))
    await keeper.do("a", Leave(leases[0], 10, True))  # said twice
    assert keeper.gate.out == 1


async def test_a_job_that_is_gone_leaves_no_places_taken() -> None:
    keeper = await joined(("a", 1), ("b", 1))
    assert keeper.gate is not None
    await keeper.do("a", Enter())
    await keeper.do("a", Enter())
    waiting = asyncio.create_task(keeper.do("b", Enter()))
    await asyncio.sleep(0)
    assert not waiting.done()
    keeper.gone("a")
    assert keeper.gate.most == 1
    await waiting
    assert keeper.gate.out == 1


async def test_a_throttling_answer_to_one_job_slows_all() -> None:
    keeper = await joined(("a", 50), ("b", 50))
    assert keeper.gate is not None
    before = keeper.gate.limit
    lease = await keeper.do("a", Enter())
    assert lease is not None
    await keeper.do("a", Throttled(lease, 3000.0))
    state = keeper.state()
    assert state is not None
    assert state.limit < before
    assert state.waiting > 60
    held = asyncio.create_task(keeper.do("b", Enter()))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not held.done()
    held.cancel()


async def test_headers_of_one_job_hold_for_all() -> None:
    keeper = await joined(("a", 5), ("b", 5))
    await keeper.do("a", RateLimits(requests=0, requests_reset=20.0))
    state = keeper.state()
    assert state is not None
    assert state.waiting > 0


async def test_the_strictest_limits_win() -> None:
    keeper = await joined(("a", 5))
    await keeper.do("b", Join(5, 600.0, None, 5))
    await keeper.do("c", Join(5, 6000.0, 100.0, 5))
    assert keeper.gate is not None
    assert keeper.gate._requests is not None
    assert keeper.gate._requests.rate == 10.0
    assert keeper.gate._tokens is not None


def test_restrict_leaves_a_stricter_limit_alone() -> None:
    gate = AdaptiveLimiter(5, rpm=60)
    gate.restrict(rpm=600)
    assert gate._requests is not None
    assert gate._requests.rate == 1.0


def test_one_door_for_one_server_model_and_key() -> None:
    def name(model: str = "m", url: str | None = "http://h/v1", key: str = "k") -> str:
        return door_name(OpenAIProvider(model, url, key))

    assert name() == name()
    assert len({name(), name(model="n"), name(url="http://i/v1"), name(key="l")}) == 4
