"""The one gate of a cluster: a named actor hands out leases, so that a provider's limits hold for all workers and jobs."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from critic_prm.engine.adaptive_limiter import AdaptiveLimiter
from critic_prm.engine.options import RayOptions
from critic_prm.engine.ray import session
from critic_prm.engine.ray.connection import Lost, WorkerConnection
from critic_prm.engine.ray.worker_actor import WorkerActor, result_of
from critic_prm.errors import ConfigError
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.provider import Provider, RateLimits

PATIENCE = 120.0
"""Seconds until there must be a gate again where one was lost."""


class Join(NamedTuple):
    """A job's first word: the most it wants out at once, its limits a minute, and how many to begin with."""

    most: int
    rpm: float | None
    tpm: float | None
    start: int


class Enter(NamedTuple):
    """Ask for a lease: one request may go out. Its name is the time of entry, no two alike."""


class Leave(NamedTuple):
    lease: float
    tokens: int
    accepted: bool


class Throttled(NamedTuple):
    lease: float
    retry_after: float | None


class State(NamedTuple):
    """What the gate says of itself with every answer: places in all, seconds that it is shut, requests a second."""

    limit: float
    waiting: float
    pace: float | None


@dataclass
class LimiterActor:
    """In the named actor: one adaptive gate for everybody who sends to the same door."""

    gate: AdaptiveLimiter | None = None
    jobs: dict[str, Join] = field(default_factory=dict)
    leases: dict[float, str] = field(default_factory=dict)
    _last: float = 0.0

    async def do(self, job: str, item: Any) -> float | None:
        if isinstance(item, Join):
            self._join(job, item)
            return None
        assert self.gate is not None, "a job joins before it asks"
        if isinstance(item, Enter):
            return self._lease(job, await self.gate.enter())
        if isinstance(item, RateLimits):
            self.gate.heed(item)
        elif self.leases.pop(item.lease, None) is not None:  # of a lease that was given up already, nothing is left to say
            if isinstance(item, Throttled):
                self.gate.throttle(item.lease, item.retry_after)
            else:
                self.gate.leave(item.lease, tokens=item.tokens, accepted=item.accepted)
        return None

    def state(self) -> State | None:
        return None if self.gate is None else State(self.gate.limit, self.gate.waiting(), self.gate.pace)

    def gone(self, job: str) -> None:
        """A driver that went away leaves no places taken."""
        for lease in [lease for lease, whose in self.leases.items() if whose == job]:
            del self.leases[lease]
            assert self.gate is not None
            self.gate.leave(lease, accepted=False)
        if self.jobs.pop(job, None) is not None:
            self._resize()

    async def close(self) -> None:
        """Nothing is held open."""

    def _join(self, job: str, asked: Join) -> None:
        if self.gate is None:
            self.gate = AdaptiveLimiter(asked.most, start=asked.start)
        self.gate.restrict(rpm=asked.rpm, tpm=asked.tpm)
        more = asked.most - (self.jobs[job].most if job in self.jobs else 0)
        self.jobs[job] = asked
        self._resize()
        if len(self.jobs) > 1 and more > 0 and not self.gate.throttled:
            # Who comes later begins as the first did, as long as the server has not complained of anybody.
            self.gate.limit = min(self.gate.limit + min(more, asked.start), self.gate.most)
            self.gate.resize(self.gate.most)

    def _resize(self) -> None:
        assert self.gate is not None
        self.gate.resize(sum(joined.most for joined in self.jobs.values()))

    def _lease(self, job: str, entered: float) -> float:
        self._last = max(entered, math.nextafter(self._last, math.inf))
        self.leases[self._last] = job
        return self._last


class SharedLimiter:
    """A job's way to the gate of its cluster; to the engine it is a gate like any other.

    Places of the job's own (`most`) are kept here; the server's limits and moods are learned there, together with the other
    jobs. `ready` waits until there is somebody to send what has entered. A gate that is lost with its node is made anew, and
    begins to learn again.
    """

    def __init__(
        self,
        most: int,
        provider: Provider,
        cluster: RayOptions,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        start: int,
        ready: Callable[[], Awaitable[None]],
        waits: Callable[[], str] = str,
    ) -> None:
        self._ready, self._waits = ready, waits
        self._places = AdaptiveLimiter(most, fixed=True)
        self._limits = (rpm, tpm, start)
        self._cluster = cluster
        self.name = door_name(provider)
        self._line: WorkerConnection | None = None
        self._lost: Any = None
        self._joined = False
        self._running: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._shut: Exception | None = None

    @property
    def most(self) -> int:
        return self._places.most

    @property
    def out(self) -> int:
        return self._places.out

    @property
    def limit(self) -> float:
        state = self._state
        return float(self.most) if state is None else min(state.limit, float(self.most))

    @property
    def pace(self) -> float | None:
        state = self._state
        return None if state is None else state.pace

    def waits(self) -> str:
        """What nothing can be sent for at present, "" where nothing is."""
        return self._waits()

    def waiting(self) -> float:
        state = self._state
        return 0.0 if state is None else state.waiting

    async def enter(self) -> float:
        place = await self._places.enter()
        try:
            # A lease that would lie about until there are workers would let too many go at once then.
            await self._ready()
            while True:
                line = self._line or await self._connect()
                with suppress(Lost):
                    lease: float = await line.ask(Enter())
                    return lease
                if self._line is line:
                    self._line, self._lost = None, line.desk
        except BaseException:
            self._places.leave(place, accepted=False)
            raise

    def leave(self, entered: float, *, tokens: int = 0, accepted: bool = True) -> None:
        self._places.leave(entered, accepted=accepted)
        self._tell(Leave(entered, tokens, accepted))

    def throttle(self, entered: float, retry_after: float | None) -> None:
        self._places.leave(entered, accepted=False)
        self._tell(Throttled(entered, retry_after))

    def heed(self, allowance: RateLimits) -> None:
        if 0 in (allowance.requests, allowance.tokens):
            self._tell(allowance)

    def resize(self, most: int) -> None:
        self._places.resize(most)
        self._tell(Join(self.most, *self._limits))

    def shut(self, error: Exception) -> None:
        self._shut = self._shut or error
        self._places.shut(self._shut)
        if self._line is not None:
            self._line.fail(self._shut)

    async def close(self) -> None:
        """Give all leases back, and leave the cluster."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None
        if self._joined:
            self._joined = False
            await asyncio.to_thread(session.leave)

    @property
    def _state(self) -> State | None:
        return None if self._line is None else self._line.state

    def _tell(self, item: Any) -> None:
        if self._line is not None:
            self._line.tell(item)

    async def _connect(self) -> WorkerConnection:
        async with self._connecting:
            if self._shut is not None:
                raise self._shut
            if self._line is not None:
                return self._line
            if not self._joined:
                await asyncio.to_thread(session.join, self._cluster)
                self._joined = True
            if self._lost is not None:
                with suppress(Exception):  # or its name goes on to mean the actor that is gone
                    session.ray_module().kill(self._lost)
            given_up = time.monotonic() + PATIENCE
            while True:
                try:
                    return await self._find()
                except session.ray_module().exceptions.RayError as error:
                    if time.monotonic() > given_up:
                        said = str(error).split("\n", 1)[0]
                        raise ConfigError(f"the cluster's gate cannot be had: {said}; look with `ray status`") from error
                await asyncio.sleep(0.5)

    async def _find(self) -> WorkerConnection:
        """Open the actor of this name, which is made where it does not exist: on this node, so that it lives as long."""
        ray = session.ray_module()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = ray.get_runtime_context().get_node_id()
        desk = (
            ray.remote(WorkerActor)
            .options(
                name=self.name,
                get_if_exists=True,
                num_cpus=0,
                max_concurrency=1000,
                scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
            )
            .remote()
        )
        result_of(await desk.open.remote(ray.cloudpickle.dumps(LimiterActor)))
        line = WorkerConnection(desk, unclaimed=self._unclaimed)
        running = asyncio.create_task(line.run())
        try:
            await line.ask(Join(self.most, *self._limits))
        except Lost as error:
            raise ray.exceptions.RayError(str(error)) from error
        if self._running is not None:
            self._running.cancel()
        self._line, self._running = line, running
        return line

    def _unclaimed(self, lease: float | None) -> None:
        if lease is not None:
            self._tell(Leave(lease, 0, False))


def door_name(provider: Provider) -> str:
    """The name of the gate for whatever shares a provider's limits: the same server, model and key."""
    parts = (provider.name, provider.model, without_secrets(provider.base_url) or "", str(getattr(provider, "key", "")))
    return "critic-prm-gate-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
