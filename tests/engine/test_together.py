"""What is under way when one request fails is brought in before the failure is told."""

from __future__ import annotations

import asyncio

import pytest

from critic_prm.engine.concurrency import gather_all


async def test_results_come_in_order_and_an_error_waits_for_the_others() -> None:
    arrived: list[int] = []
    gate = asyncio.Event()

    async def request(number: int) -> int:
        if number == 1:
            raise ValueError("no")
        await gate.wait()
        arrived.append(number)
        return number

    waiting = asyncio.ensure_future(gather_all(request(n) for n in range(3)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()
    with pytest.raises(ValueError, match="no"):
        await waiting
    assert arrived == [0, 2]
    assert await gather_all(request(n) for n in (2, 0)) == [2, 0]
