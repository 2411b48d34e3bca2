"""Pool of Ray workers: send each item to the least busy worker, and replace lost workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from critic_prm.engine.options import RayOptions
from critic_prm.engine.ray import session
from critic_prm.engine.ray.connection import Lost, WorkerConnection
from critic_prm.engine.ray.worker_actor import Work, WorkerActor, own_version, result_of
from critic_prm.errors import ConfigError, CriticPrmError

PATIENCE = 120.0
"""Seconds within which Ray must place a worker on a node; loading its model may take longer."""

FAREWELL = 30.0
"""Seconds that a worker gets to close its connections or unload its model before it is killed."""

STILLBORN = 5
"""The pool gives up after this many consecutive workers per slot were lost without returning any result."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of a worker. With `gpus_if_any`, it asks for no GPU if the cluster has none."""

    cpus: float = 1.0
    gpus: float = 0.0
    gpus_if_any: bool = False


class Pool:
    """`cluster.workers` worker actors that do the same work. They start with the first item. Close the pool when done.

    `lost` counts workers that were lost during the run; `places` maps each slot to the host and process of its last worker.
    """

    def __init__(self, cluster: RayOptions, opener: Callable[[], Work], needs: Needs = Needs()) -> None:
        self.cluster, self.needs = cluster, needs
        self.lost = 0
        self.places: dict[int, tuple[str, int]] = {}
        self._opener = opener
        self._lines: dict[int, WorkerConnection] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._there = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None
        self._failed: CriticPrmError | None = None
        self._stillborn = 0

    async def do(self, item: Any) -> Any:
        """Return the result of `item`.

        Raises Lost when its worker is lost, ConfigError when no worker can be started, and any error that the work raised.
        """
        while not self._lines:
            await self.ready()
        line = min(self._lines.values(), key=lambda line: line.out)
        return await line.ask(item)

    async def ready(self) -> None:
        """Wait until a worker is available. Raises ConfigError when none can be started."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        if not self._lines and self._failed is None:
            await asyncio.shield(self._starting)
            await self._there.wait()
        if self._failed is not None:
            raise self._failed

    def waits(self) -> str:
        """Return a status text about workers that have not started yet; empty if there are none."""
        missing = self.cluster.workers - len(self._lines)
        return f"waiting for {missing} of {self.cluster.workers} workers" if missing and self._starting is not None else ""

    async def close(self) -> None:
        """End the workers and leave the cluster."""
        if self._starting is None:
            return
        with suppress(CriticPrmError):
            await self._starting
        farewells = [line.desk.close.remote() for line in self._lines.values()]
        with suppress(TimeoutError, Exception):  # a worker that is lost at this moment has nothing left to close
            async with asyncio.timeout(FAREWELL):
                await asyncio.gather(*(_of(farewell) for farewell in farewells), return_exceptions=True)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._starting.exception() is None:
            await asyncio.to_thread(session.leave)
        self._starting = None

    async def _start(self) -> None:
        await asyncio.to_thread(session.join, self.cluster)
        if self.needs.gpus_if_any and not session.ray_module().cluster_resources().get("GPU"):
            self.needs = replace(self.needs, gpus=0.0)
        opener = session.ray_module().cloudpickle.dumps(self._opener)
        self._keepers = [asyncio.create_task(self._keep(slot, opener)) for slot in range(self.cluster.workers)]

    async def _keep(self, slot: int, opener: bytes) -> None:
        """Keep one slot filled: start a new worker whenever one is lost, until the pool gives up."""
        while self._failed is None:
            line: WorkerConnection | None = None
            desk = None
            try:
                desk = self._hire()
                self.places[slot] = await self._begin(desk, opener)
                line = self._lines[slot] = WorkerConnection(desk)
                self._there.set()
                await line.run()
            except CriticPrmError as error:
                if not self._lines:
                    self._give_up(error)
            except session.ray_module().exceptions.RayError as error:
                self._not_placed(error)
            except Exception as error:  # the cluster itself is lost or cannot run such a worker
                self._give_up(ConfigError(f"the cluster cannot be used: {type(error).__name__}: {error}"))
            finally:
                self._lines.pop(slot, None)
                if not self._lines and self._failed is None:
                    self._there.clear()
                with suppress(Exception):
                    session.ray_module().kill(desk)
            if line is not None:
                self.lost += 1
            self._stillborn = 0 if line is not None and line.answers else self._stillborn + 1
            if self._stillborn >= STILLBORN * self.cluster.workers:
                self._give_up(ConfigError(f"workers are lost as soon as they begin ({session.free()}); see the logs of Ray"))
            await asyncio.sleep(0.2 if line is not None else 1.0)

    def _hire(self) -> Any:
        ray = session.ray_module()
        return (
            ray.remote(WorkerActor)
            .options(
                num_cpus=self.needs.cpus,
                num_gpus=self.needs.gpus,
                max_restarts=0,  # the pool starts a replacement itself and knows the items that the lost worker had
                max_concurrency=1000,
                scheduling_strategy="SPREAD",
            )
            .remote()
        )

    async def _begin(self, desk: Any, opener: bytes) -> tuple[str, int]:
        """Wait until the worker is placed, then until its work is loaded. Returns its host and process id."""
        placed = asyncio.ensure_future(_of(desk.here.remote()))
        try:
            done, _ = await asyncio.wait({placed}, timeout=PATIENCE)
        except asyncio.CancelledError:
            placed.cancel()
            raise
        if not done:
            placed.cancel()
            asked = f"{self.needs.cpus:g} CPU" + (f" and {self.needs.gpus:g} GPU" if self.needs.gpus else "")
            raise ConfigError(
                f"no worker with {asked} could be placed in {PATIENCE:g} s: the cluster has {session.free()};"
                " ask for fewer with --workers, or add nodes"
            )
        place: tuple[str, int] = await placed
        there, here = result_of(await desk.open.remote(opener)), own_version()
        if there != here:
            raise ConfigError(f"a node of the cluster has critic-prm {there!r}, here it is {here!r}; install the same")
        return place

    def _not_placed(self, error: Exception) -> None:
        said = str(error).strip().split("\n")
        missing = next((line for line in said if "ModuleNotFoundError" in line or "ImportError" in line), None)
        if missing is not None and not self._lines:
            self._give_up(ConfigError(f"the cluster's nodes cannot run critic-prm: {missing.strip()}; install it there, too"))

    def _give_up(self, error: CriticPrmError) -> None:
        self._failed = self._failed or error
        self._there.set()


async def _of(reference: Any) -> Any:
    return await reference


__all__ = ["Lost", "Needs", "Pool"]
