"""The numbers that the methods of search take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from critic_prm.errors import UsageError

Prior = Literal["critic", "uniform"]
Backup = Literal["mean", "max"]

DRIFTING = ("product", "sum")
"""Aggregations that fall or rise with the number of steps."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """`n` solutions or beams, `width` new steps for each prefix that goes on (M), at most `depth` steps.

    Lookahead looks `ahead` steps ahead. MCTS makes `simulations`, weighs exploration by `c`, takes its prior over siblings from
    the critic's scores as a softmax of `temperature` or makes it uniform, and backs up the mean or the max; `rollout` is the
    weight of a whole solution's score in a leaf's value, 0 for none.
    """

    n: int = 16
    width: int = 4
    depth: int = 40
    ahead: int = 3
    simulations: int = 64
    c: float = 0.25
    prior: Prior = "critic"
    temperature: float = 0.2
    backup: Backup = "mean"
    rollout: float = 0.0

    @property
    def kept(self) -> int:
        """Prefixes that go on."""
        return max(self.n // self.width, 1)

    def check(self, method: str, by: str = "min") -> None:
        """Raises UsageError for numbers that do not fit, and for an aggregation that the method cannot compare by."""
        if method == "mcts" and by in DRIFTING:
            raise UsageError(
                f"mcts compares prefixes of different lengths, and {by} changes with every step whatever it is worth;"
                " take geometric_mean, mean, min or last"
            )
        for name in ("n", "width", "depth", "simulations"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if method in ("beam", "dvts", "lookahead") and self.n % self.width:
            raise UsageError(f"{method}: n is {self.n}, which is no multiple of the width {self.width}; make it one")
        if not 0 <= self.rollout <= 1:
            raise UsageError(f"the weight of rollouts is {self.rollout}; it goes from 0 to 1")
        if self.c < 0 or self.temperature <= 0 or self.ahead < 1:
            raise UsageError(
                f"c is {self.c}, temperature {self.temperature}, ahead {self.ahead}; c is at least 0, the others are above 0"
            )
