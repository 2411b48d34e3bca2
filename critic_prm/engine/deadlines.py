"""Apply the same timeout to many awaitables with a single timer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")

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
