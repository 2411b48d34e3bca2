"""Protocol of rate limiters, implemented in this process and shared across a Ray cluster."""

from __future__ import annotations

from typing import Protocol

from critic_prm.providers.provider import RateLimits


class RateLimiter(Protocol):
    """Admits requests to one server. See `AdaptiveLimiter` for details."""

    @property
    def most(self) -> int:
        """Maximum concurrency."""
        ...

    @property
    def out(self) -> int:
        """Requests in flight."""
        ...

    @property
    def limit(self) -> float:
        """Current concurrency limit, at most `most`."""
        ...

    @property
    def pace(self) -> float | None:
        """Estimated requests per second that the server accepts; None before the first 429."""
        ...

    async def enter(self) -> float:
        """Wait for a slot and return the admission time."""
        ...

    def leave(self, entered: float, *, tokens: int = 0, accepted: bool = True) -> None:
        """Release the slot of a finished request."""
        ...

    def throttle(self, entered: float, retry_after: float | None) -> None:
        """Release the slot of a request that got a 429."""
        ...

    def heed(self, allowance: RateLimits) -> None:
        """Apply rate-limit headers."""
        ...

    def resize(self, most: int) -> None:
        """Change the maximum concurrency during a run."""
        ...

    def waiting(self) -> float:
        """Return the seconds until the cooldown ends; 0 if there is none."""
        ...

    def shut(self, error: Exception) -> None:
        """Stop admitting requests and raise `error` in all callers of `enter`."""
        ...
