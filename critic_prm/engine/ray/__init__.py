"""Requests and solutions go out to workers on a Ray cluster; answers come back to the one process that keeps the books.

The driver (the process that runs the command) alone opens the cache, reads replies, counts money and writes labels. A worker
completes requests, or scores solutions, and knows nothing else: losing one costs what it had in hand.
"""

from __future__ import annotations

from critic_prm.critics.remote import RemoteCritic, connect
from critic_prm.engine.ray.provider import RemoteProvider, spread

__all__ = ["RemoteCritic", "RemoteProvider", "connect", "spread"]
