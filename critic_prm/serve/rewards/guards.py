"""A reward and the text it is for in, a reward that does not pay for cheating out: clipping, length and repetition."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from critic_prm.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Guards:
    """Bounds on what may be rewarded.

    Rewards are clipped to [`low`, `high`]. A solution with fewer than `least_steps` or more than `most_steps` steps, or of more
    than `most_characters` characters, is drawn towards `low`: wholly where it is beyond a bound by the share `slack` of it, by
    degrees before. So are solutions of which a share of the steps repeats earlier ones: more than the share `repeats` of their
    n-grams of 4 words, None to allow all. No guard ever raises a reward. Raises UsageError.
    """

    low: float = 0.0
    high: float = 1.0
    least_steps: int = 1
    most_steps: int | None = None
    most_characters: int | None = None
    slack: float = 0.5
    repeats: float | None = 0.6

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UsageError(f"rewards are clipped to [{self.low:g}, {self.high:g}]; the first must be the smaller one")
        if self.slack <= 0:
            raise UsageError(f"the slack is {self.slack:g}; it must be above 0")

    def allowed(self, steps: Sequence[str]) -> float:
        """The share of its reward that a solution keeps, from 1 (within all bounds) to 0."""
        repeated = sum(self.repeated(steps))
        return min(
            within(len(steps), self.least_steps, self.most_steps, self.slack),
            within(sum(map(len, steps)), 0, self.most_characters, self.slack),
            1 - repeated / len(steps) if steps else 1.0,
        )

    def repeated(self, steps: Sequence[str]) -> list[bool]:
        """For each step, whether it repeats earlier ones."""
        if self.repeats is None:
            return [False] * len(steps)
        return [share > self.repeats for share in repetition(steps)]

    def apply(self, reward: float, steps: Sequence[str]) -> float:
        """The reward after all guards: between `low` and what it was, and at most `high`."""
        kept = min(max(reward, self.low), self.high)
        return min(kept, self.low + (kept - self.low) * self.allowed(steps))


def within(length: float, least: float, most: float | None, slack: float = 0.5) -> float:
    """1 for a length from `least` to `most`, 0 beyond either by the share `slack` of it, in a straight line between."""
    short = (least - length) / (slack * least) if least else 0.0
    long = (length - most) / (slack * max(most, 1)) if most is not None else 0.0
    return 1 - min(max(short, long, 0.0), 1.0)


def repetition(steps: Sequence[str], n: int = 4) -> list[float]:
    """For each step the share of its n-grams of words that earlier steps have; 0 for a step with fewer than n words, unless an
    earlier step says exactly the same: then 1."""
    seen: set[tuple[str, ...]] = set()
    said: set[tuple[str, ...]] = set()
    shares = []
    for text in steps:
        words = tuple(_WORD.findall(text.lower()))
        grams = [words[i : i + n] for i in range(len(words) - n + 1)]
        shares.append(1.0 if words in said else sum(gram in seen for gram in grams) / len(grams) if grams else 0.0)
        seen.update(grams)
        said.add(words)
    return shares


def length_correlation(rewards: Sequence[float], lengths: Sequence[float], groups: Sequence[Hashable]) -> float | None:
    """Spearman's correlation of reward and length among solutions of one group (a prompt): what a policy that learns to please
    by length shows first. None where one of them does not vary within any group."""
    import numpy as np

    sums = np.zeros(3)
    for group in set(groups):
        places = [place for place, name in enumerate(groups) if name == group]
        x, y = (_centred_ranks([values[place] for place in places]) for values in (rewards, lengths))
        sums += (x @ y, x @ x, y @ y)
    return float(sums[0] / np.sqrt(sums[1] * sums[2])) if sums[1] > 0 and sums[2] > 0 else None


def _centred_ranks(values: Sequence[float]) -> NDArray[np.float64]:
    import numpy as np

    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - counts / 2)[place]
    return np.asarray(ranks - ranks.mean(), dtype=np.float64)


def clipped(p_correct: Sequence[float], eta: float) -> list[float]:
    """min(p - eta, 0): good steps earn nothing, so there is nothing to gain by making more of them (Gao et al. 2024,
    2410.15115)."""
    return [min(p - eta, 0.0) for p in p_correct]


def delta(p_correct: Sequence[float]) -> list[float]:
    """p_t - p_(t+1), the last step keeping its own: returns are then p_t itself, however many steps follow (2410.15115)."""
    return [here - after for here, after in pairwise([*p_correct, 0.0])]
