"""Run work on a Ray cluster: connect to it, and keep a pool of worker actors that complete items."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import shutil
import socket
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from types import ModuleType
from typing import Any, Protocol

from critic_prm.engine.options import RayOptions
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, ProviderError, UsageError
from critic_prm.registry import install

NAMESPACE = "critic-prm"

STORE = 100 << 20
"""Object store size in bytes of a local Ray instance. It holds none of our data: results are returned in the calls."""

DEFAULTS = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Environment defaults for Ray. Its own niceness of 15 makes workers several times slower when anything else is running."""

PATIENCE = 120.0
"""Seconds within which Ray must place a worker on a node; loading its model may take longer."""

FAREWELL = 30.0
"""Seconds that a worker gets to close its connections or unload its model before it is killed."""

STILLBORN = 5
"""The pool gives up after this many consecutive workers per slot were lost without returning any result."""

CONCURRENCY = 100_000
"""Calls that an actor runs at once. Each waits for the network, and the driver limits their number."""

REMEMBERED = 1000
"""Number of finished items whose results a worker keeps, for calls that Ray repeats after a broken connection."""


@dataclass
class _Session:
    users: int = 0
    ours: bool = False
    folder: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_session = _Session()


def ray_module() -> ModuleType:
    """Import and return Ray. Raises a ConfigError that says how to install it."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"--engine ray needs Ray: {install('ray')}") from error
    module: ModuleType = ray
    return module


def join(options: RayOptions) -> None:
    """Connect to the cluster, or start a local one, unless already connected. Blocks for seconds. Raises ConfigError."""
    ray = ray_module()
    with _session.lock:
        if not ray.is_initialized():
            _connect(ray, options)
            _session.ours = True
        _session.users += 1


def leave() -> None:
    """Undo one `join`. The last call disconnects and stops a Ray instance that this process started."""
    with _session.lock:
        _session.users -= 1
        if _session.users == 0 and _session.ours:
            ray_module().shutdown()
            _session.ours = False
            if _session.folder is not None:
                shutil.rmtree(_session.folder, ignore_errors=True)
                _session.folder = None


def _connect(ray: ModuleType, options: RayOptions) -> None:
    address = options.ray_address or os.environ.get("RAY_ADDRESS")
    common: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's FutureWarnings about itself
            if address:
                ray.init(address=address, **common)
                return
            _session.folder = tempfile.mkdtemp(prefix="critic-prm-")
            cpus = max(os.cpu_count() or 1, options.workers)  # workers wait more than they compute
            local = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": STORE}
            ray.init(address="local", _temp_dir=_session.folder, **local, **common)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"connect to the Ray cluster at {address}" if address else "start Ray on this machine"
        reason = str(error).strip().split("\n")[0]
        raise ConfigError(f"cannot {where}: {reason}; check `ray status`, or name a cluster with --ray-address") from error


def _free() -> str:
    """Describe the cluster's free CPUs and GPUs for an error message."""
    ray = ray_module()
    total, left = ray.cluster_resources(), ray.available_resources()
    return ", ".join(f"{left.get(name, 0):g} of {total.get(name, 0):g} {name}s free" for name in ("CPU", "GPU"))


class Work(Protocol):
    """The work of a worker actor."""

    async def do(self, item: Any) -> Any:
        """Return the result of one item."""
        ...

    async def close(self) -> None: ...


Outcome = tuple[str, Any]
"""("ok", result), or a failure: ("provider", fields of a ProviderError), (name of another error, message)."""

ERRORS: dict[str, type[CriticPrmError]] = {
    "config": ConfigError,
    "budget": BudgetError,
    "usage": UsageError,
    "other": CriticPrmError,
}


class WorkerActor:
    """The Ray actor of a worker: completes items concurrently, one per call. It never opens a cache.

    Ray repeats a call after a broken connection, and an item may cost money. So an item is identified by its ticket, and a
    repeated call gets the result of the first one.
    """

    def __init__(self) -> None:
        self._work: Work | None = None
        self._tasks: dict[int, asyncio.Task[Outcome]] = {}
        self._closed = asyncio.Event()

    async def here(self) -> tuple[str, int]:
        """Return the worker's host and process id, as soon as it is placed."""
        return socket.gethostname(), os.getpid()

    async def open(self, opener: bytes) -> Outcome:
        """Create the work (load a model, open a provider). Returns the version of critic-prm on this node."""
        try:
            make: Callable[[], Work] = pickle.loads(opener)
            self._work = await asyncio.to_thread(make)
        except BaseException as error:
            return failure(error)
        return "ok", own_version()

    async def do(self, ticket: int, item: Any) -> Outcome:
        """Complete one item."""
        if (task := self._tasks.get(ticket)) is None:
            if len(self._tasks) > 2 * REMEMBERED:
                for number in [number for number, other in self._tasks.items() if other.done()][:REMEMBERED]:
                    del self._tasks[number]
            task = self._tasks[ticket] = asyncio.ensure_future(self._complete(item))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:  # the driver no longer waits for it
            task.cancel()
            raise

    async def until_closed(self) -> None:
        """Return when the worker is closed. A driver that awaits this learns at once that the worker is lost."""
        await self._closed.wait()

    async def close(self) -> None:
        """Close connections and unload models."""
        if self._work is not None:
            await self._work.close()
        self._closed.set()

    async def _complete(self, item: Any) -> Outcome:
        try:
            assert self._work is not None, "a worker is opened before it gets items"
            return "ok", await self._work.do(item)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return failure(error)


def own_version() -> str:
    """Return the installed version of critic-prm, or "" if it runs without being installed."""
    try:
        return version("critic-prm")
    except PackageNotFoundError:
        return ""


def failure(error: BaseException) -> Outcome:
    """Convert an error to plain data, because another process cannot unpickle every exception."""
    if isinstance(error, ProviderError):
        return "provider", (str(error), error.failure, error.status, error.retry_after, error.detail, error.cause)
    for name, kind in ERRORS.items():
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
        message, why, status, retry_after, detail, cause = value
        raise ProviderError(message, why, status=status, retry_after=retry_after, detail=detail, cause=cause)
    raise ERRORS[kind](value)


class WorkerLost(Exception):
    """The worker is lost, together with the items it was working on."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Resources of a worker. With `gpus_if_any`, it asks for no GPU if the cluster has none."""

    cpus: float = 1.0
    gpus: float = 0.0
    gpus_if_any: bool = False

    def __str__(self) -> str:
        return f"{self.cpus:g} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")


@dataclass(eq=False)
class Worker:
    """The driver's view of one worker actor."""

    actor: Any
    in_flight: int = 0
    answers: int = 0
    died: bool = False
    _tickets: count[int] = field(default_factory=count)

    async def do(self, item: Any) -> Any:
        """Return the result of an item. Raises WorkerLost if the worker is lost, and any error that the work raised."""
        ray = ray_module()
        call = self.actor.do.remote(next(self._tickets), item)
        self.in_flight += 1
        try:
            outcome = await call
        except asyncio.CancelledError:
            ray.cancel(call)
            raise
        except ray.exceptions.RayError as error:
            self.died = isinstance(error, ray.exceptions.ActorDiedError)
            raise WorkerLost(str(error).strip().split("\n")[0]) from error
        finally:
            self.in_flight -= 1
        self.answers += 1
        return result_of(outcome)


class Pool:
    """`options.workers` worker actors that do the same work. They start with the first item. Close the pool when done.

    Each item goes to the least busy worker, and a lost worker is replaced. `lost` counts workers that were lost during the run;
    `places` maps each slot to the host and process of its last worker.
    """

    def __init__(self, options: RayOptions, opener: Callable[[], Work], needs: Needs = Needs()) -> None:
        self.options, self.needs = options, needs
        self.lost = 0
        self.places: dict[int, tuple[str, int]] = {}
        self.workers: dict[int, Worker] = {}
        self._opener = opener
        self._keepers: list[asyncio.Task[None]] = []
        self._available = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None
        self._failed: CriticPrmError | None = None
        self._stillborn = 0

    async def do(self, item: Any) -> Any:
        """Return the result of `item`.

        Raises WorkerLost when its worker is lost, ConfigError when no worker can be started, and errors that the work raised.
        """
        while not self.workers:
            await self.ready()
        slot, worker = min(self.workers.items(), key=lambda entry: entry[1].in_flight)
        try:
            return await worker.do(item)
        except WorkerLost:
            if worker.died and self.workers.get(slot) is worker:
                self._remove(slot)  # at once: its keeper may hear of it later, and an idle dead worker would be chosen again
            raise

    async def ready(self) -> None:
        """Wait until a worker is available. Raises ConfigError when none can be started."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        if not self.workers and self._failed is None:
            await asyncio.shield(self._starting)
            await self._available.wait()
        if self._failed is not None:
            raise self._failed

    def waits(self) -> str:
        """Return a status text about workers that have not started yet; empty if there are none."""
        missing = self.options.workers - len(self.workers)
        return f"waiting for {missing} of {self.options.workers} workers" if missing and self._starting is not None else ""

    async def close(self) -> None:
        """End the workers and leave the cluster."""
        if self._starting is None:
            return
        with suppress(CriticPrmError):
            await self._starting
        with suppress(TimeoutError, Exception):  # a worker that is lost at this moment has nothing left to close
            async with asyncio.timeout(FAREWELL):
                farewells = [_of(worker.actor.close.remote()) for worker in self.workers.values()]
                await asyncio.gather(*farewells, return_exceptions=True)
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._starting.exception() is None:
            await asyncio.to_thread(leave)
        self._starting = None

    async def _start(self) -> None:
        await asyncio.to_thread(join, self.options)
        ray = ray_module()
        if self.needs.gpus_if_any and not ray.cluster_resources().get("GPU"):
            self.needs = replace(self.needs, gpus=0.0)
        opener = ray.cloudpickle.dumps(self._opener)
        self._keepers = [asyncio.create_task(self._keep(slot, opener)) for slot in range(self.options.workers)]

    async def _keep(self, slot: int, opener: bytes) -> None:
        """Keep one slot filled: start a new worker whenever one is lost, until the pool gives up."""
        ray = ray_module()
        while self._failed is None:
            actor: Any = None
            worker: Worker | None = None
            try:
                actor = self._new_actor()
                self.places[slot] = await self._begin(actor, opener)
                worker = self.workers[slot] = Worker(actor)
                self._available.set()
                await actor.until_closed.remote()
                return
            except CriticPrmError as error:
                if not self.workers:
                    self._give_up(error)
            except ray.exceptions.RayError as error:
                if worker is None:
                    self._not_placed(error)
            except Exception as error:  # the cluster itself is lost or cannot run such a worker
                self._give_up(ConfigError(f"the cluster cannot be used: {type(error).__name__}: {error}"))
            finally:
                self._remove(slot)
                with suppress(Exception):
                    ray.kill(actor)
            self.lost += worker is not None
            self._stillborn = 0 if worker is not None and worker.answers else self._stillborn + 1
            if self._stillborn >= STILLBORN * self.options.workers:
                self._give_up(ConfigError(f"workers are lost as soon as they begin ({_free()}); see the logs of Ray"))
            await asyncio.sleep(0.2 if worker is not None else 1.0)

    def _remove(self, slot: int) -> None:
        self.workers.pop(slot, None)
        if not self.workers and self._failed is None:
            self._available.clear()

    def _new_actor(self) -> Any:
        options: dict[str, Any] = {
            "num_cpus": self.needs.cpus,
            "num_gpus": self.needs.gpus,
            "max_restarts": 0,  # the pool starts a replacement itself and knows the items that the lost worker had
            "max_task_retries": -1,  # as long as the actor lives; it recognizes a repeated call by its ticket
            "max_concurrency": CONCURRENCY,
            "scheduling_strategy": "SPREAD",
        }
        return ray_module().remote(WorkerActor).options(**options).remote()

    async def _begin(self, actor: Any, opener: bytes) -> tuple[str, int]:
        """Wait until the worker is placed, then until its work is loaded. Returns its host and process id."""
        try:
            place: tuple[str, int] = await asyncio.wait_for(_of(actor.here.remote()), PATIENCE)
        except TimeoutError:
            raise ConfigError(
                f"no worker with {self.needs} could be placed in {PATIENCE:g} s: the cluster has {_free()};"
                " ask for fewer with --workers, or add nodes"
            ) from None
        there, here = result_of(await actor.open.remote(opener)), own_version()
        if there != here:
            raise ConfigError(f"a node of the cluster has critic-prm {there!r}, this machine has {here!r}; install the same")
        return place

    def _not_placed(self, error: Exception) -> None:
        lines = str(error).strip().split("\n")
        missing = next((line for line in lines if "ModuleNotFoundError" in line or "ImportError" in line), None)
        if missing is not None and not self.workers:
            self._give_up(ConfigError(f"the cluster's nodes cannot run critic-prm: {missing.strip()}; install it there, too"))

    def _give_up(self, error: CriticPrmError) -> None:
        self._failed = self._failed or error
        self._available.set()


async def _of(reference: Any) -> Any:
    return await reference
