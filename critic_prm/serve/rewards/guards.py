"""Guard rewards against reward hacking: clipping, length limits and repetition penalties."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from critic_prm.errors import UsageError
from critic_prm.metrics.scores import midranks

_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Guards:
    """Limits on rewards. No guard ever raises a reward. Raises UsageError for invalid limits.

    A reward above `high` is clipped. A solution that violates a limit is moved linearly towards `low`, and gets `low` if it
    exceeds the limit by the share `slack`.
    """

    low: float = 0.0
    """The lowest reward: what an empty or unjudged solution gets, and what violations of limits lead to. It must not be above
    the reward that any solution can earn."""
    high: float = 1.0
    """The highest reward."""
    least_steps: int = 1
    """Minimum number of steps."""
    most_steps: int | None = None
    """Maximum number of steps; None for no limit."""
    most_characters: int | None = None
    """Maximum number of characters; None for no limit."""
    slack: float = 0.5
    """Share by which a limit must be exceeded for the lowest reward."""
    repeats: float | None = 0.6
    """A step repeats earlier ones if more than this share of its word 4-grams occurs in them. The share of such steps lowers
    the reward. None for no limit."""

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise UsageError(
                f"the lowest reward is {self.low:g} and the highest {self.high:g}; the lowest must be the smaller one"
            )
        if self.slack <= 0:
            raise UsageError(f"the slack is {self.slack:g}; it must be above 0")

    def allowed(self, steps: Sequence[str]) -> float:
        """The share of its reward that a solution keeps, from 1 (within all limits) to 0."""
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
        """The reward clipped at `high`, then moved towards `low` by the share that `allowed` takes away. A reward that is
        already below `low` stays as it is."""
        clipped = min(reward, self.high)
        return min(clipped, self.low + (clipped - self.low) * self.allowed(steps))


def within(length: float, least: float, most: float | None, slack: float = 0.5) -> float:
    """1 for a length from `least` to `most`, 0 if it exceeds a limit by the share `slack`, linear in between."""
    short = (least - length) / (slack * least) if least else 0.0
    long = (length - most) / (slack * max(most, 1)) if most is not None else 0.0
    return 1 - min(max(short, long, 0.0), 1.0)


def repetition(steps: Sequence[str], n: int = 4) -> list[float]:
    """For each step, the share of its word n-grams that occur in earlier steps. A step with fewer than n words gets 1 if it
    equals an earlier step, otherwise 0."""
    seen: set[tuple[str, ...]] = set()
    earlier: set[tuple[str, ...]] = set()
    shares = []
    for text in steps:
        words = tuple(_WORD.findall(text.lower()))
        grams = [words[i : i + n] for i in range(len(words) - n + 1)]
        shares.append(1.0 if words in earlier else sum(gram in seen for gram in grams) / len(grams) if grams else 0.0)
        seen.update(grams)
        earlier.add(words)
    return shares


def length_correlation(rewards: Sequence[float], lengths: Sequence[float], groups: Sequence[Hashable]) -> float | None:
    """Spearman correlation of reward and length among solutions of one group (a prompt). It is the first sign of a policy that
    learns to exploit length. None if neither varies within any group."""
    sums = np.zeros(3)
    for group in set(groups):
        places = [place for place, name in enumerate(groups) if name == group]
        ranks = (midranks([values[place] for place in places]) for values in (rewards, lengths))
        x, y = (own - own.mean() for own in ranks)
        sums += (x @ y, x @ x, y @ y)
    return float(sums[0] / np.sqrt(sums[1] * sums[2])) if sums[1] > 0 and sums[2] > 0 else None


def clipped(p_correct: Sequence[float], eta: float) -> list[float]:
    """min(p - eta, 0): correct steps earn nothing, so adding more of them does not pay (Gao et al. 2024, 2410.15115)."""
    return [min(p - eta, 0.0) for p in p_correct]


def delta(p_correct: Sequence[float]) -> list[float]:
    """p_t - p_(t+1), with the last step unchanged: the return from step t is p_t, however many steps follow (2410.15115)."""
    return [here - after for here, after in pairwise([*p_correct, 0.0])]
