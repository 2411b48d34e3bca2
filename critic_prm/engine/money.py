"""What a run has used and may use: requests, tokens, dollars."""

from __future__ import annotations

from dataclasses import dataclass, field

from critic_prm.errors import BudgetError
from critic_prm.models import Prices
from critic_prm.provider import Usage

FIRST_GUESS = 0.01
"""USD that a request is taken to cost before the first answer has shown what it does."""


@dataclass
class Money:
    """Counts what was spent, and refuses a request that could break a limit.

    What is out is reserved at the mean price so far, so `budget_usd` holds with any number of requests in flight, but for the
    difference between one answer and the mean. Without prices a dollar budget cannot be kept: that is a UsageError of the
    caller.
    """

    prices: Prices | None = None
    budget_usd: float | None = None
    max_requests: int | None = None
    requests: int = 0
    spent: float = 0.0
    usage: Usage = field(default_factory=Usage)
    _out: int = 0
    _dearest: float = 0.0

    def reserve(self) -> None:
        """Before a request goes out. Raises BudgetError."""
        if self.max_requests is not None and self.requests >= self.max_requests:
            raise BudgetError(
                f"stopped after {self.requests} requests (--max-requests); run again to go on, nothing is paid twice"
            )
        if self.budget_usd is not None and self.spent + (self._out + 1) * (self._dearest or FIRST_GUESS) > self.budget_usd:
            raise BudgetError(
                f"stopped at ${self.spent:.4f} of ${self.budget_usd:g} (--budget-usd), {self._out} requests still out;"
                " run again with a larger budget to go on, nothing is paid twice"
            )
        self.requests += 1
        self._out += 1

    def settle(self, usage: Usage | None) -> None:
        """After it came back, with what it used; None when it brought nothing."""
        self._out -= 1
        if usage is None:
            return
        self.usage += usage
        if self.prices:
            cost = self.prices.cost(usage)
            self.spent += cost
            self._dearest = max(self._dearest, cost)

    def cost(self) -> float | None:
        """USD so far; None when the price is unknown."""
        return self.spent if self.prices else None
