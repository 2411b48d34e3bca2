"""A problem and its steps in, a row of numbers per step out; each depends on the problem, earlier steps and this step alone."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_WORD = re.compile(r"[a-z]+")

NAMES = (
    "index",
    "length",
    "words",
    "numbers",
    "new_numbers",
    "copied_problem",
    "copied_before",
    "problem_length",
    "equals",
    "latex",
)


def extract(problem: str, steps: Sequence[str]) -> NDArray[np.float64]:
    """Features of every step, shape (steps, len(NAMES))."""
    known = set(_NUMBER.findall(problem))
    asked = set(_WORD.findall(problem.lower()))
    before: set[str] = set()
    out = np.empty((len(steps), len(NAMES)))
    for i, step in enumerate(steps):
        numbers, words = _NUMBER.findall(step), set(_WORD.findall(step.lower()))
        out[i] = (
            i,
            len(step),
            len(words),
            len(numbers),
            sum(n not in known for n in numbers),
            len(words & asked) / (len(words) or 1),
            len(words & before) / (len(words) or 1),
            len(problem),
            step.count("="),
            step.count("\\"),
        )
        known.update(numbers)
        before |= words
    return out
