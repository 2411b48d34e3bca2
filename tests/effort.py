"""How tests compare costs and wait without measuring seconds. No other test file may read a clock or sleep (test_house.py).

A test that asserts seconds, or sleeps and hopes, fails on a slow or busy machine. Use instead, in this order:
`calls` counts function calls, the same number on every machine; `times_as_long` compares two pieces of work side by side, for
what happens inside one call (a regular expression); `until` and `until_async` wait for a condition; `simulated` runs a
coroutine on a clock that jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

Result = TypeVar("Result")

PATIENCE = 300.0
"""Seconds after which a condition that has not come true ends the test. Not a measurement: it only ends a hang."""


def calls(work: Callable[[], object]) -> int:
    """How many functions, of Python and of C, `work` calls in this thread."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def times_as_long(work: Callable[[], object], other: Callable[[], object], *, enough: float, rounds: int = 8) -> float:
    """How many times the processor time of `other` the `work` takes, both measured in this thread.

    Whatever else the machine does can only add to a measurement, so the least of several counts; measuring stops as soon as
    the ratio is at most `enough`. Choose it five times as large as the ratio on a quiet machine, or larger.
    """
    least = [float("inf"), float("inf")]
    for _ in range(rounds):
        for place, each in enumerate((work, other)):
            start = time.thread_time()
            each()
            least[place] = min(least[place], time.thread_time() - start)
        if least[0] <= enough * least[1]:
            break
    return least[0] / least[1]


def until(true: Callable[[], object], what: str = "the condition") -> None:
    """Wait until `true` says so, however slow the machine is."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"{what} did not come true in {PATIENCE:.0f} s"
        time.sleep(0.005)


async def until_async(true: Callable[[], object], what: str = "the condition") -> None:
    """Like `until`, while the event loop goes on."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"{what} did not come true in {PATIENCE:.0f} s"
        await asyncio.sleep(0.001)


class _Jumping(selectors.DefaultSelector):
    """Does not wait for a timer: moves the clock to it."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0 if timeout else timeout)
        if not found and timeout:
            self.now += timeout
        return found


class _SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Jumping()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


async def pause(seconds: float) -> None:
    """Sleep on a simulated clock, and on no other."""
    assert isinstance(asyncio.get_running_loop(), _SimulatedLoop)
    await asyncio.sleep(seconds)


def simulated(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that waits for timers only, in no time: an hour of `pause` is over at once, in the right order.

    Not for work in threads, processes or connections: the clock would not wait for them.
    """
    with asyncio.Runner(loop_factory=_SimulatedLoop) as runner:
        return runner.run(work)
