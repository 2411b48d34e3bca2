"""Map a coroutine over items with many concurrent workers, in input order and bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

BREATH = 16
"""A worker yields to the event loop after this many turns, even if its work never had to wait."""


async def ordered_map(
    items: Iterable[Item],
    work: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
    *,
    workers: Callable[[], int],
    batch: int = 1,
    window: int = 4096,
    stop: asyncio.Event | None = None,
) -> AsyncIterator[tuple[Item, Result]]:
    """Yield (item, result) in the order of `items`, which is read at most `window` items ahead of what was yielded.

    `workers()` coroutines take `batch` items at a time. The function is called again whenever results arrive, so the number of
    workers may grow. When `stop` is set, no more items are taken and the work in progress is finished. The same happens when
    `items` or `work` raises; then every result before the failed position is yielded, and the error is raised.
    """
    source = iter(items)
    done: dict[int, tuple[Sequence[Item], Sequence[Result]]] = {}
    failures: dict[int, Exception] = {}
    taken = given = alive = 0
    closed = False
    news = asyncio.Event()
    room = asyncio.Semaphore(max(window // batch, workers(), 1))
    tasks: list[asyncio.Task[None]] = []

    def take(place: int) -> list[Item]:
        nonlocal closed
        part: list[Item] = []
        try:
            for item in islice(source, batch):
                part.append(item)  # noqa: PERF402  (items read before an error must be kept)
        except Exception as error:
            failures[place + 1] = error
        closed = closed or len(part) < batch
        return part

    async def worker() -> None:
        nonlocal taken, alive, closed
        try:
            while True:
                await room.acquire()
                if closed or (stop is not None and stop.is_set()):
                    break
                place, taken = taken, taken + 1
                part = take(place)
                try:
                    if part:
                        done[place] = part, await work(part)
                except Exception as error:
                    failures[place] = error
                    closed = True
                news.set()
                if place % BREATH == 0 or batch > 1:
                    await asyncio.sleep(0)
        finally:
            room.release()  # wake the next waiting worker, so that all of them notice the end
            alive -= 1
            news.set()

    def crew() -> None:
        nonlocal alive
        while not closed and alive < max(workers(), 1) and not (stop is not None and stop.is_set()):
            alive += 1
            tasks.append(asyncio.create_task(worker()))

    try:
        crew()
        while True:
            news.clear()
            while given in done and given not in failures:
                part, results = done.pop(given)
                given += 1
                room.release()
                for item, result in zip(part, results, strict=True):
                    yield item, result
            if (alive == 0 and given not in done) or given in failures:
                break
            crew()
            await news.wait()
        closed = True
        room.release()
        await asyncio.gather(*tasks)
        if failures:
            raise failures[min(failures)]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
