"""One timer over many requests: who is late hears of it, and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from critic_prm.engine.deadlines import Deadlines


async def test_who_is_late_is_told_and_the_others_are_left_alone() -> None:
    deadlines = Deadlines(0.05)

    async def work(seconds: float) -> str:
        try:
            await deadlines.keep(asyncio.sleep(seconds))
        except TimeoutError:
            return "late"
        return "in time"

    assert await asyncio.gather(*map(work, (0.0, 30.0, 0.01, 30.0, 0.02))) == ["in time", "late", "in time", "late", "in time"]
    assert await work(0.0) == "in time"
    assert await work(30.0) == "late"


async def test_a_cancellation_from_outside_stays_one() -> None:
    deadlines = Deadlines(10.0)
    task = asyncio.create_task(deadlines.keep(asyncio.sleep(30)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_work_is_its_own() -> None:
    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await Deadlines(10.0).keep(work())
