"""The driver's end of one desk: items are posted together, results are collected together, and whoever asked gets his own."""

from __future__ import annotations

import asyncio
import pickle
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any

from critic_prm.engine.ray.session import ray_module
from critic_prm.engine.ray.worker_actor import NO_ANSWER, result_of

LINGER = 0.002
"""Seconds that an item may wait for others to travel with: a call costs the driver as much as twenty more items in it."""

UNREACHABLE = 30.0
"""Seconds of calls without an answer after which a worker is given up, and ended if it is still there."""


class Lost(Exception):
    """The worker is gone, and what it had in hand with it."""


class WorkerConnection:
    """Asks one desk. Belongs to one event loop; `run` must be running for answers to come in.

    `unclaimed` gets results that nobody waits for any more; `state` is what the desk last said of itself.
    """

    def __init__(self, desk: Any, unclaimed: Callable[[Any], None] | None = None) -> None:
        self.desk = desk
        self.job = uuid.uuid4().hex  # a new name for each line: a desk knows a job by the tickets it has seen of it
        self.state: Any = None
        self.answers = 0
        self._unclaimed = unclaimed
        self._tickets = count(NO_ANSWER + 1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._outbox: list[tuple[int, Any]] = []
        self._dropped: list[int] = []
        self._flush_at: asyncio.TimerHandle | None = None
        self._posting: set[asyncio.Task[None]] = set()
        self._broken: Lost | None = None

    @property
    def out(self) -> int:
        """Items that were asked and not answered."""
        return len(self._asked)

    async def ask(self, item: Any) -> Any:
        """The result of `item`. Raises Lost, and what the work raised."""
        if self._broken is not None:
            raise self._broken
        ticket = next(self._tickets)
        future = self._asked[ticket] = asyncio.get_running_loop().create_future()
        self._put(ticket, item)
        try:
            return await future
        except asyncio.CancelledError:
            self._dropped.append(ticket)
            self._arm()
            raise
        finally:
            self._asked.pop(ticket, None)

    def tell(self, item: Any) -> None:
        """Send something that has no answer."""
        if self._broken is None:
            self._put(NO_ANSWER, item)

    def fail(self, error: BaseException) -> None:
        """Whoever waits gets `error`."""
        for future in self._asked.values():
            if not future.done():
                future.set_exception(error)

    async def run(self) -> None:
        """Bring answers in until the desk is lost (returns) or this is cancelled."""
        ray, had, unreachable = ray_module(), 0, 0.0
        try:
            while self._broken is None:
                try:
                    number, shard, self.state = await self.desk.collect.remote(self.job, had)
                except ray.exceptions.ActorUnavailableError as error:
                    if (unreachable := unreachable + 1) > UNREACHABLE:
                        self._break(error)
                    await asyncio.sleep(1)
                    continue
                except ray.exceptions.RayError as error:
                    self._break(error)
                    break
                unreachable = 0.0
                if number == had:
                    continue
                had = number
                for packed in shard:
                    self._hand_over(*pickle.loads(packed))
        finally:
            self._break(None)

    def _hand_over(self, ticket: int, outcome: Any) -> None:
        self.answers += 1
        future = self._asked.get(ticket)
        if future is None or future.done():
            if self._unclaimed is not None and outcome[0] == "ok":
                self._unclaimed(outcome[1])
            return
        try:
            future.set_result(result_of(outcome))
        except Exception as error:
            future.set_exception(error)

    def _put(self, ticket: int, item: Any) -> None:
        self._outbox.append((ticket, item))
        self._arm()

    def _arm(self) -> None:
        if self._flush_at is None and self._broken is None:
            self._flush_at = asyncio.get_running_loop().call_later(LINGER, self._flush)

    def _flush(self) -> None:
        self._flush_at = None
        outbox, self._outbox = self._outbox, []
        dropped, self._dropped = self._dropped, []
        task = asyncio.get_running_loop().create_task(self._post(pickle.dumps(outbox, pickle.HIGHEST_PROTOCOL), dropped))
        self._posting.add(task)
        task.add_done_callback(self._posting.discard)

    async def _post(self, parcels: bytes, dropped: list[int]) -> None:
        """Until the desk has it; the desk knows again what it gets twice."""
        ray = ray_module()
        while self._broken is None:
            try:
                await self.desk.post.remote(self.job, parcels, dropped)
                return
            except ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(1)
            except ray.exceptions.RayError:
                return  # `run` hears of it, too

    def _break(self, error: BaseException | None) -> None:
        if self._broken is None:
            said = "" if error is None else str(error).strip().split("\n")[0]
            self._broken = Lost(said or "the worker was let go")
            self._broken.__cause__ = error
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        self.fail(self._broken)
