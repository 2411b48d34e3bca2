"""What a run has used and may use: requests, tokens, dollars."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

import orjson

from critic_prm.engine.limits import reply_limit
from critic_prm.errors import BudgetError
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Usage, Wire, requested_tier

TOKENS_PER_BYTE = 0.35
"""Of a prompt's JSON, before an answer has shown what it is; English prose has 0.22, digits and Chinese about 0.35."""

UNSEEN_OUTPUT = 4096
"""Tokens that a reply without a limit of its own is taken to have before longer ones were seen."""


@dataclass
class Budget:
    """Counts what was spent, and lets no request out that could break a limit.

    Before a request goes out, the most that it can cost is set aside: all of its prompt, and output up to its own limit of
    tokens. So `budget_usd` holds with any number of requests in flight: near its end they go out one after another, and the
    run stops when the next one no longer fits. A dollar budget needs `prices`: to ask for one without them is the caller's
    UsageError.
    """

    prices: Prices | None = None
    budget_usd: float | None = None
    max_requests: int | None = None
    requests: int = 0
    spent: float = 0.0
    spent_online: float = 0.0
    unpriced: str = ""
    """A service tier that a reply was billed in and whose price is unknown."""
    usage: Usage = field(default_factory=Usage)
    _set_aside: float = 0.0
    _out: int = 0
    _ratio: float = TOKENS_PER_BYTE
    _longest: int = 0
    _dearest: float = 0.0
    """What the dearest tier so far costs relative to the standard one: a server may choose another tier than was asked for."""
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    async def reserve(self, wire: Wire) -> Reservation:
        """Before a request goes out; waits while those that are out may still leave enough. Raises BudgetError."""
        if self.max_requests is not None and self.requests >= self.max_requests:
            raise BudgetError(
                f"stopped after {self.requests} requests (--max-requests); run again to go on, nothing is paid twice"
            )
        reserved = Reservation(0.0, 0)
        if self.budget_usd is not None and self.prices is not None:
            size = _prompt_bytes(wire)
            self._check_priced()
            while self.spent + self._set_aside + (most := self._most(size, wire)) > self.budget_usd:
                if self._out == 0:
                    raise BudgetError(
                        f"stopped at ${self.spent:.4f} of ${self.budget_usd:g} (--budget-usd): the next request may cost up to"
                        f" ${most:.4f}; run again with a larger budget or a smaller --max-tokens, nothing is paid twice"
                    )
                turn = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn
                self._check_priced()
            reserved = Reservation(most, size)
        self.requests += 1
        self._out += 1
        self._set_aside += reserved.usd
        return reserved

    def settle(self, reserved: Reservation, usage: Usage | None) -> None:
        """After it came back, with what it used; None when it brought nothing."""
        self._out -= 1
        self._set_aside -= reserved.usd
        if usage is not None:
            if reserved.size:
                self._ratio = max(self._ratio, usage.input / reserved.size)
            self.spend(usage)
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def spend(self, usage: Usage, *, batch: bool = False) -> float:
        """Count what a reply used, and say what it cost in USD: 0 where the price is unknown."""
        self.usage += usage
        self._longest = max(self._longest, usage.output)
        usd = self.prices.cost(usage, batch=batch) if self.prices else 0.0
        if usd is None:
            self.unpriced, usd = usage.tier, 0.0
        elif self.prices and not batch:
            self._dearest = max(self._dearest, self.prices.factor(usage.tier) or 0.0)
        self.spent += usd
        self.spent_online += 0.0 if batch else usd
        return usd

    def most(self, wire: Wire, *, batch: bool = False) -> float:
        """The most that `wire` can cost in USD, 0 where the price is unknown."""
        if self.prices is None:
            return 0.0
        return self._most(_prompt_bytes(wire), wire, batch=batch)

    def cost(self) -> float | None:
        """USD so far; None when the price is unknown."""
        return self.spent if self.prices and not self.unpriced else None

    @property
    def stopped(self) -> str:
        """Why the budget cannot be kept any more; empty while it can."""
        if not self.unpriced:
            return ""
        return f"a reply was billed in service tier {self.unpriced!r}, whose price is unknown; name what you pay with --prices"

    def _check_priced(self) -> None:
        if self.stopped:
            raise BudgetError(f"stopped at ${self.spent:.4f} of ${self.budget_usd:g} (--budget-usd): {self.stopped}")

    @property
    def waiting(self) -> int:
        """Requests that wait until it is known what those that are out have left of the budget."""
        return len(self._waiting)

    def _most(self, size: int, wire: Wire, *, batch: bool = False) -> float:
        assert self.prices is not None
        factor = self.prices.factor(requested_tier(wire), batch=batch) or 0.0
        factor = factor if batch else max(factor, self._dearest)
        tokens = int(size * self._ratio) + 1
        output = reply_limit(wire) or max(self._longest, UNSEEN_OUTPUT)
        dearer_written = (self.prices.written or 0.0) > self.prices.input
        hour = _asks_for_an_hour(wire)
        dearest = self.prices.cost(Usage(tokens, output, 0, tokens if dearer_written or hour else 0, 0, tokens if hour else 0))
        return (dearest or 0.0) * factor * _choices(wire)


@dataclass(frozen=True, slots=True)
class Reservation:
    """`usd` set aside for one request whose prompt has `size` bytes of JSON."""

    usd: float
    size: int


def _prompt_bytes(wire: Wire) -> int:
    return len(orjson.dumps([wire.get("messages"), wire.get("system")]))


def _asks_for_an_hour(wire: Wire) -> bool:
    """Whether a body of the user's own marks what Anthropic shall cache for an hour."""
    parts = [wire.get(name) for name in ("cache_control", "system", "messages", "tools")]
    return b'"ttl":"1h"' in orjson.dumps(parts)


def _choices(wire: Wire) -> int:
    """Servers may be asked for several answers at once (`n`), and all are paid for."""
    n = wire.get("n")
    return n if isinstance(n, int) and n > 1 else 1
