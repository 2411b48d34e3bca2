"""The connection to a Ray cluster: one for the process, joined by all that use it, ended by the last that leaves."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
import warnings
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from critic_prm.engine.options import RayOptions
from critic_prm.errors import ConfigError

NAMESPACE = "critic-prm"

STORE = 100 << 20
"""Bytes of the object store of a Ray that is started here. Nothing of ours lies in it: answers travel in the calls."""

DEFAULTS = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray's own niceness of 15 makes workers several times slower wherever anything else runs."""


@dataclass
class _Session:
    users: int = 0
    ours: bool = False
    folder: str | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_session = _Session()


def ray_module() -> ModuleType:
    """Ray, or the ConfigError that says how to get it."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--engine ray needs Ray: pip install 'critic-prm[ray]'") from error
    module: ModuleType = ray
    return module


def join(cluster: RayOptions) -> None:
    """Connect to the cluster, or start one on this machine, unless that is done. Blocks for seconds. Raises ConfigError."""
    ray = ray_module()
    with _session.lock:
        if not ray.is_initialized():
            _connect(ray, cluster)
            _session.ours = True
        _session.users += 1


def leave() -> None:
    """Give up one `join`; the last one disconnects, and ends a Ray that was started here."""
    with _session.lock:
        _session.users -= 1
        if _session.users == 0 and _session.ours:
            ray_module().shutdown()
            _session.ours = False
            if _session.folder is not None:
                shutil.rmtree(_session.folder, ignore_errors=True)
                _session.folder = None


def _connect(ray: ModuleType, cluster: RayOptions) -> None:
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    common: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own, about its own future
            if address:
                ray.init(address=address, **common)
                return
            _session.folder = tempfile.mkdtemp(prefix="critic-prm-")
            ray.init(
                address="local",
                num_cpus=max(os.cpu_count() or 1, cluster.workers),  # they wait more than they compute
                include_dashboard=False,
                object_store_memory=STORE,
                _temp_dir=_session.folder,
                **common,
            )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = f"the Ray cluster at {address}" if address else "a Ray of its own on this machine"
        said = str(error).strip().split("\n")[0]
        raise ConfigError(f"cannot use {where}: {said}; look with `ray status`, or name another with --ray-address") from error


def free() -> str:
    """What the cluster has, for an error message."""
    ray = ray_module()
    total, left = ray.cluster_resources(), ray.available_resources()
    parts = [f"{left.get(name, 0):g} of {total.get(name, 0):g} {name}s free" for name in ("CPU", "GPU")]
    return ", ".join(parts)
