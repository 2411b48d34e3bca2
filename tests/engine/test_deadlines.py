"""One timer over many requests: who is late hears of it, and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from critic_prm.engine.concurrency import Deadlines
from tests.effort import pause, simulated


def test_who_is_late_is_told_and_the_others_are_left_alone() -> None:
    deadlines = Deadlines(0.05)

    async def work(seconds: float) -> str:
        try:
            await deadlines.keep(pause(seconds))
        except TimeoutError:
            return "late"
        return "in time"

    async def all_of_it() -> None:
        found = await asyncio.gather(*map(work, (0.0, 30.0, 0.01, 30.0, 0.04)))
        assert found == ["in time", "late", "in time", "late", "in time"]
        assert await work(0.0) == "in time"
        began = asyncio.get_running_loop().time()
        assert await work(30.0) == "late"
        assert asyncio.get_running_loop().time() - began < 0.06

    simulated(all_of_it())


async def test_a_cancellation_from_outside_stays_one() -> None:
    deadlines = Deadlines(10.0)
    task = asyncio.create_task(deadlines.keep(asyncio.Event().wait()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_work_is_its_own() -> None:
    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await Deadlines(10.0).keep(work())
