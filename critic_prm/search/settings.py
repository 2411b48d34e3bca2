"""Hyperparameters of the search methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from critic_prm.errors import UsageError

Prior = Literal["critic", "uniform"]
Backup = Literal["mean", "max"]

DRIFTING = ("product", "sum")
"""Aggregations that decrease or increase with the number of steps."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Hyperparameters of a search. Each method uses some of them."""

    n: int = 16
    """Number of solutions or beams (N)."""
    width: int = 4
    """Number of new steps for each prefix that is expanded (M)."""
    depth: int = 40
    """Maximum number of steps."""
    ahead: int = 3
    """Lookahead: number of steps to look ahead."""
    simulations: int = 64
    """MCTS: number of simulations."""
    c: float = 0.25
    """MCTS: weight of exploration."""
    prior: Prior = "critic"
    """MCTS: prior over siblings, from the critic's scores or uniform."""
    temperature: float = 0.2
    """MCTS: temperature of the softmax that turns the critic's scores into a prior."""
    backup: Backup = "mean"
    """MCTS: back up the mean or the maximum."""
    rollout: float = 0.0
    """MCTS: weight of the score of a complete rollout in the value of a leaf; 0 for no rollouts."""

    @property
    def kept(self) -> int:
        """Number of prefixes kept per step."""
        return max(self.n // self.width, 1)

    def check(self, method: str, by: str = "min") -> None:
        """Raises UsageError for invalid values, and for an aggregation that the method cannot use for comparison."""
        if method == "mcts" and by in DRIFTING:
            raise UsageError(
                f"mcts compares prefixes of different lengths, and {by} changes with every step whatever it is worth;"
                " take geometric_mean, mean, min or last"
            )
        for name in ("n", "width", "depth", "simulations"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if method in ("beam", "dvts", "lookahead") and self.n % self.width:
            raise UsageError(f"{method}: n is {self.n}, which is not a multiple of the width {self.width}; make it one")
        if not 0 <= self.rollout <= 1:
            raise UsageError(f"the weight of rollouts is {self.rollout}; it goes from 0 to 1")
        if self.c < 0 or self.temperature <= 0 or self.ahead < 1:
            raise UsageError(
                f"c is {self.c}, temperature {self.temperature}, ahead {self.ahead}; c is at least 0, the others are above 0"
            )
