"""Write replies to the cache from one background thread, in small transactions."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from critic_prm.engine.cache import Attempt, Cache, Entry
from critic_prm.errors import CriticPrmError

LARGEST = 256
"""Maximum rows per transaction. There is no timer: each transaction takes the rows that arrived during the previous one."""

Item: TypeAlias = tuple[Entry | Attempt, asyncio.Future[None]]


class Writer:
    """Write to a cache from a background thread, which opens the cache at the first row.

    A reply counts only when it is durable: `put` returns when its row is committed.
    """

    def __init__(self, open_cache: Callable[[], Cache]) -> None:
        self._open_cache = open_cache
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended_by: CriticPrmError | None = None

    async def put(self, item: Entry | Attempt) -> None:
        """Store a row and wait until it is committed.

        Raises CriticPrmError when the row cannot be stored (InputError when the disk is full), immediately if the thread has
        ended.
        """
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(loop,), name="cache-writer", daemon=True)
            self._thread.start()
        done = loop.create_future()
        self._items.put((item, done))
        if self._ended_by is not None and not done.done():  # check after putting the item: the thread may no longer take it
            raise self._ended_by
        await done

    async def close(self) -> None:
        """Write the remaining rows and end the thread."""
        if self._thread is not None:
            self._items.put(None)
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        cache: Cache | None = None
        batch: list[Item] = []
        try:
            while (first := self._items.get()) is not None:
                batch, more = self._gather(first)
                cache = cache or self._opened(batch, loop)
                if cache is not None:
                    self._store(cache, batch, loop)
                if not more:
                    break
        except BaseException as error:
            self._ended_by = _unwritten(error)
            with suppress(queue.Empty):
                while True:
                    batch += filter(None, [self._items.get_nowait()])
            loop.call_soon_threadsafe(_settle, [done for _, done in batch], self._ended_by)
        finally:
            if cache is not None:
                cache.close()

    def _opened(self, batch: list[Item], loop: asyncio.AbstractEventLoop) -> Cache | None:
        try:
            return self._open_cache()
        except CriticPrmError as error:
            loop.call_soon_threadsafe(_settle, [done for _, done in batch], error)
            return None

    def _store(self, cache: Cache, batch: list[Item], loop: asyncio.AbstractEventLoop) -> None:
        """Store all rows in one transaction. If that fails for a reason other than the file, store them one by one, so that a
        bad row does not lose the others, which are paid for."""
        failure: CriticPrmError | None = None
        rows = [item for item, _ in batch]
        try:
            cache.add([row for row in rows if isinstance(row, Entry)], [row for row in rows if isinstance(row, Attempt)])
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, CriticPrmError):
                for one in batch:
                    self._store(cache, [one], loop)
                return
            failure = error if isinstance(error, CriticPrmError) else _unwritten(error)
        loop.call_soon_threadsafe(_settle, [done for _, done in batch], failure)

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


def _unwritten(error: BaseException) -> CriticPrmError:
    found = CriticPrmError(f"a reply could not be written to the cache: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found


def _settle(waiting: list[asyncio.Future[None]], failure: CriticPrmError | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)
