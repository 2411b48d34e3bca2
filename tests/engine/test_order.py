"""Items through many workers: the order, the errors, the stop and the window."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest

from critic_prm.engine.concurrency import ordered_map


async def doubled(part: Sequence[int]) -> list[int]:
    await asyncio.sleep(0)
    return [2 * item for item in part]


async def collect(pairs: AsyncIterator[tuple[int, int]], into: list[int]) -> None:
    async for item, _ in pairs:
        into.append(item)


@pytest.mark.parametrize("batch", [1, 7])
async def test_results_come_in_the_order_of_the_items_whatever_takes_long(batch: int) -> None:
    drawn = random.Random(1)

    async def work(part: Sequence[int]) -> list[int]:
        for _ in range(drawn.randrange(20)):
            await asyncio.sleep(0)
        return [2 * item for item in part]

    pairs = [pair async for pair in ordered_map(range(100), work, workers=lambda: 9, batch=batch)]
    assert pairs == [(item, 2 * item) for item in range(100)]


async def test_no_items_no_results() -> None:
    nothing: list[int] = []
    assert [pair async for pair in ordered_map(nothing, doubled, workers=lambda: 3)] == []


async def test_the_input_is_read_no_further_ahead_than_the_window() -> None:
    read, release = 0, asyncio.Event()

    def items() -> Iterator[int]:
        nonlocal read
        for item in range(1, 1001):
            read = item
            yield item

    async def work(part: Sequence[int]) -> list[int]:
        if part[0] == 1:
            await release.wait()
        return list(part)

    results = ordered_map(items(), work, workers=lambda: 4, window=50)
    first = asyncio.ensure_future(anext(results))
    for _ in range(300):
        await asyncio.sleep(0)
    assert read == 50
    release.set()
    await first
    assert len([pair async for pair in results]) == 999


@pytest.mark.parametrize("bad", [0, 1, 37, 99])
async def test_an_error_comes_after_all_results_before_it(bad: int) -> None:
    async def work(part: Sequence[int]) -> list[int]:
        for _ in range(1 + part[0] % 3):
            await asyncio.sleep(0)
        if part[0] == bad:
            raise ValueError(part[0])
        return list(part)

    got: list[int] = []
    with pytest.raises(ValueError, match=str(bad)):
        await collect(ordered_map(range(100), work, workers=lambda: 8), got)
    assert got == list(range(bad))


async def test_an_error_of_the_input_comes_after_all_it_gave() -> None:
    def items() -> Iterator[int]:
        yield from range(10)
        raise OSError("line 11")

    got: list[int] = []
    with pytest.raises(OSError, match="line 11"):
        await collect(ordered_map(items(), doubled, workers=lambda: 4, batch=3), got)
    assert got == list(range(10))


async def test_a_stop_finishes_what_is_under_way_and_takes_nothing_more() -> None:
    stop, taken = asyncio.Event(), 0

    async def work(part: Sequence[int]) -> list[int]:
        nonlocal taken
        taken += 1
        if part[0] == 20:
            stop.set()
        await asyncio.sleep(0)
        return list(part)

    pairs = [pair async for pair in ordered_map(range(1000), work, workers=lambda: 5, stop=stop)]
    assert len(pairs) == taken
    assert 20 <= taken <= 30


async def test_more_workers_can_join_on_the_way() -> None:
    crew, out, most = 2, 0, 0

    async def work(part: Sequence[int]) -> list[int]:
        nonlocal crew, out, most
        out += 1
        most = max(most, out)
        await asyncio.sleep(0)
        out -= 1
        crew = 6 if part[0] > 10 else 2
        return list(part)

    assert len([pair async for pair in ordered_map(range(60), work, workers=lambda: crew)]) == 60
    assert most == 6


async def test_who_stops_listening_leaves_nobody_working() -> None:
    before = len(asyncio.all_tasks())
    results = ordered_map(range(1000), doubled, workers=lambda: 5)
    async for item, _ in results:
        if item == 3:
            break
    await results.aclose()  # type: ignore[attr-defined]
    assert len(asyncio.all_tasks()) == before
