"""Ray actor: runs items concurrently and keeps results until the driver acknowledges them."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, ProviderError, UsageError

SHARD = 64 << 10
"""Bytes of results returned per call. Ray returns up to 100 kB inline, straight into the driver's memory; larger results would
be kept in the object store of the worker's node and be lost with the node."""

GATHER = 0.003
"""Seconds that a result may wait to be grouped with others."""

PULSE = 5.0
"""Seconds after which a call of the driver returns even if there are no results."""

SILENCE = 60.0
"""Seconds without a call after which a driver counts as gone."""

REMEMBERED = 10_000
"""Number of tickets remembered, to recognize items that are posted twice after a call whose outcome was unknown."""

NO_ANSWER = 0
"""The ticket of items that have no result."""

Outcome = tuple[str, Any]
"""("ok", result), or a failure: ("provider", fields of a ProviderError), (name of another error, message)."""

KNOWN: dict[str, type[CriticPrmError]] = {
    "config": ConfigError,
    "budget": BudgetError,
    "usage": UsageError,
    "other": CriticPrmError,
}


class Work(Protocol):
    """The work of a worker actor. `job` identifies the driver's connection; `state` is returned with every answer."""

    async def do(self, job: str, item: Any) -> Any:
        """Return the result of one item."""
        ...

    def state(self) -> Any:
        """Return the state to report to drivers."""
        ...

    def gone(self, job: str) -> None:
        """Clean up after a driver that has not called for SILENCE seconds."""
        ...

    async def close(self) -> None: ...


@dataclass
class Mailbox:
    """One driver's items in progress, and the results it has not received yet."""

    running: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    done: deque[bytes] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    seen: set[int] = field(default_factory=set)
    order: deque[int] = field(default_factory=deque)
    shard: list[bytes] = field(default_factory=list)
    number: int = 0
    heard: float = field(default_factory=time.monotonic)

    def takes(self, ticket: int) -> bool:
        """Whether an item is new. An item that is posted twice is run once."""
        if ticket == NO_ANSWER:
            return True
        if ticket in self.seen:
            return False
        self.seen.add(ticket)
        self.order.append(ticket)
        if len(self.order) > REMEMBERED:
            self.seen.discard(self.order.popleft())
        return True


class WorkerActor:
    """The Ray actor of a worker. Each call carries many items. It never opens a cache."""

    def __init__(self) -> None:
        self._work: Work | None = None
        self._boxes: dict[str, Mailbox] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    async def here(self) -> tuple[str, int]:
        """Return the worker's host and process id, as soon as it is placed."""
        return socket.gethostname(), os.getpid()

    async def open(self, opener: bytes) -> Outcome:
        """Create the work (load a model, open a provider), unless another driver has. Returns this version of critic-prm."""
        async with self._opening:
            if self._work is None:
                try:
                    make: Callable[[], Work] = pickle.loads(opener)
                    self._work = await asyncio.to_thread(make)
                except BaseException as error:
                    return failure(error)
        return "ok", own_version()

    async def post(self, job: str, parcels: bytes, dropped: Sequence[int]) -> None:
        """Accept items, as pickled [(ticket, item)], and cancel the `dropped` ones, whose callers no longer wait."""
        box = self._box(job)
        for ticket in dropped:
            if (task := box.running.get(ticket)) is not None:
                task.cancel()
        for ticket, item in pickle.loads(parcels):
            if box.takes(ticket):
                task = asyncio.get_running_loop().create_task(self._do(box, job, ticket, item))
                if ticket != NO_ANSWER:
                    box.running[ticket] = task

    async def collect(self, job: str, had: int) -> tuple[int, list[bytes], Any]:
        """Return (number, results, state) as soon as there are results.

        `had` is the number of the last results that the driver received. Results are kept, and returned again, until the
        driver acknowledges them this way.
        """
        box = self._box(job)
        if had == box.number:
            box.shard = []
            if not box.done:
                box.news.clear()
                try:
                    async with asyncio.timeout(PULSE):
                        await box.news.wait()
                except TimeoutError:
                    pass
            if box.done:
                await asyncio.sleep(GATHER)
            size = 0
            while box.done and (size == 0 or size + len(box.done[0]) < SHARD):
                size += len(box.done[0])
                box.shard.append(box.done.popleft())
            box.number += 1
        box.heard = time.monotonic()
        return box.number, box.shard, self._work.state() if self._work is not None else None

    async def close(self) -> None:
        """Close connections and unload models."""
        if self._work is not None:
            await self._work.close()

    def _box(self, job: str) -> Mailbox:
        if job not in self._boxes:
            self._boxes[job] = Mailbox()
            self._sweeping = self._sweeping or asyncio.get_running_loop().create_task(self._sweep())
        box = self._boxes[job]
        box.heard = time.monotonic()
        return box

    async def _do(self, box: Mailbox, job: str, ticket: int, item: Any) -> None:
        try:
            assert self._work is not None, "a desk is opened before anything is posted to it"
            outcome: Outcome = "ok", await self._work.do(job, item)
            packed = pickle.dumps((ticket, outcome), pickle.HIGHEST_PROTOCOL)
        except asyncio.CancelledError:
            box.running.pop(ticket, None)
            raise
        except BaseException as error:
            packed = pickle.dumps((ticket, failure(error)), pickle.HIGHEST_PROTOCOL)
        if ticket != NO_ANSWER:
            box.running.pop(ticket, None)
            box.done.append(packed)
            box.news.set()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SILENCE / 4)
            for job in [job for job, box in self._boxes.items() if time.monotonic() - box.heard > SILENCE]:
                box = self._boxes.pop(job)
                for task in box.running.values():
                    task.cancel()
                if self._work is not None:
                    self._work.gone(job)


def own_version() -> str:
    """Return the installed version of critic-prm, or "" if it runs without being installed."""
    try:
        return version("critic-prm")
    except PackageNotFoundError:
        return ""


def failure(error: BaseException) -> Outcome:
    """Convert an error to plain data, because another process cannot unpickle every exception."""
    if isinstance(error, ProviderError):
        return "provider", (str(error), error.failure, error.status, error.retry_after, error.detail)
    for name, kind in KNOWN.items():
        if isinstance(error, kind):
            return name, str(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({last[0].filename.rpartition('/')[2]}:{last[0].lineno})" if last else ""
    return "other", f"a worker failed: {type(error).__name__}: {error}{where}"


def result_of(outcome: Outcome) -> Any:
    """Return the result of an outcome, or raise its error."""
    kind, value = outcome
    if kind == "ok":
        return value
    if kind == "provider":
        message, why, status, retry_after, detail = value
        raise ProviderError(message, why, status=status, retry_after=retry_after, detail=detail)
    raise KNOWN[kind](value)
