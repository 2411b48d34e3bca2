"""Connect this process to a Ray cluster, with reference counting."""

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
"""Object store size in bytes of a local Ray instance. It holds none of our data: results are returned in the calls."""

DEFAULTS = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Environment defaults for Ray. Its own niceness of 15 makes workers several times slower when anything else is running."""


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
        raise ConfigError("--engine ray needs Ray: pip install 'critic-prm[ray]'") from error
    module: ModuleType = ray
    return module


def join(cluster: RayOptions) -> None:
    """Connect to the cluster, or start a local one, unless already connected. Blocks for seconds. Raises ConfigError."""
    ray = ray_module()
    with _session.lock:
        if not ray.is_initialized():
            _connect(ray, cluster)
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


def _connect(ray: ModuleType, cluster: RayOptions) -> None:
    address = cluster.ray_address or os.environ.get("RAY_ADDRESS")
    common: dict[str, Any] = {"namespace": NAMESPACE, "log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's FutureWarnings about itself
            if address:
                ray.init(address=address, **common)
                return
            _session.folder = tempfile.mkdtemp(prefix="critic-prm-")
            ray.init(
                address="local",
                num_cpus=max(os.cpu_count() or 1, cluster.workers),  # workers wait more than they compute
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
    """Describe the cluster's free CPUs and GPUs for an error message."""
    ray = ray_module()
    total, left = ray.cluster_resources(), ray.available_resources()
    parts = [f"{left.get(name, 0):g} of {total.get(name, 0):g} {name}s free" for name in ("CPU", "GPU")]
    return ", ".join(parts)
