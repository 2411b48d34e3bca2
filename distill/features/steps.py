"""Compute the numeric features of steps, each from the problem, the earlier steps and the step itself only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from distill.features.algebra import Algebra
from distill.features.numbers import Numbers
from distill.features.text import Form, Novelty, Scan, Wording, scan


class Tracker(Protocol):
    """Reads one solution step by step, after the problem."""

    def step(self, scan: Scan) -> tuple[float, ...]:
        """Return the features of the next step, in the order of the class's NAMES."""
        ...


TRACKERS = (Form, Wording, Numbers, Algebra, Novelty)
NAMES: tuple[str, ...] = tuple(name for tracker in TRACKERS for name in tracker.NAMES)


def extract(problem: str, steps: Sequence[str]) -> NDArray[np.float64]:
    """Return the features of every step, shape (steps, len(NAMES)).

    A tracker sees the problem, then one step after another, and never a later one, so a step's row does not depend on what
    follows.
    """
    about = scan(problem, spoken=True)
    trackers: list[Tracker] = [tracker(about) for tracker in TRACKERS]
    out = np.empty((len(steps), len(NAMES)))
    for index, step in enumerate(steps):
        read = scan(step)
        out[index] = list(chain.from_iterable([tracker.step(read) for tracker in trackers]))
    return out


PROBES = (
    (
        "A shop sells 12 apples for $3 and gives 20% off to 1,250 members. How much do two dozen cost?",
        (
            "Step 1: Since 24 / 12 = 2, we need 2 x $3 = $6.",
            "Let $x$ be the price: \\( \\frac{x}{2} + 1 = 4 \\implies x = 6 \\), so 2(x+1) = 2x + 2 = 2x + 3.",
            "However, 20% of 6 = 1.2, thus 6 - 1.2 = 4.9 dollars.\n- The final answer is \\boxed{4.9}",
        ),
    ),
    ("Prove that $n^2 \\equiv 0 \\pmod 4$ for all even n.", ("Let n = 2k. Then n^2 = (2k)^2 = 4k^2.", "Wait, is 7 = 8?")),
)


def fingerprint() -> str:
    """Return a digest of the features of a few fixed solutions.

    A verifier stores it. If a tracker, or the checker it calls, changes how it reads texts, stored weights no longer fit the
    features; this must be an error, not a silently worse score.
    """
    values = np.concatenate([extract(problem, steps) for problem, steps in PROBES])
    said = ",".join(NAMES) + "".join(f" {value:.5g}" for value in values.ravel())
    return hashlib.sha256(said.encode()).hexdigest()[:16]
