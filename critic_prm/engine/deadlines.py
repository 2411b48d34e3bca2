"""Awaitables with one deadline for each -> their results, or TimeoutError; one timer watches over all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")

GRAIN = 20
"""Deadlines are looked at so many times within their length: none is missed by more than a twentieth."""


class Deadlines:
    """Like `asyncio.timeout`, for thousands of requests that all have `seconds`: a timer each is a noticeable part of what
    they cost."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def keep(self, work: Awaitable[Result]) -> Result:
        """The result of `work`, awaited in this task. Raises TimeoutError when it takes longer."""
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
        """All deadlines are now."""
        for task in self._due:
            self._late.add(task)
            task.cancel()
        self._due.clear()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task, due in list(self._due.items()):
            if due > now:
                break  # the later they began, the later they end
            del self._due[task]
            self._late.add(task)
            task.cancel()
        self._timer = loop.call_later(self._seconds / GRAIN, self._look, loop) if self._due else None
