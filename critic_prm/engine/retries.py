"""Decide whether, when and how often to retry a failed request, and when the server counts as down."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_random_exponential

from critic_prm.errors import Cause, ProviderError

Result = TypeVar("Result")

DOWN = 40
"""Consecutive failures, of any requests, after which the server may count as down."""

OUTAGE, STILLBORN = 120.0, 10.0
"""The server counts as down after DOWN consecutive failures over OUTAGE seconds (STILLBORN seconds if it never answered)."""

UNREACHABLE: Mapping[Cause, float] = {"unresolved": 5.0, "refused": 15.0}
UNREACHABLE_AFTER = 4
"""The server counts as unreachable if no request was ever answered, and at least UNREACHABLE_AFTER of them, over that many
seconds, all failed for this reason. A server that is starting refuses connections, so that one is given more time."""

REFUSED = 16
"""If this many requests are rejected with HTTP 400 or 422 before any is accepted, the run is misconfigured, not the rows.
The same holds for this many consecutive 403 replies."""

SCHEMALESS, SCHEMALESS_AFTER = 6, 2.0
"""If this many requests with a JSON schema get HTTP 500, over SCHEMALESS_AFTER seconds and before any success, the server does
not support schemas. llama-cpp-python behaves this way."""

PATIENCE = 3600.0
"""Seconds for which a request is tried again while the server throttles."""

backoff = wait_random_exponential(multiplier=0.5, max=20)


@dataclass
class HealthMonitor:
    """Track successes and failures across a run, to tell a bad row from a bad server by whether other requests succeed."""

    successes: int = 0
    last: ProviderError | None = None
    _in_a_row: int = 0
    _unreachable: int = 0
    _refused: int = 0
    _forbidden: int = 0
    _schemas_failed: int = 0
    _since: float = 0.0

    def success(self) -> None:
        """Count a success."""
        self.successes += 1
        self._in_a_row, self._forbidden, self.last = 0, 0, None

    def spares(self, error: ProviderError) -> bool:
        """Whether a 403 counts against its row only, as when a firewall or filter rejects the text.

        Call it only where the same API key has been accepted before. It holds for fewer than `REFUSED` consecutive 403s.
        """
        self._forbidden += error.status == 403
        return error.status == 403 and self._forbidden < REFUSED

    def failure(self, error: ProviderError, *, schema: bool = False) -> str | None:
        """Count a failure. Returns what is wrong with the whole run if this failure shows it, else None.

        `schema`: whether the request asked for structured outputs.
        """
        if error.failure == "throttle":
            return None
        if error.failure == "row":
            self._refused += error.status in (400, 422)
            if self._refused >= REFUSED and not self.successes:
                return (
                    f"the first {self._refused} requests were all refused, most recently: {error}; what is sent does not suit"
                    " this model or server (`critic-prm doctor` shows what it takes)"
                )
            return None
        self.last = error
        now = time.monotonic()
        if not self._in_a_row:
            self._since = now
        self._in_a_row += 1
        self._unreachable += error.cause != ""
        self._schemas_failed += schema and error.status == 500
        if (
            not self.successes
            and self._schemas_failed == self._in_a_row >= SCHEMALESS
            and now - self._since >= SCHEMALESS_AFTER
        ):
            return (
                f"the first {self._in_a_row} requests, all with a JSON schema, were answered with HTTP 500; this server may not"
                f" take schemas: add --no-schema, or run again later if the server is only down; most recently: {error}"
            )
        if (
            not self.successes
            and self._unreachable == self._in_a_row >= UNREACHABLE_AFTER
            and now - self._since >= UNREACHABLE.get(error.cause, math.inf)
        ):
            return (
                f"{error}; all {self._in_a_row} requests, over {now - self._since:.0f} s, failed in this way; check the network"
                " and --base-url (`critic-prm doctor` tests them), then run the same command again"
            )
        if self._in_a_row >= DOWN and now - self._since >= (OUTAGE if self.successes else STILLBORN):
            return (
                f"the last {self._in_a_row} requests, over {now - self._since:.0f} s, all failed, most recently: {error};"
                " all earlier replies are kept, run the same command again when the server is back"
            )
        return None


async def try_again(
    first: ProviderError,
    once: Callable[[], Awaitable[Result]],
    luck: HealthMonitor,
    max_retries: int,
    sleep: Callable[[float], Awaitable[None]],
    halted: Callable[[], bool],
) -> Result:
    """Call `once` until it succeeds or fails permanently. `first` is the failure of the previous try. Raises the last failure.

    A throttled request waits in the rate limiter like all others, for up to PATIENCE seconds. Any other temporary failure
    is retried `max_retries` times, or twice as often if other requests succeeded before but none has since, because then the
    server is at fault. `sleep` may return early. Once `halted` returns true, there are no more retries.
    """
    before, failures, pending = luck.successes, 0, [first]

    async def attempt() -> Result:
        if pending:
            raise pending.pop()  # the policy is built only after a failure, so successful requests do not pay for it
        return await once()

    def enough(state: RetryCallState) -> bool:
        nonlocal failures
        if halted():
            return True
        if _failure(state).failure == "throttle":
            return (state.seconds_since_start or 0.0) > PATIENCE
        failures += 1
        others_pass = luck.successes > before or not luck.successes
        return failures > max_retries * (1 if others_pass else 2)

    def wait(state: RetryCallState) -> float:
        error = _failure(state)
        if error.failure == "throttle":
            return 0.0
        return error.retry_after if error.retry_after is not None else backoff(state)

    policy = AsyncRetrying(retry=retry_if_exception(_may_pass), stop=enough, wait=wait, sleep=sleep, reraise=True)
    return await policy(attempt)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ProviderError) and error.failure in ("throttle", "transient")


def _failure(state: RetryCallState) -> ProviderError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, ProviderError)
    return error
