"""Rate limiter shared by a Ray cluster: a named actor grants leases to all workers and jobs."""

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
"""Seconds within which a lost limiter actor must be replaced."""


class Join(NamedTuple):
    """First message of a job: its maximum and initial concurrency and its limits per minute."""

    most: int
    rpm: float | None
    tpm: float | None
    start: int


class Enter(NamedTuple):
    """Ask for a lease to send one request. A lease is identified by its unique admission time."""


class Leave(NamedTuple):
    """Release the lease of a finished request."""

    lease: float
    tokens: int
    accepted: bool


class Throttled(NamedTuple):
    """Release the lease of a request that got a 429."""

    lease: float
    retry_after: float | None


class State(NamedTuple):
    """The limiter's state, sent with every answer: concurrency limit, seconds of cooldown left, requests per second."""

    limit: float
    waiting: float
    pace: float | None


@dataclass
class LimiterActor:
    """The work of the named actor: one adaptive limiter for all jobs that send to the same server with the same key."""

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
        elif self.leases.pop(item.lease, None) is not None:  # ignore a lease that was already released
            if isinstance(item, Throttled):
                self.gate.throttle(item.lease, item.retry_after)
            else:
                self.gate.leave(item.lease, tokens=item.tokens, accepted=item.accepted)
        return None

    def state(self) -> State | None:
        return None if self.gate is None else State(self.gate.limit, self.gate.waiting(), self.gate.pace)

    def gone(self, job: str) -> None:
        """Release the leases of a driver that is gone."""
        for lease in [lease for lease, whose in self.leases.items() if whose == job]:
            del self.leases[lease]
            assert self.gate is not None
            self.gate.leave(lease, accepted=False)
        if self.jobs.pop(job, None) is not None:
            self._resize()

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _join(self, job: str, asked: Join) -> None:
        if self.gate is None:
            self.gate = AdaptiveLimiter(asked.most, start=asked.start)
        self.gate.restrict(rpm=asked.rpm, tpm=asked.tpm)
        more = asked.most - (self.jobs[job].most if job in self.jobs else 0)
        self.jobs[job] = asked
        self._resize()
        if len(self.jobs) > 1 and more > 0 and not self.gate.throttled:
            # A later job starts with the same initial concurrency as the first, unless the server has throttled any job.
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
    """A job's client of the cluster's limiter actor; a RateLimiter.

    The job's own maximum (`most`) is enforced here. The actor adapts to the server's limits for all jobs together. `ready`
    waits until a worker can send what is admitted. An actor that is lost with its node is created again and starts adapting
    from the beginning.
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
        """Return a status text that says what sending waits for; empty if nothing."""
        return self._waits()

    def waiting(self) -> float:
        state = self._state
        return 0.0 if state is None else state.waiting

    async def enter(self) -> float:
        place = await self._places.enter()
        try:
            # Leases held until workers are available would all be used at once then, in a burst.
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
        """Disconnect from the limiter actor and leave the cluster."""
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
                with suppress(Exception):  # otherwise the name would still refer to the lost actor
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
        """Connect to the actor of this name. If there is none, create it on this node, so that it lives as long as the node."""
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
    """Return the actor's name, which is the same for all jobs that share a provider's limits: server, model and key."""
    parts = (provider.name, provider.model, without_secrets(provider.base_url) or "", str(getattr(provider, "key", "")))
    return "critic-prm-gate-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
