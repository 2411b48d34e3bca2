"""The limiter actor without Ray: leases of all jobs count together, and those of a job that is gone are released."""

from __future__ import annotations

import asyncio

import pytest

from critic_prm.engine.limiter import AdaptiveLimiter
from critic_prm.engine.ray import sender
from critic_prm.engine.ray.sender import JobLimits, LimiterActor, limiter_name
from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import RateLimits


async def joined(*jobs: tuple[str, int], start: int = 100) -> tuple[LimiterActor, AdaptiveLimiter]:
    actor = LimiterActor()
    for job, most in jobs:
        await actor.join(job, JobLimits(most, start=start))
    assert actor.limiter is not None
    return actor, actor.limiter


async def test_the_slots_of_all_jobs_are_those_of_the_limiter() -> None:
    actor, limiter = await joined(("a", 2), ("b", 3))
    assert limiter.most == 5
    await actor.enter("a", 1)
    await actor.enter("b", 1)
    assert limiter.out == 2
    await actor.leave("a", 1, 10, True)
    assert limiter.out == 1


async def test_repeated_calls_have_no_further_effect() -> None:
    actor, limiter = await joined(("a", 2))
    await actor.enter("a", 1)
    await actor.enter("a", 1)
    assert limiter.out == 1
    await actor.leave("a", 1, 10, True)
    await actor.leave("a", 1, 10, True)
    await actor.throttle("a", 1, None)
    assert (limiter.out, limiter.throttled) == (0, 0)


async def test_a_request_that_stops_waiting_takes_no_slot() -> None:
    actor, limiter = await joined(("a", 1))
    await actor.enter("a", 1)
    waiting = asyncio.create_task(actor.enter("a", 2))
    await asyncio.sleep(0)
    await actor.leave("a", 2)
    await waiting
    await actor.leave("a", 1)
    await asyncio.sleep(0)
    assert limiter.out == 0


async def test_a_silent_job_leaves_no_slots_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    actor, limiter = await joined(("a", 1), ("b", 1))
    await actor.enter("a", 1)
    await actor.enter("a", 2)
    waiting = asyncio.create_task(actor.enter("b", 1))
    await asyncio.sleep(0)
    await actor.report("b")
    assert not waiting.done()
    monkeypatch.setattr(sender, "SILENCE", 0.0)
    await actor.report("b")
    assert list(actor.jobs) == ["b"]
    assert limiter.most == 1
    await waiting
    assert limiter.out == 1


async def test_a_throttling_answer_to_one_job_slows_all() -> None:
    actor, limiter = await joined(("a", 50), ("b", 50))
    before = limiter.limit
    await actor.enter("a", 1)
    await actor.throttle("a", 1, 3000.0)
    state = await actor.report("b")
    assert state.limit < before
    assert state.waiting > 60
    held = asyncio.create_task(actor.enter("b", 1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not held.done()
    held.cancel()


async def test_headers_of_one_job_hold_for_all() -> None:
    actor, _ = await joined(("a", 5), ("b", 5))
    await actor.heed("a", RateLimits(requests=0, requests_reset=20.0))
    assert (await actor.report("b")).waiting > 0


async def test_the_strictest_limits_win() -> None:
    actor, limiter = await joined(("a", 5))
    await actor.join("b", JobLimits(5, 600.0, None, 5))
    await actor.join("c", JobLimits(5, 6000.0, 100.0, 5))
    assert limiter._requests is not None
    assert limiter._requests.rate == 10.0
    assert limiter._tokens is not None


def test_restrict_leaves_a_stricter_limit_alone() -> None:
    limiter = AdaptiveLimiter(5, rpm=60)
    limiter.restrict(rpm=600)
    assert limiter._requests is not None
    assert limiter._requests.rate == 1.0


def test_one_limiter_for_one_server_model_and_key() -> None:
    def name(model: str = "m", url: str | None = "http://h/v1", key: str = "k") -> str:
        return limiter_name(OpenAIProvider(model, url, key))

    assert name() == name()
    assert len({name(), name(model="n"), name(url="http://i/v1"), name(key="l")}) == 4
