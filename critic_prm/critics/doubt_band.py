"""Split the steps scored by a cheap critic into those it may decide itself and those to ask a judge about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from critic_prm.errors import UsageError

Call = Literal["good", "ask", "bad"]


@dataclass(frozen=True, slots=True)
class Band:
    """The range of P(error) = 1 - P(correct) that counts as in doubt: `low` to `high`, inclusive. Below it a step is good,
    above it bad. With `spread`, a step is also in doubt if the standard deviation of its ensemble scores is larger."""

    low: float
    high: float
    spread: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise UsageError(f"a band goes from {self.low} to {self.high}; it needs 0 <= low <= high <= 1, on P(error)")
        if self.spread is not None and self.spread < 0:
            raise UsageError(f"a spread of {self.spread} is none; it is a standard deviation of at least 0")

    def call(self, p_correct: float | None, spread: float | None = None) -> Call:
        """Classify one step as good, bad, or to be asked about. A step without a score is in doubt."""
        if p_correct is None or (self.spread is not None and spread is not None and spread > self.spread):
            return "ask"
        error = 1 - p_correct
        return "good" if error < self.low else "bad" if error > self.high else "ask"


def in_doubt(
    band: Band, p_correct: Sequence[float | None], first_error: int | None, spread: Sequence[float | None] | None = None
) -> list[int]:
    """The steps in doubt up to the first error of the cheap critic, or among all steps if it finds none. Later steps cannot
    change the position of the first error."""
    last = len(p_correct) if first_error is None or first_error < 0 else first_error + 1
    deviations = spread or [None] * len(p_correct)
    return [i for i in range(last) if band.call(p_correct[i], deviations[i]) == "ask"]
