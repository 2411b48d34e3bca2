"""A failed request -> whether, when and how often it is tried again; and when the server as a whole counts as down."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception
from tenacity.wait import wait_random_exponential

from critic_prm.errors import ProviderError

Result = TypeVar("Result")

DOWN = 40
"""So many failures in a row, of whichever requests, without one success between them, and ..."""

OUTAGE, STILLBORN = 120.0, 10.0
"""... over so many seconds, mean that the server is down; the shorter time holds for one that has never answered at all."""

REFUSED = 16
"""So many requests refused as bad (HTTP 400, 422) before any was accepted are no bad rows: the run itself is wrong. So are so
many answered with 403 in a row."""

SCHEMALESS, SCHEMALESS_AFTER = 6, 2.0
"""So many answers of HTTP 500 to requests with a JSON schema, over so many seconds and before any success, mean that the server
takes no schemas: llama-cpp-python answers so."""

backoff = wait_random_exponential(multiplier=0.5, max=20)


@dataclass
class HealthMonitor:
    """What happened to all requests of a run: the difference between a bad row and a bad server is whether others pass."""

    successes: int = 0
    last: ProviderError | None = None
    _in_a_row: int = 0
    _refused: int = 0
    _forbidden: int = 0
    _schemas_failed: int = 0
    _since: float = 0.0

    def success(self) -> None:
        self.successes += 1
        self._in_a_row, self._forbidden, self.last = 0, 0, None

    def spares(self, error: ProviderError) -> bool:
        """Whether a 403 is taken for its row's own (a firewall or filter that dislikes its text): where the same key has been
        accepted before, up to `REFUSED` of them in a row."""
        self._forbidden += error.status == 403
        return error.status == 403 and self._forbidden < REFUSED

    def failure(self, error: ProviderError, *, schema: bool = False) -> str | None:
        """Count a failure; what is wrong with the whole run, when this one shows it. `schema`: the request asked for one."""
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
    *,
    retries: int,
    patience: float,
    sleep: Callable[[float], Awaitable[None]],
    halted: Callable[[], bool],
) -> Result:
    """Call `once` until it succeeds or has failed for good; `first` is how the try before ended. Raises the last failure.

    Throttling is waited out at the gate with everybody else, up to `patience` seconds. Any other failure that may pass is
    tried `retries` times more while other requests succeed; twice as often when none does any longer, because then the
    server is at fault. `sleep` may return early; once `halted`, no more tries are made.
    """
    before, failures, pending = luck.successes, 0, [first]

    async def attempt() -> Result:
        if pending:
            raise pending.pop()  # the policy is only made for requests that failed: the others do not pay for it
        return await once()

    def enough(state: RetryCallState) -> bool:
        nonlocal failures
        if halted():
            return True
        if _failure(state).failure == "throttle":
            return (state.seconds_since_start or 0.0) > patience
        failures += 1
        others_pass = luck.successes > before or not luck.successes
        return failures > retries * (1 if others_pass else 2)

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
