"""Run many requests at once: results in input order, one timer for all timeouts, rare garbage collection."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
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


THRESHOLDS = (100_000, 50, 100)
"""Thresholds for `gc.set_threshold`: objects, then collections of the younger generation, between collections. At most about
10 MB of garbage accumulates."""


@contextmanager
def reduced_gc() -> Iterator[None]:
    """Context manager: exclude existing objects (mostly modules) from garbage collection, and collect rarely."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


GRAIN = 20
"""Deadlines are checked this many times per timeout period, so none is exceeded by more than a twentieth."""


class Deadlines:
    """Like `asyncio.timeout`, for thousands of requests with the same timeout of `seconds`.

    One timer per request would be a noticeable part of the cost of a request.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def keep(self, work: Awaitable[Result]) -> Result:
        """Await `work` in the current task and return its result. Raises TimeoutError when it takes longer than `seconds`."""
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        cancelling = task.cancelling()
        self._due[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_later(self._seconds / GRAIN, self._look, loop)
        try:
            return await work
        except asyncio.CancelledError:
            if task in self._late and task.uncancel() <= cancelling:
                raise TimeoutError from None
            raise
        finally:
            self._due.pop(task, None)
            self._late.discard(task)

    def end(self) -> None:
        """Let all deadlines expire now."""
        for task in self._due:
            self._late.add(task)
            task.cancel()
        self._due.clear()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task, due in list(self._due.items()):
            if due > now:
                break  # the dict is ordered by deadline
            del self._due[task]
            self._late.add(task)
            task.cancel()
        self._timer = loop.call_later(self._seconds / GRAIN, self._look, loop) if self._due else None


async def gather_all(requests: Iterable[Awaitable[Result]]) -> list[Result]:
    """Return the results in order. If one fails, wait for the others before raising its error.

    The other requests are paid for, and cancelling them would lose their replies.
    """
    outcomes = await asyncio.gather(*requests, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
