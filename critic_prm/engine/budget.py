"""Track and limit the requests, tokens and dollars that a run spends."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from critic_prm.errors import BudgetError
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import LIMIT_FIELDS, Usage, Wire, prompt_parts, requested_tier

TOKENS_PER_BYTE = 0.35
"""Assumed tokens per byte of a prompt's JSON until a reply shows a higher ratio. English prose has 0.22, digits and Chinese
about 0.35."""

UNSEEN_OUTPUT = 4096
"""Assumed maximum tokens of a reply without a token limit, until a longer one is seen."""


@dataclass
class Budget:
    """Count spending and hold back requests that could exceed a limit.

    Before a request is sent, its maximum cost is reserved: the whole prompt, and output up to the request's token limit. So
    `budget_usd` holds with any number of requests in flight. Near the end of the budget, requests are sent one at a time, and
    the run stops when the next one no longer fits. A dollar budget needs `prices`; the caller must raise UsageError without.
    """

    prices: Prices | None = None
    budget_usd: float | None = None
    max_requests: int | None = None
    token_limits: Sequence[str] = LIMIT_FIELDS
    """The provider's fields that limit the tokens of a reply."""
    requests: int = 0
    spent: float = 0.0
    spent_online: float = 0.0
    unpriced: str = ""
    """A service tier of unknown price in which a reply was billed; empty if there is none."""
    usage: Usage = field(default_factory=Usage)
    _set_aside: float = 0.0
    _out: int = 0
    _ratio: float = TOKENS_PER_BYTE
    _longest: int = 0
    _dearest: float = 0.0
    """Highest price factor of any tier billed so far, relative to the standard tier: a server may choose another tier than the
    one requested."""
    _waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    async def reserve(self, wire: Wire) -> Reservation:
        """Reserve the maximum cost of a request before it is sent.

        Waits while the requests in flight may still leave enough of the budget. Raises BudgetError when a limit is reached.
        """
        if self.max_requests is not None and self.requests >= self.max_requests:
            raise BudgetError(
                f"stopped after {self.requests} requests (--max-requests); run again to resume, nothing is paid twice"
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
        """Release a reservation and count the usage of the finished request; None if it got no reply."""
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
        """Count the usage of a reply and return its cost in US dollars; 0 if the price is unknown."""
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
        """Return the maximum cost of `wire` in US dollars; 0 if the price is unknown."""
        if self.prices is None:
            return 0.0
        return self._most(_prompt_bytes(wire), wire, batch=batch)

    def cost(self) -> float | None:
        """Return the US dollars spent so far; None if a price is unknown."""
        return self.spent if self.prices and not self.unpriced else None

    @property
    def stopped(self) -> str:
        """Why the budget can no longer be enforced; empty while it can."""
        if not self.unpriced:
            return ""
        return f"a reply was billed in service tier {self.unpriced!r}, whose price is unknown; name what you pay with --prices"

    def _check_priced(self) -> None:
        if self.stopped:
            raise BudgetError(f"stopped at ${self.spent:.4f} of ${self.budget_usd:g} (--budget-usd): {self.stopped}")

    @property
    def waiting(self) -> int:
        """Number of requests that wait for the cost of those in flight to be known."""
        return len(self._waiting)

    def _most(self, size: int, wire: Wire, *, batch: bool = False) -> float:
        assert self.prices is not None
        factor = self.prices.factor(requested_tier(wire), batch=batch) or 0.0
        factor = factor if batch else max(factor, self._dearest)
        tokens = int(size * self._ratio) + 1
        output = reply_limit(wire, self.token_limits) or max(self._longest, UNSEEN_OUTPUT)
        dearer_written = (self.prices.written or 0.0) > self.prices.input
        hour = _asks_for_an_hour(wire)
        dearest = self.prices.cost(Usage(tokens, output, 0, tokens if dearer_written or hour else 0, 0, tokens if hour else 0))
        return (dearest or 0.0) * factor * _choices(wire)


@dataclass(frozen=True, slots=True)
class Reservation:
    """US dollars (`usd`) reserved for one request whose prompt has `size` bytes of JSON."""

    usd: float
    size: int


def _prompt_bytes(wire: Wire) -> int:
    return len(orjson.dumps(prompt_parts(wire)))


def _asks_for_an_hour(wire: Wire) -> bool:
    """Whether a body contains the user's own markers for Anthropic's one-hour prompt cache."""
    parts = [wire.get(name) for name in ("cache_control", "system", "messages", "tools")]
    return b'"ttl":"1h"' in orjson.dumps(parts)


def _choices(wire: Wire) -> int:
    """Return the number of completions that a body asks for (`n`); all of them are billed."""
    n = wire.get("n")
    return n if isinstance(n, int) and n > 1 else 1


def reply_limit(wire: Wire, fields: Sequence[str] = LIMIT_FIELDS) -> int | None:
    """Return the maximum number of reply tokens that `wire` asks for in one of `fields`, or None.

    A field is a name or, in an object of the body, a path such as "settings.limit".
    """
    for path in fields:
        value: Any = wire
        for name in path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int) and value > 0:
            return value
    return None


def with_doubled_max_tokens(wire: Wire, fields: Sequence[str] = LIMIT_FIELDS) -> Wire | None:
    """Return `wire` with twice the token limit, or None if it has no limit."""
    limit = reply_limit(wire, fields)
    return None if limit is None else _with_limit(wire, fields, 2 * limit)


def _with_limit(wire: Wire, fields: Sequence[str], limit: int) -> Wire:
    """Return `wire` with `limit` in all of `fields` that it has."""
    changed = dict(wire)
    for path in fields:
        name, _, inner = path.partition(".")
        if inner and isinstance(changed.get(name), dict):
            changed[name] = _with_limit(changed[name], (inner,), limit)
        elif not inner and changed.get(name) is not None:
            changed[name] = limit
    return changed
