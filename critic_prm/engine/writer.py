"""One thread that writes: replies come in one by one, go into the cache in small batches, and are durable before they count."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import TypeAlias

from critic_prm.cache import Attempt, Cache, Entry
from critic_prm.errors import CriticPrmError

LARGEST = 256
"""Rows of one transaction. There is no timer: what arrived while one transaction was committed makes up the next."""

Item: TypeAlias = tuple[Entry | Attempt, asyncio.Future[None]]


class Writer:
    """Writes into a cache that it opens in a thread of its own, at the first row. `put` returns when the row is committed."""

    def __init__(self, open_cache: Callable[[], Cache]) -> None:
        self._open_cache = open_cache
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    async def put(self, item: Entry | Attempt) -> None:
        """Raises InputError when the row cannot be stored (disk full)."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(loop,), name="cache-writer", daemon=True)
            self._thread.start()
        done = loop.create_future()
        self._items.put((item, done))
        await done

    async def close(self) -> None:
        """Write what is left, then end the thread."""
        if self._thread is not None:
            self._items.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        cache: Cache | None = None
        try:
            while (first := self._items.get()) is not None:
                batch, more = self._gather(first)
                failure: CriticPrmError | None = None
                try:
                    cache = cache or self._open_cache()
                    rows = [item for item, _ in batch]
                    cache.add(
                        [row for row in rows if isinstance(row, Entry)], [row for row in rows if isinstance(row, Attempt)]
                    )
                except CriticPrmError as error:
                    failure = error
                loop.call_soon_threadsafe(_settle, [done for _, done in batch], failure)
                if not more:
                    break
        finally:
            if cache is not None:
                cache.close()

    def _gather(self, first: Item) -> tuple[list[Item], bool]:
        batch = [first]
        while len(batch) < LARGEST:
            try:
                item = self._items.get_nowait()
            except queue.Empty:
                break
            if item is None:
                return batch, False
            batch.append(item)
        return batch, True


def _settle(waiting: list[asyncio.Future[None]], failure: CriticPrmError | None) -> None:
    for done in waiting:
        if done.cancelled():
            continue
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)
