"""A provider that completes requests in Ray workers; everything else stays in the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.engine.rate_limiter import RateLimiter
from critic_prm.engine.ray.connection import Lost
from critic_prm.engine.ray.pool import Needs, Pool
from critic_prm.engine.ray.shared_limiter import SharedLimiter
from critic_prm.errors import ProviderError
from critic_prm.providers.provider import Marked, Provider, RawReply, Reply, Request, Wire
from critic_prm.providers.vllm_in_process import ENGINE, engine_arguments


def spread(provider: Provider, judging: JudgeOptions, start: int) -> tuple[RemoteProvider, RateLimiter]:
    """Return a provider that completes its requests in the workers of `judging.cluster`, and their shared rate limiter.

    One limiter enforces a server's limits for the whole cluster and all of its jobs. A model that each worker loads itself has
    no rate limit, so it starts at full concurrency.
    """
    cluster = judging.cluster
    assert cluster is not None
    loads = "near" in getattr(provider, "gives", ())
    pool = Pool(cluster, partial(_open, provider, os.environ.get(ENGINE)), _needs(cluster, loads))
    start = judging.max_connections if loads else start
    gate = SharedLimiter(
        judging.max_connections,
        provider,
        cluster,
        rpm=judging.rpm,
        tpm=judging.tpm,
        start=start,
        ready=pool.ready,
        waits=pool.waits,
    )
    return RemoteProvider(provider, pool, gate), gate


@dataclass
class RemoteProvider:
    """Converts requests and parses replies with `inner` in the driver; a worker's copy of `inner` sends the requests."""

    inner: Provider
    pool: Pool
    gate: SharedLimiter = field(repr=False)
    name: str = field(init=False)
    model: str = field(init=False)
    base_url: str | None = field(init=False)
    gives: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.name, self.model, self.base_url = self.inner.name, self.inner.model, self.inner.base_url
        self.gives = frozenset(getattr(self.inner, "gives", ()))

    def wire(self, request: Request) -> Wire:
        return self.inner.wire(request)

    def marked(self, wire: Wire, request: Request, whole: bool) -> Marked:
        mark = getattr(self.inner, "marked", None)
        return Marked(wire) if mark is None else mark(wire, request, whole)

    async def complete(self, wire: Wire) -> RawReply:
        """Complete a request in a worker. Raises ProviderError.

        A lost worker is a transient failure: its requests are sent again, and the retries are counted.
        """
        try:
            arrival: RawReply = await self.pool.do(wire)
        except Lost as error:
            raise ProviderError(f"the worker was lost: {error}", "transient", detail="worker lost") from error
        return arrival

    def read(self, raw: Mapping[str, Any]) -> Reply:
        return self.inner.read(raw)

    async def close(self) -> None:
        await self.pool.close()
        await self.gate.close()
        await self.inner.close()


def _needs(cluster: RayOptions, loads: bool) -> Needs:
    """Return a worker's resources. One that loads a model asks for as many GPUs as a copy uses, if the cluster has any."""
    if cluster.worker_gpus is not None or not loads:
        return Needs(gpus=cluster.worker_gpus or 0.0)
    said = engine_arguments()
    return Needs(gpus=float(said.get("tensor_parallel_size", 1) * said.get("pipeline_parallel_size", 1)), gpus_if_any=True)


def _open(provider: Provider, engine: str | None) -> Completing:
    if engine is not None:
        os.environ[ENGINE] = engine
    with suppress(ImportError):
        import aiohttp  # noqa: F401  (import it now: requests that hold a lease would wait for it and then go out in a burst)
    return Completing(provider)


@dataclass
class Completing:
    """The work of a worker: send request bodies through its provider."""

    provider: Provider

    async def do(self, job: str, item: Wire) -> RawReply:
        return await self.provider.complete(item)

    def state(self) -> Any:
        return None

    def gone(self, job: str) -> None:
        """Do nothing: the actor has already cancelled the job's requests."""

    async def close(self) -> None:
        await self.provider.close()
