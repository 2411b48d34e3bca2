"""Complete requests in Ray workers, within rate limits that an actor enforces for the whole cluster."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from critic_prm.engine.limiter import AdaptiveLimiter
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.engine.ray import workers
from critic_prm.engine.ray.workers import CONCURRENCY, Needs, Pool, WorkerLost, ray_module
from critic_prm.errors import ConfigError, ProviderError
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.provider import Provider, RateLimits, RawReply, Wire

PATIENCE = 120.0
"""Seconds within which a lost limiter actor must be replaced."""

PULSE = 1.0
"""Seconds between two reports of a job to the limiter actor."""

SILENCE = 60.0
"""Seconds without a report after which a job counts as gone; its leases are released."""


def spread(provider: Provider, options: JudgeOptions, start: int) -> tuple[RemoteSender, SharedLimiter]:
    """Return what sends a provider's requests in the workers of `options.cluster`, and their shared rate limiter.

    One limiter enforces a server's limits for the whole cluster and all of its jobs. A model that each worker loads itself has
    no rate limit, so it starts at full concurrency.
    """
    cluster = options.cluster
    assert cluster is not None
    loads = "in-process" in provider.capabilities
    pool = Pool(cluster, partial(_open, provider), _needs(cluster, provider))
    limits = JobLimits(options.max_connections, options.rpm, options.tpm, options.max_connections if loads else start)
    limiter = SharedLimiter(provider, cluster, limits, pool.ready, pool.waits)
    return RemoteSender(provider, pool, limiter), limiter


def _needs(cluster: RayOptions, provider: Provider) -> Needs:
    """Return a worker's resources. One that loads a model asks for as many GPUs as a copy uses, if the cluster has any."""
    if cluster.worker_gpus is not None or not provider.gpus:
        return Needs(gpus=cluster.worker_gpus or 0.0)
    return Needs(gpus=provider.gpus, gpus_if_any=True)


def _open(provider: Provider) -> Completing:
    with suppress(ImportError):
        import aiohttp  # noqa: F401  (import it now: requests that hold a lease would wait for it and then go out in a burst)
    return Completing(provider)


@dataclass
class Completing:
    """The work of a worker: send request bodies through its provider."""

    provider: Provider

    async def do(self, item: Wire) -> RawReply:
        return await self.provider.complete(item)

    async def close(self) -> None:
        await self.provider.close()


@dataclass
class RemoteSender:
    """Sends request bodies in workers, each with its own copy of `provider`."""

    provider: Provider
    pool: Pool
    limiter: SharedLimiter = field(repr=False)

    async def complete(self, wire: Wire) -> RawReply:
        """Complete a request in a worker. Raises ProviderError.

        A lost worker is a transient failure: its requests are sent again, and the retries are counted.
        """
        try:
            reply: RawReply = await self.pool.do(wire)
        except WorkerLost as error:
            raise ProviderError(f"the worker was lost: {error}", "transient", detail="worker lost") from error
        return reply

    async def close(self) -> None:
        await self.pool.close()
        await self.limiter.close()
        await self.provider.close()


class JobLimits(NamedTuple):
    """What a job asks of the limiter actor."""

    most: int
    """Maximum concurrency."""
    rpm: float | None = None
    """Maximum requests per minute."""
    tpm: float | None = None
    """Maximum tokens per minute."""
    start: int = 1
    """Initial concurrency."""


class LimiterState(NamedTuple):
    """The state of the limiter actor, for display."""

    limit: float
    """Concurrency limit."""
    waiting: float
    """Seconds until the cooldown ends."""
    pace: float | None
    """Requests per second; None before the first 429."""


class LimiterActor:
    """The named Ray actor: one adaptive limiter for all jobs that send to the same server with the same key.

    A job chooses the number of each lease, so a call that Ray repeats after a broken connection has no further effect.
    """

    def __init__(self) -> None:
        self.limiter: AdaptiveLimiter | None = None
        self.jobs: dict[str, JobLimits] = {}
        self._leases: dict[tuple[str, float], asyncio.Task[float]] = {}
        self._reported: dict[str, float] = {}

    async def process(self) -> int:
        """Return the process id."""
        return os.getpid()

    async def join(self, job: str, limits: JobLimits) -> None:
        """Add a job, or change its limits. The strictest rates of all jobs apply, and their concurrencies add up."""
        if self.limiter is None:
            self.limiter = AdaptiveLimiter(limits.most, start=limits.start)
        self._reported[job] = time.monotonic()
        self.limiter.restrict(rpm=limits.rpm, tpm=limits.tpm)
        more = limits.most - (self.jobs[job].most if job in self.jobs else 0)
        self.jobs[job] = limits
        self._resize()
        if len(self.jobs) > 1 and more > 0 and not self.limiter.throttled:
            # A later job starts with the same initial concurrency as the first, unless the server has throttled any job.
            self.limiter.limit = min(self.limiter.limit + min(more, limits.start), self.limiter.most)
            self.limiter.resize(self.limiter.most)

    async def enter(self, job: str, lease: float) -> None:
        """Wait until the job may send one request."""
        assert self.limiter is not None, "a job joins before it asks"
        if (task := self._leases.get((job, lease))) is None:
            task = self._leases[job, lease] = asyncio.ensure_future(self.limiter.enter())
        with suppress(asyncio.CancelledError):  # released in the meantime
            await asyncio.shield(task)

    async def leave(self, job: str, lease: float, tokens: int = 0, accepted: bool = False) -> None:
        """Release the lease of a finished request."""
        if self.limiter is not None and (entered := self._released(job, lease)) is not None:
            self.limiter.leave(entered, tokens=tokens, accepted=accepted)

    async def throttle(self, job: str, lease: float, retry_after: float | None) -> None:
        """Release the lease of a request that got a 429."""
        if self.limiter is not None and (entered := self._released(job, lease)) is not None:
            self.limiter.throttle(entered, retry_after)

    async def heed(self, job: str, allowance: RateLimits) -> None:
        """Apply rate-limit headers."""
        if self.limiter is not None:
            self.limiter.heed(allowance)

    async def report(self, job: str) -> LimiterState:
        """Return the state, note that the job is alive, and release the leases of jobs that are gone."""
        assert self.limiter is not None, "a job joins before it reports"
        now = self._reported[job] = time.monotonic()
        for other in [name for name, last in self._reported.items() if now - last > SILENCE]:
            await self.drop(other)
        return LimiterState(self.limiter.limit, self.limiter.waiting(), self.limiter.pace)

    async def drop(self, job: str) -> None:
        """Remove a job and release its leases."""
        for owner, lease in list(self._leases):
            if owner == job:
                await self.leave(owner, lease)
        self._reported.pop(job, None)
        if self.jobs.pop(job, None) is not None:
            self._resize()

    def _released(self, job: str, lease: float) -> float | None:
        """Forget a lease and return when it was granted; None if it was not, or is unknown."""
        task = self._leases.pop((job, lease), None)
        if task is None or not task.done():
            if task is not None:
                task.cancel()
            return None
        return task.result()

    def _resize(self) -> None:
        assert self.limiter is not None
        self.limiter.resize(sum(limits.most for limits in self.jobs.values()))


class SharedLimiter:
    """A job's client of the cluster's limiter actor, in place of an AdaptiveLimiter, whose methods it has.

    The job's own maximum (`most`) is enforced here. The actor adapts to the server's limits for all jobs together. `ready`
    waits until a worker can send what is admitted. An actor that is lost with its node is created again and starts adapting
    from the beginning.
    """

    def __init__(
        self,
        provider: Provider,
        cluster: RayOptions,
        limits: JobLimits,
        ready: Callable[[], Awaitable[None]],
        waits: Callable[[], str] = str,
    ) -> None:
        self.waits = waits
        self.actor: Any = None
        self._provider, self._cluster, self._limits, self._ready = provider, cluster, limits, ready
        self._local = AdaptiveLimiter(limits.most, fixed=True)
        self._job = uuid.uuid4().hex
        self._leases = count(1)
        self._lost: Any = None
        self._state: LimiterState | None = None
        self._joined = False
        self._reporting: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._shut: Exception | None = None
        self._calls: set[asyncio.Future[Any]] = set()

    @property
    def most(self) -> int:
        return self._local.most

    @property
    def out(self) -> int:
        return self._local.out

    @property
    def limit(self) -> float:
        return float(self.most) if self._state is None else min(self._state.limit, float(self.most))

    @property
    def pace(self) -> float | None:
        return None if self._state is None else self._state.pace

    def waiting(self) -> float:
        return 0.0 if self._state is None else self._state.waiting

    async def enter(self) -> float:
        place, lease = await self._local.enter(), float(next(self._leases))
        try:
            # Leases held until workers are available would all be used at once then, in a burst.
            await self._ready()
            while True:
                actor = self.actor or await self._connect()
                with suppress(ray_module().exceptions.RayError):
                    await self._call(actor.enter.remote(self._job, lease))
                    return lease
                if self.actor is actor:
                    self.actor, self._lost = None, actor
        except BaseException:
            self._local.leave(place, accepted=False)
            self._tell("leave", lease)
            raise

    def leave(self, entered: float, *, tokens: int = 0, accepted: bool = True) -> None:
        self._local.leave(entered, accepted=accepted)
        self._tell("leave", entered, tokens, accepted)

    def throttle(self, entered: float, retry_after: float | None) -> None:
        self._local.leave(entered, accepted=False)
        self._tell("throttle", entered, retry_after)

    def heed(self, allowance: RateLimits) -> None:
        if 0 in (allowance.requests, allowance.tokens):
            self._tell("heed", allowance)

    def resize(self, most: int) -> None:
        self._local.resize(most)
        self._limits = self._limits._replace(most=self.most)
        self._tell("join", self._limits)

    def shut(self, error: Exception) -> None:
        self._shut = self._shut or error
        self._local.shut(self._shut)
        for call in self._calls:
            call.cancel()

    async def close(self) -> None:
        """Tell the limiter actor that the job is over, and leave the cluster."""
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
            self._reporting = None
        self._tell("drop")
        if self._joined:
            self._joined = False
            await asyncio.to_thread(workers.leave)

    async def _call(self, reference: Any) -> None:
        """Wait for a call of the actor. Raises the error of `shut` when the run is stopped."""
        call = asyncio.ensure_future(reference)
        self._calls.add(call)
        try:
            await call
        except asyncio.CancelledError:
            if self._shut is not None:
                raise self._shut from None
            raise
        finally:
            self._calls.discard(call)

    def _tell(self, method: str, *arguments: Any) -> None:
        """Call the actor without waiting for the result."""
        if self.actor is not None:
            getattr(self.actor, method).remote(self._job, *arguments)

    async def _report(self, actor: Any) -> None:
        with suppress(ray_module().exceptions.RayError):  # `enter` replaces a lost actor
            while True:
                self._state = await actor.report.remote(self._job)
                await asyncio.sleep(PULSE)

    async def _connect(self) -> Any:
        async with self._connecting:
            if self._shut is not None:
                raise self._shut
            if self.actor is not None:
                return self.actor
            if not self._joined:
                await asyncio.to_thread(workers.join, self._cluster)
                self._joined = True
            ray = ray_module()
            if self._lost is not None:
                with suppress(Exception):  # otherwise the name would still refer to the lost actor
                    ray.kill(self._lost)
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    actor = self._find()
                    await actor.join.remote(self._job, self._limits)
                    break
                except ray.exceptions.RayError as error:
                    if time.monotonic() > deadline:
                        reason = str(error).split("\n", 1)[0]
                        message = f"the cluster's rate limiter cannot be started: {reason}; check `ray status`"
                        raise ConfigError(message) from error
                await asyncio.sleep(0.5)
            if self._reporting is not None:
                self._reporting.cancel()
            self.actor, self._reporting = actor, asyncio.create_task(self._report(actor))
            return actor

    def _find(self) -> Any:
        """Find the actor by name. If there is none, create it on this node, so that it lives as long as the node."""
        ray = ray_module()
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = ray.get_runtime_context().get_node_id()
        options: dict[str, Any] = {
            "name": limiter_name(self._provider),
            "get_if_exists": True,
            "num_cpus": 0,
            "max_concurrency": CONCURRENCY,
            "max_task_retries": -1,  # as long as the actor lives; repeated calls have no further effect
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
        }
        return ray.remote(LimiterActor).options(**options).remote()


def limiter_name(provider: Provider) -> str:
    """Return the actor's name, which is the same for all jobs that share a provider's limits: server, model and key."""
    parts = (provider.name, provider.model, without_secrets(provider.base_url) or "", *provider.secrets)
    return "critic-prm-limiter-" + hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
