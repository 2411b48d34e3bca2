"""Make garbage collection rare during a run; it would otherwise take a quarter of the time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (100_000, 50, 100)
"""Thresholds for `gc.set_threshold`: objects, then collections of the younger generation, between collections. At most about
10 MB of garbage accumulates."""


@contextmanager
def reduced_gc() -> Iterator[None]:
    """Context manager: exclude existing objects (mostly modules) from garbage collection, and collect rarely."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
