"""Measure how much of a step is new, by token pairs that neither the problem nor earlier steps contain."""

from __future__ import annotations

from itertools import pairwise
from math import log

from distill.features.scan import Scan

NAMES = (
    "new_pairs", "new_pair_share", "new_math_pairs", "new_math_share", "new_symbols", "math_tokens", "new_against_mean",
    "new_pairs_before", "most_new_before", "mean_new_before", "new_math_before", "problem_pairs",
)  # fmt: skip


class Novelty:
    """Tracks what one solution has stated; `step` returns NAMES for the next step."""

    def __init__(self, problem: Scan) -> None:
        self.symbols = set(problem.tokens)
        self.pairs = set(pairwise(problem.tokens))
        self.problem = len(self.pairs)
        self.new = self.most = self.steps = self.math = 0

    def step(self, scan: Scan) -> tuple[float, ...]:
        tokens = scan.tokens
        pairs = set(pairwise(tokens))
        fresh = pairs - self.pairs
        plain = {t for t in tokens if len(t) > 1 and t.isalpha()}
        math = len([1 for a, b in pairs if a not in plain or b not in plain])
        fresh_math = len([1 for a, b in fresh if a not in plain or b not in plain])
        symbols = set(tokens) - plain
        new = len(fresh)
        mean = self.new / self.steps if self.steps else 0.0
        row = (
            log(1 + new), new / (len(pairs) or 1), float(fresh_math), fresh_math / (math or 1),
            float(len(symbols - self.symbols)), float(len([1 for t in tokens if t not in plain])),
            log((1 + new) / mean) if mean else 0.0, log(1 + self.new), float(self.most), mean,
            float(self.math), float(self.problem),
        )  # fmt: skip
        self.pairs |= pairs
        self.symbols |= symbols
        self.new += new
        self.most = max(self.most, new)
        self.steps += 1
        self.math += fresh_math
        return row
