"""How often rollouts from after each step came out right -> a label a step: hard, soft, by progress, or from both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Target = Literal["soft", "hard", "progress", "dual"]
TARGETS: tuple[Target, ...] = get_args(Target)

EPSILON = 0.8
"""GenPRM's least progress of a good step."""


def progress_ratios(root: float, shares: Sequence[float]) -> list[float | None]:
    """GenPRM's relative progress (arXiv 2504.00891): P_t = MC(after step t) / MC(before it), where `root` is MC of the problem
    itself. None where it has no meaning any more, after a 0."""
    before = [root, *shares]
    return [after / earlier if earlier > 0 else None for earlier, after in zip(before, shares, strict=False)]


def progress_labels(root: float, shares: Sequence[float], epsilon: float = EPSILON) -> list[int]:
    """1 where the progress is at least `epsilon`, else 0; 0 at the first MC of 0 and from there on."""
    labels: list[int] = []
    dead = False
    for share, ratio in zip(shares, progress_ratios(root, shares), strict=True):
        dead = dead or share <= 0
        # a ratio of two shares, each rounded: exactly `epsilon` must not fall below it
        labels.append(int(not dead and ratio is not None and ratio >= epsilon - 1e-12))
    return labels


def dual_sided(values: Sequence[float], factor: float = 1.0, *, recursive: bool = False) -> list[float]:
    """MedS3's label from both sides (arXiv 2501.12051): l_i = v_i - factor * (v_{i-1} - v_i): what a step is worth, and what
    it gained.

    `recursive` takes l_{i-1} for v_{i-1}, as the released code does; that can oscillate. The first step keeps its value.
    Labels may leave [0, 1]: clip them, or take 1 where they are above 0.
    """
    labels: list[float] = []
    for i, value in enumerate(values):
        before = value if i == 0 else labels[i - 1] if recursive else values[i - 1]
        labels.append(value - factor * (before - value))
    return labels


def rescue_rate(chance: float, n: int) -> float:
    """How often the hard label of a prefix is 1: 1 - (1 - chance)^n. For a wrong prefix that a completion mends with `chance`,
    that is the rate of false 1s; for a right one, 1 minus it is the rate of false 0s."""
    return 1.0 - (1.0 - chance) ** n
