"""Sequential stopping rules for rollouts, and confidence intervals that account for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Literal, get_args

from critic_prm.errors import UsageError

Rule = Literal["all", "curtailed", "decided"]
RULES: tuple[Rule, ...] = get_args(Rule)
LEVEL = 0.95
SURE = 0.98
"""Default for `Enough.sure`. Checked after every rollout, 0.95 would flip 1% of the labels, 0.98 flips 0.2%."""
MOST = 512

_SPEC = re.compile(r"(\d+)(?:@(\d*\.?\d+))?")


@dataclass(frozen=True, slots=True)
class Enough:
    """Stopping rule for the rollouts of a prefix.

    A prefix is good if more than the share `theta` of its rollouts is correct. With `theta` 0, one correct rollout is enough:
    Math-Shepherd's hard label.
    """

    most: int = 8
    """Maximum number of rollouts per prefix."""
    rule: Rule = "all"
    """Stopping rule. "all" always takes `most` rollouts. "curtailed" stops as soon as no further rollout can change the hard
    label: the label is the same as after `most` rollouts, but the share no longer estimates the success probability. "decided"
    also stops when that probability lies on one side of `theta` with probability `sure`; with `theta` 0 it equals "curtailed".
    """
    theta: float = 0.0
    """Share of correct rollouts above which a prefix is good."""
    level: float = LEVEL
    """Confidence level of intervals."""
    sure: float = SURE
    """Posterior probability at which "decided" stops, under a uniform prior."""

    def __post_init__(self) -> None:
        if not 1 <= self.most <= MOST:
            raise UsageError(f"{self.most} rollouts of a prefix; it must be 1 to {MOST}")
        if self.rule not in RULES:
            raise UsageError(f"the rule is {self.rule!r}; it is {', '.join(RULES)}")
        if not 0 <= self.theta < 1:
            raise UsageError(f"the threshold is {self.theta}; it is a share of right rollouts, 0 or more and below 1")

    def good(self, k: int, n: int) -> bool:
        """Return whether k correct rollouts of n make a prefix good. n must not be 0."""
        return k > self.theta * n

    def more(self, k: int, n: int) -> int:
        """Return how many rollouts to request next, all concurrently, or 0 to stop. None of them can be saved by an earlier
        stop.
        """
        left = self.most - n
        if left <= 0 or self.rule == "all":
            return max(left, 0)
        needed = int(self.theta * self.most) + 1 - k
        goods, bads = needed, left - needed + 1  # rollouts of one kind in a row that settle the label
        if goods <= 0 or bads <= 0:
            return 0
        soonest = min(goods, bads)
        if self.rule == "decided" and self.theta > 0:
            soonest = next((w for w in range(min(soonest, left)) if self._side(k + w, n + w) or self._side(k, n + w)), soonest)
        return min(soonest, left)

    def _side(self, k: int, n: int) -> bool:
        return n > 0 and max(below := _below(k, n, self.theta), 1 - below) >= self.sure


@lru_cache(maxsize=1 << 17)
def _below(k: int, n: int, theta: float) -> float:
    """P(p <= theta) after k of n under a uniform prior: the exact CDF of Beta(1 + k, 1 + n - k)."""
    return sum(comb(n + 1, i) * theta**i * (1 - theta) ** (n + 1 - i) for i in range(k + 1, n + 2))


def parse_rollouts(text: str) -> tuple[tuple[float, int], ...]:
    """Parse the number of rollouts, optionally by pass rate of the problem.

    "8" gives ((0.0, 8),). "128@0,64@0.1,32@0.9" gives 128 rollouts from pass rate 0, 64 from 0.1 and 32 from 0.9 upward. Raises
    UsageError.
    """
    found: dict[float, int] = {}
    for part in text.split(","):
        match = _SPEC.fullmatch(part.strip())
        if match is None or not 1 <= int(match.group(1)) <= MOST or not 0 <= float(match.group(2) or 0) <= 1:
            raise UsageError(
                f"the number of rollouts is {text!r}; write a number from 1 to {MOST}, or by pass rate as in"
                " 128@0,64@0.1,32@0.9"
            )
        found[float(match.group(2) or 0)] = int(match.group(1))
    if 0.0 not in found:
        raise UsageError(f"the number of rollouts is {text!r}; it does not cover pass rates from 0 on; add one such as 128@0")
    return tuple(sorted(found.items()))


def rollouts_for(table: tuple[tuple[float, int], ...], pass_rate: float) -> int:
    """Return the number of rollouts for a problem with this pass rate."""
    return [n for least, n in table if pass_rate >= least][-1]


@lru_cache(maxsize=65536)
def interval(k: int, n: int, enough: Enough | None = None) -> tuple[float, float]:
    """Two-sided confidence interval of the success probability after k correct rollouts of n, at `enough.level` or 95%.

    Without `enough`, or with the rule "all", this is the Clopper-Pearson interval. Early stopping makes some results more
    likely than a fixed number of rollouts does. The interval is then exact for the rule, with the possible final results
    ordered by their share (Jennison and Turnbull, Group Sequential Methods, chapter 8). Its coverage is at least the nominal
    level.
    """
    if n == 0:
        return 0.0, 1.0
    ends = _ends(enough) if enough is not None and enough.rule != "all" else {}
    if (k, n) not in ends:  # a fixed number of rollouts, or some were lost
        ends = {(i, n): comb(n, i) for i in range(n + 1)}
    tail = (1 - (enough.level if enough else LEVEL)) / 2
    here = k / n
    above = [(i, m, c) for (i, m), c in ends.items() if i / m >= here - 1e-12]
    below = [(i, m, c) for (i, m), c in ends.items() if i / m <= here + 1e-12]
    low = 0.0 if k == 0 else _root(above, tail, rising=True)
    high = 1.0 if k == n else _root(below, tail, rising=False)
    return low, high


def _root(results: list[tuple[int, int, int]], tail: float, *, rising: bool) -> float:
    """Find by bisection the success probability at which these results have total probability `tail`."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        mass = sum(count * middle**k * (1 - middle) ** (n - k) for k, n, count in results)
        if (mass < tail) == rising:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@lru_cache(maxsize=256)
def _ends(enough: Enough) -> dict[tuple[int, int], int]:
    """Map every final (k, n) of a rule to the number of rollout sequences that lead to it."""
    ways: dict[tuple[int, int], int] = {(0, 0): 1}
    ends: dict[tuple[int, int], int] = {}
    for n in range(enough.most + 1):
        for k in range(n + 1):
            count = ways.pop((k, n), 0)
            if not count:
                continue
            wave = enough.more(k, n)
            if wave == 0:
                ends[k, n] = count
            for right in range(wave + 1) if wave else ():
                place = (k + right, n + wave)
                ways[place] = ways.get(place, 0) + count * comb(wave, right)
    return ends
