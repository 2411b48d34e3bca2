"""The gate, in simulated time: a clock and a server that the test moves forward itself."""

from __future__ import annotations

import asyncio

import pytest

from critic_prm.engine.limiter import AdaptiveLimiter
from critic_prm.providers.provider import RateLimits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_no_more_than_the_limit_is_out_at_once() -> None:
    gate = AdaptiveLimiter(3, fixed=True)
    times = [await gate.enter() for _ in range(3)]
    fourth = asyncio.create_task(gate.enter())
    await asyncio.sleep(0)
    assert gate.out == 3
    assert not fourth.done()
    gate.leave(times[0])
    await fourth
    assert gate.out == 3


async def test_it_doubles_each_round_while_all_is_well_and_places_are_used() -> None:
    gate = AdaptiveLimiter(128)
    times: list[float] = []
    for expected in (32, 64, 128, 128):
        for _ in range(int(gate.limit)):
            while gate.out < int(gate.limit):
                times.append(await gate.enter())
            gate.leave(times.pop(0))
        assert gate.limit == expected


async def test_after_a_complaint_it_grows_by_a_twentieth_a_round() -> None:
    clock = Clock()
    gate = AdaptiveLimiter(200, start=100, clock=clock)
    times = [await gate.enter() for _ in range(100)]
    clock.now += 1
    gate.throttle(times.pop(), 0.0)
    assert gate.limit == 80
    for entered in times:
        gate.leave(entered)
    clock.now += 1
    gate._pace.bucket = None  # only the places are looked at here
    times = []
    for _ in range(80):
        while gate.out < int(gate.limit):
            times.append(await gate.enter())
        gate.leave(times.pop(0))
    assert gate.limit == pytest.approx(84, abs=0.2)


async def test_a_throttled_server_that_accepts_again_has_its_short_cooldown_back() -> None:
    clock = Clock()
    gate = AdaptiveLimiter(64, clock=clock)
    for _ in range(5):
        entered = await _enter(gate, clock)
        gate.throttle(entered, None)
    gate.leave(await _enter(gate, clock))
    gate.throttle(await _enter(gate, clock), None)
    assert gate.waiting() == pytest.approx(0.5)


async def test_a_shut_gate_turns_everybody_away_but_lets_out_who_is_out() -> None:
    gate = AdaptiveLimiter(1, fixed=True)
    entered = await gate.enter()
    waiting = asyncio.create_task(gate.enter())
    await asyncio.sleep(0)
    gate.shut(RuntimeError("over"))
    with pytest.raises(RuntimeError, match="over"):
        await waiting
    with pytest.raises(RuntimeError, match="over"):
        await gate.enter()
    gate.leave(entered)
    assert gate.out == 0


async def test_the_ceiling_can_be_moved_while_running() -> None:
    gate = AdaptiveLimiter(1, fixed=True)
    await gate.enter()
    more = [asyncio.create_task(gate.enter()) for _ in range(3)]
    await asyncio.sleep(0)
    gate.resize(3)
    await asyncio.sleep(0)
    assert [task.done() for task in more] == [True, True, False]
    gate.resize(1)
    for _ in range(3):
        gate.leave(0.0)
    await asyncio.sleep(0)
    assert gate.out == 1


async def _enter(gate: AdaptiveLimiter, clock: Clock) -> float:
    clock.now += 1000
    return await gate.enter()


async def test_an_idle_gate_does_not_grow() -> None:
    gate = AdaptiveLimiter(128)
    for _ in range(500):
        gate.leave(await gate.enter())
    assert gate.limit == 16


async def test_one_episode_shrinks_once_however_many_hear_of_it() -> None:
    clock = Clock()
    gate = AdaptiveLimiter(100, clock=clock)
    times = [await gate.enter() for _ in range(16)]
    clock.now += 1
    for entered in times:
        gate.throttle(entered, None)
    assert gate.limit == pytest.approx(16 * 0.8)
    assert gate.throttled == 16


@pytest.mark.parametrize(("said", "waits"), [(7.0, 7.0), (None, 0.5), (0.0, 0.0)])
async def test_it_waits_as_long_as_the_server_says(said: float | None, waits: float) -> None:
    clock = Clock()
    gate = AdaptiveLimiter(4, clock=clock)
    gate.throttle(await gate.enter(), said)
    assert gate.waiting() == pytest.approx(waits)


async def test_without_a_word_the_wait_doubles_up_to_a_minute() -> None:
    clock, waits = Clock(), []
    gate = AdaptiveLimiter(4, clock=clock)
    for _ in range(10):
        clock.now += 1000
        entered = await gate.enter()
        clock.now += 0.01
        gate.throttle(entered, None)
        waits.append(gate.waiting())
    assert waits == pytest.approx([0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60])


async def test_headers_that_say_nothing_is_left_close_the_gate() -> None:
    clock = Clock()
    gate = AdaptiveLimiter(4, clock=clock)
    gate.heed(RateLimits(requests=3, requests_reset=9.0))
    assert gate.waiting() == 0
    gate.heed(RateLimits(requests=0, requests_reset=9.0))
    assert gate.waiting() == pytest.approx(9.0)


async def test_requests_per_minute_hold() -> None:
    """60 a minute: the first goes at once, then one a second, whatever the limit of places."""
    clock = Clock()
    gate = AdaptiveLimiter(50, rpm=60, clock=clock)
    admitted = 0
    waiting = [asyncio.create_task(gate.enter()) for _ in range(40)]
    for _ in range(100):
        clock.now += 0.1
        gate._wake()
        await asyncio.sleep(0)
    admitted = sum(task.done() for task in waiting)
    assert 9 <= admitted <= 11
    for task in waiting:
        task.cancel()


async def test_a_cancelled_waiter_gives_its_place_on() -> None:
    gate = AdaptiveLimiter(1, fixed=True)
    first = await gate.enter()
    second, third = asyncio.create_task(gate.enter()), asyncio.create_task(gate.enter())
    await asyncio.sleep(0)
    second.cancel()
    gate.leave(first)
    await third
    assert gate.out == 1


@pytest.mark.parametrize(
    ("retry_after", "burst", "start", "least"),
    [(1.0, 20, 16, 0.85), (1.0, 5, 64, 0.85), (1.0, 5, 16, 0.85), (0.3, 5, 64, 0.9), (None, 5, 64, 0.9), (None, 20, 64, 0.9)],
)
async def test_the_pace_settles_just_under_what_the_server_takes(
    retry_after: float | None, burst: float, start: int, least: float
) -> None:
    """A server that takes 20 a second with so many saved up, 50 ms each: 40 seconds of simulated time."""
    clock = Clock()
    gate = AdaptiveLimiter(64, start=start, clock=clock)
    level, stamp = burst, clock.now
    accepted = late = late_refused = 0
    out: list[tuple[float, float, bool]] = []
    waiting = [asyncio.create_task(gate.enter()) for _ in range(64)]
    while clock.now < 140:
        clock.now += 0.005
        gate._wake()
        await asyncio.sleep(0)
        for task in [task for task in waiting if task.done()]:
            waiting.remove(task)
            level, stamp = min(burst, level + (clock.now - stamp) * 20), clock.now
            out.append((clock.now + 0.05, task.result(), level >= 1))
            level -= level >= 1
        for answer in [answer for answer in out if answer[0] <= clock.now]:
            out.remove(answer)
            _, entered, good = answer
            accepted += good
            if good:
                gate.leave(entered)
            else:
                gate.throttle(entered, retry_after)
            if clock.now > 110:
                late, late_refused = late + 1, late_refused + (not good)
            waiting.append(asyncio.create_task(gate.enter()))
    for task in waiting:
        task.cancel()
    assert accepted / 40 >= least * 20
    assert late_refused / late <= 0.05
