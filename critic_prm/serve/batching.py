"""Batch trajectories from concurrent requests: those that arrive while the critic works form the next batch."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from critic_prm.data import Critic, Judgement, Label, Trajectory, combine
from critic_prm.errors import CriticPrmError
from critic_prm.serve.openapi import Refused
from critic_prm.serve.settings import ServeSettings

MAX_LOCAL_BATCH = 32
"""Maximum batch size of a local critic. Larger batches gain little and increase the latency of every request in them."""

LONG = 64
"""After judging a solution with this many steps, yield to the event loop before building the next label."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """One request: its trajectories, the labels so far, and the future that the client waits for."""

    trajectories: Sequence[Trajectory]
    done: asyncio.Future[list[Label]]
    labels: list[Label | None]
    missing: int


@dataclass(slots=True)
class Batcher:
    """Queues trajectories and passes them to the critic in batches, first come, first served.

    A batch never waits to fill up: it consists of what arrived while the previous batch was judged. `judged` is called with the
    size of every batch. Requests whose client has disconnected are left out of later batches.
    """

    critic: Critic
    settings: ServeSettings
    judged: Callable[[int], None] = lambda size: None
    waiting: int = 0
    """Number of queued trajectories that are not in a batch yet."""
    _queue: deque[tuple[_Ticket, int]] = field(default_factory=deque)
    _more: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _speed: float = 0.0

    def start(self) -> None:
        """Start working on the running event loop."""
        crew = 1 if self.critic.batch > 1 else self.settings.max_connections
        self._tasks = [asyncio.create_task(self._work()) for _ in range(crew)]

    async def stop(self) -> None:
        """Stop working. Pending requests get a CancelledError."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for ticket, _ in self._queue:
            ticket.done.cancel()
        self._queue.clear()

    @property
    def batch(self) -> int:
        return self.settings.max_batch or min(self.critic.batch, MAX_LOCAL_BATCH)

    def submit(self, trajectories: Sequence[Trajectory]) -> asyncio.Future[list[Label]]:
        """Queue trajectories and return a future for their labels, in order. Cancel the future if the labels are no longer
        needed.

        Raises Refused (429) if the queue limit would be exceeded. A request larger than the whole queue is accepted if the
        queue is empty.
        """
        future: asyncio.Future[list[Label]] = asyncio.get_running_loop().create_future()
        if not trajectories:
            future.set_result([])
            return future
        if self.waiting and self.waiting + len(trajectories) > self.settings.max_queue:
            seconds = self._retry_after()
            raise Refused(429, f"{self.waiting} solutions are waiting; try again in {seconds} s", retry_after=str(seconds))
        ticket = _Ticket(trajectories, future, [None] * len(trajectories), len(trajectories))
        self._queue.extend((ticket, index) for index in range(len(trajectories)))
        self.waiting += len(trajectories)
        self._more.set()
        return future

    def _retry_after(self) -> int:
        """The estimated time, in whole seconds, until there is room in the queue."""
        seconds = self.waiting / self._speed if self._speed else 1.0
        return min(max(math.ceil(seconds), 1), 60)

    def _take(self) -> list[tuple[_Ticket, int]]:
        part: list[tuple[_Ticket, int]] = []
        while self._queue and len(part) < self.batch:
            ticket, index = self._queue.popleft()
            self.waiting -= 1
            if not ticket.done.done():
                part.append((ticket, index))
        if not self._queue:
            self._more.clear()
        return part

    async def _work(self) -> None:
        while True:
            await self._more.wait()
            if part := self._take():
                await self._answer(part)

    async def _answer(self, part: list[tuple[_Ticket, int]]) -> None:
        began = time.perf_counter()
        try:
            labels = await self._judge([ticket.trajectories[index] for ticket, index in part])
        except asyncio.CancelledError:
            for ticket, _ in part:
                ticket.done.cancel()
            raise
        except Exception as error:
            if len(part) > 1 and not isinstance(error, CriticPrmError):  # an error in one solution must not fail the others
                for entry in part:
                    await self._answer([entry])
                return
            for ticket, _ in part:
                if not ticket.done.done():
                    ticket.done.set_exception(error)
            return
        self._measure(len(part), time.perf_counter() - began)
        for (ticket, index), label in zip(part, labels, strict=True):
            ticket.labels[index] = label
            ticket.missing -= 1
            if not ticket.missing and not ticket.done.done():
                ticket.done.set_result([label for label in ticket.labels if label is not None])

    async def _judge(self, trajectories: Sequence[Trajectory]) -> list[Label]:
        samples = self.settings.samples if self.critic.stochastic else 1
        rounds: list[list[Judgement]] = await asyncio.gather(*(self.critic.judge(trajectories, n) for n in range(samples)))
        labels = []
        for row, trajectory in zip(zip(*rounds, strict=True), trajectories, strict=True):
            labels.append(combine(row, len(trajectory.steps)))
            if len(trajectories) > 1 and len(trajectory.steps) > LONG:
                await asyncio.sleep(0)
        return labels

    def _measure(self, size: int, seconds: float) -> None:
        self.judged(size)
        crew = len(self._tasks) or 1
        speed = size * crew / max(seconds, 1e-6)
        self._speed = 0.8 * self._speed + 0.2 * speed if self._speed else speed
