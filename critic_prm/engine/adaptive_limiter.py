"""The one door to a provider: how many requests may be out at once, how fast they go, and when none may."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from critic_prm.providers.provider import RateLimits

START, GROWTH, SHRINK = 16, 0.05, 0.8
COOLDOWN, LONGEST_COOLDOWN = 0.5, 60.0
"""Seconds without new requests after a throttling answer that names no time of its own; doubles while no request gets
through."""

Clock = Callable[[], float]


@dataclass
class Bucket:
    """So many units a second, refilled evenly; a fiftieth of a second's worth may be saved up, so there are no bursts."""

    rate: float
    stamp: float
    level: float = 1.0

    def delay(self, now: float) -> float:
        """Seconds until the next unit may be taken."""
        if now > self.stamp:
            self.level = min(self.level + (now - self.stamp) * self.rate, max(self.rate / 50, 1.0))
            self.stamp = now
        return 0.0 if self.level >= 1.0 else (1.0 - self.level) / self.rate + 1e-4

    def take(self, units: float) -> None:
        self.level -= units


@dataclass
class Pace:
    """The rate a throttling server lets through, found by listening. Without a complaint there is no pace.

    The first complaint says little: what got through before it may have been saved up, or be a beginning. From there the pace
    doubles every `DOUBLING` seconds to the next one. Between any two complaints after that the server took so many requests:
    divided by all of the time that is no more than its limit, divided by the time that the gate was open no less. The pace
    goes on half way between the two, and rises slowly, then faster the longer there is silence (in the manner of CUBIC).
    """

    bucket: Bucket | None = None
    _base: float = 0.0
    _since: float = 0.0
    _opened: float = 0.0
    _taken: int = 0
    _searching: bool = True
    _slots: deque[tuple[int, int]] = field(default_factory=deque)

    SLOT, SLOTS = 0.25, 12
    """Before the first complaint, accepted answers are counted in slots of so many seconds, of which so many are kept."""
    DOUBLING = 2.0

    def accepted(self, entered: float, now: float) -> None:
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
        """Begin again more slowly. `entered` is when the refused request went out, `opens` when the next one may."""
        if self.bucket is None:
            rate = self._measured(now) or 1.0
        elif self._searching:
            rate, self._searching = self.bucket.rate * 0.5 ** (1 / self.DOUBLING), False  # the pace of a second ago
        else:
            whole, opened, fast = entered - self._since, entered - self._opened, self.bucket.rate
            # Too short a time shows nothing but that the pace was too fast.
            heard = (self._taken / whole + self._taken / opened) / 2 if opened > 1 else 0.9 * fast
            rate = min(max(heard, 0.5 * fast), 0.95 * fast)
        self._base, self._since, self._opened, self._taken = max(rate, 0.05), now, opens, 0
        self.bucket = Bucket(self._base, opens, level=0.0)

    def delay(self, now: float) -> float:
        if self.bucket is None:
            return 0.0
        quiet = max(now - self._opened, 0.0)
        if self._searching:
            self.bucket.rate = self._base * 2 ** min(quiet / self.DOUBLING, 20)
        else:
            self.bucket.rate = self._base * (1 + 0.002 * quiet + 2e-5 * quiet**3)
        return self.bucket.delay(now)

    def _measured(self, now: float) -> float:
        """Accepted answers a second over the last seconds; 0 when there were none."""
        slot = int(now / self.SLOT)
        recent = [(at, count) for at, count in self._slots if at >= slot - self.SLOTS]
        if not recent:
            return 0.0
        return sum(count for _, count in recent) / (max(slot - recent[0][0], 3) * self.SLOT)


class AdaptiveLimiter:
    """Admits requests: at most `limit` at once, none while cooling down, no faster than `rpm`, `tpm` and the server's patience.

    The limit adapts (additive increase, multiplicative decrease, as in inspect_ai): from `start` it doubles each clean round
    until the first throttling answer, then grows by 5% a round; each throttling episode, however many answers belong to it,
    takes 20% off. `most` is the ceiling; `fixed` switches the adapting off. Times are seconds of `clock`.
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
        """Wait for a place; returns the time of entry, to be handed to `leave` or `throttle`. Raises what `shut` was given."""
        if self._shut is not None:
            raise self._shut
        if self._queue or not self._open():
            place: asyncio.Future[float] = asyncio.get_running_loop().create_future()
            self._queue.append(place)
            self._arm()
            try:
                return await place  # the time of admission, not that of this task's next turn
            except asyncio.CancelledError:
                if place.done() and not place.cancelled():
                    self._give_back()
                raise
        self._admit()
        return self._clock()

    def leave(self, entered: float, *, tokens: int = 0, accepted: bool = True) -> None:
        """A request is back. Accepted ones let the limit grow; failures that are no throttle change nothing."""
        if self._tokens:
            self._tokens.take(tokens)
        if accepted:
            self._pace.accepted(entered, self._clock())
            if entered > self._episode:
                self._cooldown = COOLDOWN
                # Growth is earned: only answers that came while the places were really used count.
                if not self._fixed and self.out >= 0.8 * int(self.limit):
                    self._grow()
        self._give_back()

    def throttle(self, entered: float, retry_after: float | None) -> None:
        """The server said: too many. One episode shrinks once, however many requests that were out hear of it."""
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
        """Rate-limit headers can only slow down: nothing left means wait for the reset."""
        for left, reset in ((allowance.requests, allowance.requests_reset), (allowance.tokens, allowance.tokens_reset)):
            if left == 0 and reset:
                self.until = max(self.until, self._clock() + min(reset, LONGEST_COOLDOWN))

    def restrict(self, *, rpm: float | None = None, tpm: float | None = None) -> None:
        """Take over limits that are stricter than those that hold."""
        now = self._clock()
        if rpm and (self._requests is None or rpm / 60 < self._requests.rate):
            self._requests = Bucket(rpm / 60, now)
        if tpm and (self._tokens is None or tpm / 60 < self._tokens.rate):
            self._tokens = Bucket(tpm / 60, now)

    def resize(self, most: int) -> None:
        """Change the ceiling while running."""
        self.most = max(most, 1)
        self.limit = float(self.most) if self._fixed else min(self.limit, float(self.most))
        self._wake()

    def waiting(self) -> float:
        """Seconds until the cooldown ends; 0 when there is none."""
        return max(0.0, self.until - self._clock())

    def shut(self, error: Exception) -> None:
        """Admit nobody any more: `error` is raised to all who wait or come. Those who are out may still leave."""
        self._shut = self._shut or error
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_exception(self._shut)
        self._arm()

    @property
    def pace(self) -> float | None:
        """Requests a second that a throttling server was found to take; None while it has not complained."""
        return self._pace.bucket.rate if self._pace.bucket else None

    def _grow(self) -> None:
        """One answer's part of a round: a round of `limit` answers doubles the limit, or after a throttling adds 5%."""
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
        """One timer for the whole queue, never one sleep a task."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._queue and self.out < int(self.limit):
            self._timer = asyncio.get_running_loop().call_later(self._delay(), self._wake)
