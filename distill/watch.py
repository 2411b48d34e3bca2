"""Compare the scores of a run with those that a verifier's decision was chosen on."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from critic_prm.data.critic import CriticStats
from critic_prm.data.judgement import Label
from distill.calibration import Floats
from distill.decision import Decision

FEW = 30
LARGE = 0.15
"""Smallest Kolmogorov-Smirnov distance beyond chance that is reported."""
DIGITS = 3
"""Decimals of P(correct) that are compared: whether a very sure verifier says 0.9999 or 0.99999 does not matter."""


@dataclass
class ScoreWatch(CriticStats):
    """Counts solutions by where their score lies among those of the solutions that the decision was chosen on.

    `quantiles` are 101 scores of those solutions (see `Decision.lowest`), empty if unknown. With `window`, only the last that
    many solutions count. Memory does not grow. Not thread-safe: labels are added on the event loop, which is one thread.
    """

    quantiles: Sequence[float]
    decision: Decision
    window: int | None = None
    few: int = FEW
    """Fewest solutions to compare."""
    name: str = "scores"
    solutions: int = 0
    flagged: int = 0
    _counts: list[int] = field(default_factory=list)
    """Solutions below the first of the distinct quantiles, equal to it, between it and the second, equal to that, and so on."""
    _last: deque[tuple[int, bool]] = field(default_factory=deque)
    """Place and flag of the solutions in the window."""

    def __post_init__(self) -> None:
        rounded = np.round(np.asarray(self.quantiles, dtype=np.float64), DIGITS)
        self._values = np.unique(rounded)
        below, above = (np.searchsorted(rounded, self._values, side) for side in ("left", "right"))
        # The shares below and up to each value. They differ where many solutions have the same score.
        self._there: Floats = np.stack([below, above - 1], axis=1).ravel() / max(len(rounded) - 1, 1)
        self.restart()

    def add(self, label: Label) -> None:
        scores = [p for p in label.p_correct if p is not None]
        if not scores or label.first_error is None:
            return
        lowest = np.round(self.decision.lowest(scores), DIGITS)
        place = int(np.searchsorted(self._values, lowest, "left") + np.searchsorted(self._values, lowest, "right"))
        self._count(place, label.first_error >= 0, 1)
        if self.window is not None:
            self._last.append((place, label.first_error >= 0))
            if len(self._last) > self.window:
                self._count(*self._last.popleft(), -1)

    def _count(self, place: int, flagged: bool, sign: int) -> None:
        self.solutions += sign
        self.flagged += sign * flagged
        self._counts[place] += sign

    def restart(self) -> None:
        self._counts, self.flagged, self.solutions = [0] * (2 * len(self._values) + 1), 0, 0
        self._last.clear()

    def over(self, window: int, few: int) -> ScoreWatch:
        """A new watch for the same decision that counts the last `window` solutions and compares `few` or more."""
        return replace(self, window=window, few=few, _counts=[], _last=deque())

    @property
    def share(self) -> float | None:
        """Share of the solutions in which an error was found; None without solutions."""
        return self.flagged / self.solutions if self.solutions else None

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
        return float(np.abs(np.cumsum(self._counts[:-1]) / self.solutions - self._there).max())

    @property
    def shifted(self) -> bool:
        """Whether the scores are so different that the decision should be calibrated again.

        The distance must be above LARGE and above its 99% bound for as many solutions from the same distribution.
        """
        distance = self.distance
        return distance is not None and self.solutions >= self.few and distance > max(LARGE, 1.63 / self.solutions**0.5 + 0.01)

    def lines(self) -> list[str]:
        return [f"warning: {self.finding}"] if self.shifted else []

    @property
    def finding(self) -> str:
        """The difference as a sentence, with the command that removes it."""
        return (
            f"these {self.solutions:,} solutions score differently from those the threshold was chosen on"
            f" (KS distance {self.distance:.2f}; {self.share:.0%} flagged, {self.expected:.0%} expected);"
            " run: critic-prm calibrate VERIFIER FILE"
        )

    def report(self) -> dict[str, Any]:
        return {
            "solutions": self.solutions,
            "flagged": self.share,
            "flagged_expected": self.expected,
            "ks_distance": self.distance,
            "shifted": self.shifted,
        }
