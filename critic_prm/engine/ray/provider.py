"""Requests -> workers that complete them, each through a provider of its own; all else about asking stays in the driver."""

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
    """The provider whose requests are completed by the workers of `judging.cluster`, and the gate that they all go through.

    A server's limits are kept by one gate for the whole cluster, whoever asks; a model that each worker loads for itself has
    none, and may be given all there is to do.
    """
    cluster = judging.cluster
    assert cluster is not None
    loads = "near" in getattr(provider, "gives", ())
    pool = Pool(cluster, partial(_open, provider, os.environ.get(ENGINE)), _needs(cluster, loads))
    start = judging.connections if loads else start
    gate = SharedLimiter(
        judging.connections,
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
    """`inner` turns requests into bodies and reads replies, here; a worker's copy of it sends them."""

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
        """Raises ProviderError. A lost worker is a failure that may pass: what it had in hand is asked again, and counted."""
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
    """A worker that loads a model asks for the GPUs that one copy of it is spread over, where the cluster has any."""
    if cluster.gpus is not None or not loads:
        return Needs(gpus=cluster.gpus or 0.0)
    said = engine_arguments()
    return Needs(gpus=float(said.get("tensor_parallel_size", 1) * said.get("pipeline_parallel_size", 1)), gpus_if_any=True)


def _open(provider: Provider, engine: str | None) -> Completing:
    if engine is not None:
        os.environ[ENGINE] = engine
    with suppress(ImportError):
        import aiohttp  # noqa: F401  (now: requests with a lease would wait for it, and then go out all at once)
    return Completing(provider)


@dataclass
class Completing:
    """In a worker: bodies out, whatever the provider brings back."""

    provider: Provider

    async def do(self, job: str, item: Wire) -> RawReply:
        return await self.provider.complete(item)

    def state(self) -> Any:
        return None

    def gone(self, job: str) -> None:
        """The desk has cancelled what was under way."""

    async def close(self) -> None:
        await self.provider.close()
