"""Compare the scores of a run with those that a verifier's decision was chosen on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from critic_prm.data.critic import CriticStats
from critic_prm.data.judgement import Label
from distill.decision import Decision

FEW = 30
"""Fewest solutions to compare."""
LARGE = 0.15
"""Smallest Kolmogorov-Smirnov distance beyond chance that is reported."""


@dataclass
class ScoreWatch(CriticStats):
    """Counts solutions by the quantile of their score among the solutions that the decision was chosen on.

    `quantiles` are 101 scores of those solutions (see `Decision.lowest`), empty if unknown. Memory does not grow.
    """

    quantiles: Sequence[float]
    decision: Decision
    name: str = "scores"
    counts: list[int] = field(default_factory=list)
    flagged: int = 0
    solutions: int = 0

    def add(self, label: Label) -> None:
        scores = [p for p in label.p_correct if p is not None]
        if not scores or label.first_error is None:
            return
        self.solutions += 1
        self.flagged += label.first_error >= 0
        self.counts = self.counts or [0] * (len(self.quantiles) + 1)
        self.counts[int(np.searchsorted(self.quantiles, self.decision.lowest(scores), side="right"))] += 1

    def restart(self) -> None:
        self.counts, self.flagged, self.solutions = [], 0, 0

    @property
    def expected(self) -> float | None:
        """Share of the solutions that the decision was chosen on in which it finds an error; None if unknown."""
        return float(np.mean(np.asarray(self.quantiles) < self.decision.threshold)) if len(self.quantiles) else None

    @property
    def distance(self) -> float | None:
        """Kolmogorov-Smirnov distance between both distributions of solution scores, None if unknown.

        It is computed at the stored quantiles, where at most one hundredth is missed.
        """
        if not self.solutions or len(self.quantiles) < 2:
            return None
        here = np.cumsum(self.counts[:-1]) / self.solutions
        there = np.linspace(0, 1, len(self.quantiles))
        return float(np.abs(here - there).max())

    @property
    def shifted(self) -> bool:
        """Whether the scores are so different that the decision should be calibrated again.

        The distance must be above LARGE and above its 99% bound for as many solutions from the same distribution.
        """
        distance = self.distance
        return distance is not None and self.solutions >= FEW and distance > max(LARGE, 1.63 / self.solutions**0.5 + 0.01)

    def lines(self) -> list[str]:
        if not self.shifted or self.expected is None:
            return []
        return [
            f"warning: these {self.solutions:,} solutions score differently from those that the threshold was chosen on"
            f" (KS distance {self.distance:.2f}, {self.flagged / self.solutions:.0%} flagged there {self.expected:.0%}):"
            " run critic-prm calibrate VERIFIER on them"
        ]

    def report(self) -> dict[str, Any]:
        return {
            "solutions": self.solutions,
            "flagged": self.flagged / self.solutions if self.solutions else None,
            "flagged_expected": self.expected,
            "ks_distance": self.distance,
            "shifted": self.shifted,
        }
