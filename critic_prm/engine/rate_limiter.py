"""Protocol of rate limiters, implemented in this process and shared across a Ray cluster."""

from __future__ import annotations

from typing import Protocol

from critic_prm.providers.provider import RateLimits


class RateLimiter(Protocol):
    """See `AdaptiveLimiter` for the meaning of each member."""

    @property
    def most(self) -> int: ...

    @property
    def out(self) -> int: ...

    @property
    def limit(self) -> float: ...

    @property
    def pace(self) -> float | None: ...

    async def enter(self) -> float: ...

    def leave(self, entered: float, *, tokens: int = 0, accepted: bool = True) -> None: ...

    def throttle(self, entered: float, retry_after: float | None) -> None: ...

    def heed(self, allowance: RateLimits) -> None: ...

    def resize(self, most: int) -> None: ...

    def waiting(self) -> float: ...

    def shut(self, error: Exception) -> None: ...
