"""Convert per-step rollout success rates to step labels: soft, hard, progress or dual-sided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Target = Literal["soft", "hard", "progress", "dual"]
TARGETS: tuple[Target, ...] = get_args(Target)

EPSILON = 0.8
"""GenPRM's threshold: the smallest progress ratio of a good step."""


def progress_ratios(root: float, shares: Sequence[float]) -> list[float | None]:
    """GenPRM's relative progress (arXiv 2504.00891): P_t = MC(after step t) / MC(before step t).

    `root` is the MC value of the problem itself. The ratio is None where the value before the step is 0.
    """
    before = [root, *shares]
    return [after / earlier if earlier > 0 else None for earlier, after in zip(before, shares, strict=False)]


def progress_labels(root: float, shares: Sequence[float], epsilon: float = EPSILON) -> list[int]:
    """Label steps 1 where the progress ratio is at least `epsilon`, else 0; always 0 from the first MC value of 0 on."""
    labels: list[int] = []
    dead = False
    for share, ratio in zip(shares, progress_ratios(root, shares), strict=True):
        dead = dead or share <= 0
        # tolerance: both shares are rounded, and a ratio of exactly `epsilon` must pass
        labels.append(int(not dead and ratio is not None and ratio >= epsilon - 1e-12))
    return labels


def dual_sided(values: Sequence[float], factor: float = 1.0, *, recursive: bool = False) -> list[float]:
    """MedS3's dual-sided label (arXiv 2501.12051): l_i = v_i - factor * (v_{i-1} - v_i), a step's value plus its gain.

    `recursive` uses l_{i-1} in place of v_{i-1}, as the released code does; that can oscillate. The first step keeps its value.
    Labels may leave [0, 1]: clip them, or binarize at 0.
    """
    labels: list[float] = []
    for i, value in enumerate(values):
        before = value if i == 0 else labels[i - 1] if recursive else values[i - 1]
        labels.append(value - factor * (before - value))
    return labels


def rescue_rate(chance: float, n: int) -> float:
    """Probability that the hard label of a prefix is 1: 1 - (1 - chance)^n.

    For an incorrect prefix from which a completion recovers with probability `chance`, this is the false-positive rate. For a
    correct prefix, 1 minus it is the false-negative rate.
    """
    return 1.0 - (1.0 - chance) ** n
