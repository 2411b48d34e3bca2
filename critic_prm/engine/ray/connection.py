"""The driver's connection to one worker actor: post items and collect results in groups."""

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
"""Seconds that an item may wait to be grouped with others: a call costs the driver as much as twenty more items in it."""

UNREACHABLE = 30.0
"""Seconds without an answer to any call after which a worker counts as lost and is killed if it still exists."""


class Lost(Exception):
    """The worker is lost, together with the items it was working on."""


class WorkerConnection:
    """Connection to one worker actor. Results arrive only while `run` is running. Belongs to one event loop.

    `unclaimed` is called with results whose caller was cancelled. `state` is the last state that the actor reported.
    """

    def __init__(self, desk: Any, unclaimed: Callable[[Any], None] | None = None) -> None:
        self.desk = desk
        self.job = uuid.uuid4().hex  # unique per connection: the actor remembers the tickets it has seen of each job
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
        """Number of items without a result yet."""
        return len(self._asked)

    async def ask(self, item: Any) -> Any:
        """Send `item` and return its result. Raises Lost if the worker is lost, and any error that the work raised."""
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
        """Send an item that has no result."""
        if self._broken is None:
            self._put(NO_ANSWER, item)

    def fail(self, error: BaseException) -> None:
        """Raise `error` in all waiting callers."""
        for future in self._asked.values():
            if not future.done():
                future.set_exception(error)

    async def run(self) -> None:
        """Collect results until the worker is lost (then return) or this task is cancelled."""
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
        """Post items until the actor has received them. The actor ignores items that arrive twice."""
        ray = ray_module()
        while self._broken is None:
            try:
                await self.desk.post.remote(self.job, parcels, dropped)
                return
            except ray.exceptions.ActorUnavailableError:
                await asyncio.sleep(1)
            except ray.exceptions.RayError:
                return  # `run` gets the error, too

    def _break(self, error: BaseException | None) -> None:
        if self._broken is None:
            said = "" if error is None else str(error).strip().split("\n")[0]
            self._broken = Lost(said or "the worker was let go")
            self._broken.__cause__ = error
        if self._flush_at is not None:
            self._flush_at.cancel()
            self._flush_at = None
        self.fail(self._broken)
