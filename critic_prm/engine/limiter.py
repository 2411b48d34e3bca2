"""Limit request rate and concurrency, adapting to 429 replies."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from critic_prm.providers.provider import RateLimits

START, GROWTH, SHRINK = 16, 0.05, 0.8
COOLDOWN, LONGEST_COOLDOWN = 0.5, 60.0
"""Seconds without new requests after a 429 reply without Retry-After. The cooldown doubles up to LONGEST_COOLDOWN until a
request succeeds."""

Clock = Callable[[], float]


@dataclass
class Bucket:
    """Token bucket of `rate` units per second. It holds at most 1/50 s of units (at least 1 unit), which prevents bursts."""

    rate: float
    stamp: float
    level: float = 1.0

    def delay(self, now: float) -> float:
        """Return the seconds until the next unit is available."""
        if now > self.stamp:
            self.level = min(self.level + (now - self.stamp) * self.rate, max(self.rate / 50, 1.0))
            self.stamp = now
        return 0.0 if self.level >= 1.0 else (1.0 - self.level) / self.rate + 1e-4

    def take(self, units: float) -> None:
        """Take units; the level may become negative."""
        self.level -= units


@dataclass
class Pace:
    """Estimate the request rate that a throttling server accepts, from its 429 replies. There is no limit before the first one.

    The first 429 says little: the burst before it may have used saved-up quota, or the run may have just begun. From the rate
    measured then, the pace doubles every `DOUBLING` seconds until the next 429. After that, the number of requests that the
    server accepted between two 429s bounds its limit: divided by the whole time between them it is a lower bound, divided by
    the time during which requests were admitted it is an upper bound. The pace continues at the mean of the two. It then rises
    slowly at first and faster the longer no 429 arrives (as in CUBIC).
    """

    bucket: Bucket | None = None
    _base: float = 0.0
    _since: float = 0.0
    _opened: float = 0.0
    _taken: int = 0
    _searching: bool = True
    _slots: deque[tuple[int, int]] = field(default_factory=deque)

    SLOT, SLOTS = 0.25, 12
    """Before the first 429, accepted replies are counted in slots of SLOT seconds; the last SLOTS slots are kept."""
    DOUBLING = 2.0

    def accepted(self, entered: float, now: float) -> None:
        """Count an accepted request that was admitted at `entered`."""
        if self.bucket is not None:
            self._taken += entered > self._since
            return
        slot = int(now / self.SLOT)
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1] = (slot, self._slots[-1][1] + 1)
        else:
            self._slots.append((slot, 1))
            while self._slots[0][0] < slot - self.SLOTS:
                self._slots.popleft()

    def complained(self, entered: float, now: float, opens: float) -> None:
        """Slow down after a 429. `entered` is when the refused request was admitted, `opens` when the next one may be."""
        if self.bucket is None:
            rate = self._measured(now) or 1.0
        elif self._searching:
            rate, self._searching = self.bucket.rate * 0.5 ** (1 / self.DOUBLING), False  # the pace of a second ago
        else:
            whole, opened, fast = entered - self._since, entered - self._opened, self.bucket.rate
            # A shorter time only shows that the pace was too fast.
            heard = (self._taken / whole + self._taken / opened) / 2 if opened > 1 else 0.9 * fast
            rate = min(max(heard, 0.5 * fast), 0.95 * fast)
        self._base, self._since, self._opened, self._taken = max(rate, 0.05), now, opens, 0
        self.bucket = Bucket(self._base, opens, level=0.0)

    def delay(self, now: float) -> float:
        """Update the pace and return the seconds until the next request may be admitted."""
        if self.bucket is None:
            return 0.0
        quiet = max(now - self._opened, 0.0)
        if self._searching:
            self.bucket.rate = self._base * 2 ** min(quiet / self.DOUBLING, 20)
        else:
            self.bucket.rate = self._base * (1 + 0.002 * quiet + 2e-5 * quiet**3)
        return self.bucket.delay(now)

    def _measured(self, now: float) -> float:
        """Return the accepted replies per second over the last SLOTS slots; 0 if there were none."""
        slot = int(now / self.SLOT)
        recent = [(at, count) for at, count in self._slots if at >= slot - self.SLOTS]
        if not recent:
            return 0.0
        return sum(count for _, count in recent) / (max(slot - recent[0][0], 3) * self.SLOT)


class AdaptiveLimiter:
    """Admit at most `limit` requests at once, none during a cooldown, and no faster than `rpm`, `tpm` and the server allow.

    The limit adapts by additive increase and multiplicative decrease, as in inspect_ai. From `start`, it doubles every round
    without throttling until the first 429, then grows by 5% per round. Each throttling episode reduces it by 20%, however many
    429 replies belong to the episode. `most` is the maximum; `fixed` disables adaptation. Times are in seconds of `clock`.

    `out` is the number of requests in flight, `throttled` the number of 429 replies, `until` the end of the cooldown.
    """

    def __init__(
        self,
        most: int,
        *,
        rpm: float | None = None,
        tpm: float | None = None,
        start: int = START,
        fixed: bool = False,
        clock: Clock = time.monotonic,
    ) -> None:
        self.most = max(most, 1)
        self.limit = float(self.most if fixed else min(start, self.most))
        self.out = 0
        self.throttled = 0
        self.until = 0.0
        self._fixed, self._clock = fixed, clock
        self._slow_start = True
        self._episode = 0.0
        self._cooldown = COOLDOWN
        self._pace = Pace()
        self._requests = Bucket(rpm / 60, clock()) if rpm else None
        self._tokens = Bucket(tpm / 60, clock()) if tpm else None
        self._queue: deque[asyncio.Future[float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._shut: Exception | None = None

    async def enter(self) -> float:
        """Wait for a slot. Returns the admission time, to be passed to `leave` or `throttle`. Raises the error of `shut`."""
        if self._shut is not None:
            raise self._shut
        if self._queue or not self._open():
            place: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            self._arm()
            try:
                return await place  # the admission time, not the time when this task runs next
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._give_back()
                raise
        self._admit()
        return self._clock()

    def leave(self, entered: float, *, tokens: int = 0, accepted: bool = True) -> None:
        """Release the slot of a finished request. An accepted one lets the limit grow; other failures do not change it."""
        if self._tokens:
            self._tokens.take(tokens)
        if accepted:
            self._pace.accepted(entered, self._clock())
            if entered > self._episode:
                self._cooldown = COOLDOWN
                # Grow only if at least 80% of the slots are in use; otherwise the limit was not tested.
                if not self._fixed and self.out >= 0.8 * int(self.limit):
                    self._grow()
        self._give_back()

    def throttle(self, entered: float, retry_after: float | None) -> None:
        """Release the slot of a request that got a 429. An episode lowers the limit once, however many requests it affects."""
        now = self._clock()
        self.throttled += 1
        if entered > self._episode:
            self._episode, self._slow_start = now, False
            if not self._fixed:
                self.limit = max(1.0, self.limit * SHRINK)
            self.until = max(self.until, now + (self._cooldown if retry_after is None else retry_after))
            self._pace.complained(entered, now, self.until)
            self._cooldown = min(self._cooldown * 2, LONGEST_COOLDOWN)
        elif retry_after is not None:
            self.until = max(self.until, now + retry_after)
        self._give_back()

    def heed(self, allowance: RateLimits) -> None:
        """Apply rate-limit headers: when no requests or tokens are left, wait for the reset. They never speed requests up."""
        for left, reset in ((allowance.requests, allowance.requests_reset), (allowance.tokens, allowance.tokens_reset)):
            if left == 0 and reset:
                self.until = max(self.until, self._clock() + min(reset, LONGEST_COOLDOWN))

    def restrict(self, *, rpm: float | None = None, tpm: float | None = None) -> None:
        """Apply those of the given limits that are stricter than the current ones."""
        now = self._clock()
        if rpm and (self._requests is None or rpm / 60 < self._requests.rate):
            self._requests = Bucket(rpm / 60, now)
        if tpm and (self._tokens is None or tpm / 60 < self._tokens.rate):
            self._tokens = Bucket(tpm / 60, now)

    def resize(self, most: int) -> None:
        """Change the maximum concurrency during a run."""
        self.most = max(most, 1)
        self.limit = float(self.most) if self._fixed else min(self.limit, float(self.most))
        self._wake()

    def waiting(self) -> float:
        """Return the seconds until the cooldown ends; 0 if there is none."""
        return max(0.0, self.until - self._clock())

    def waits(self) -> str:
        """Return an empty text: requests wait for nothing but this limiter."""
        return ""

    def shut(self, error: Exception) -> None:
        """Stop admitting requests: raise `error` in every current and future caller of `enter`. Slots can still be released."""
        self._shut = self._shut or error
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_exception(self._shut)
        self._arm()

    @property
    def pace(self) -> float | None:
        """Estimated requests per second that the server accepts; None before the first 429."""
        return self._pace.bucket.rate if self._pace.bucket else None

    def _grow(self) -> None:
        """Grow by one reply's share of a round. A round of `limit` replies doubles the limit, or adds 5% after throttling."""
        step = 1.0 if self._slow_start else max(GROWTH, 1.0 / self.limit)
        self.limit = min(self.limit + step, float(self.most))

    def _delay(self) -> float:
        now = self._clock()
        buckets = [bucket.delay(now) for bucket in (self._requests, self._tokens) if bucket]
        return max(self.until - now, self._pace.delay(now), *buckets, 0.0)

    def _open(self) -> bool:
        return self.out < int(self.limit) and self._delay() <= 0

    def _admit(self) -> None:
        self.out += 1
        for bucket in (self._requests, self._pace.bucket):
            if bucket:
                bucket.take(1)

    def _give_back(self) -> None:
        self.out -= 1
        self._wake()

    def _wake(self) -> None:
        while self._queue and self._open():
            place = self._queue.popleft()
            if not place.cancelled():
                self._admit()
                place.set_result(self._clock())
        self._arm()

    def _arm(self) -> None:
        """Start one timer for the whole queue, rather than one sleep per task."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._queue and self.out < int(self.limit):
            self._timer = asyncio.get_running_loop().call_later(self._delay(), self._wake)
