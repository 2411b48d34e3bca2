"""Summarize a language model's token probabilities per step: how surprising the tokens are, and where."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
RESULT = 3
"""Number of tokens after an equals sign that count as its result."""

STEP = (
    "mean", "largest", "three_largest", "eight_largest", "median", "spread", "sum", "entropy", "entropy_largest", "excess",
    "excess_three_largest", "lost", "lost_largest", "not_first", "rare", "digits", "digits_largest", "digits_excess",
    "digits_excess_largest", "digits_lost", "digits_lost_largest", "result", "result_largest", "result_lost",
    "result_lost_largest", "words", "words_largest", "end", "end_entropy", "first", "first_five", "last_five", "share_digits",
    "tokens",
)  # fmt: skip
"""Features of a step, one number each.

Surprise is -log P (nats). Excess is surprise minus the entropy of the prediction. Lost is the difference between the log
probability of the most likely token and that of the actual token.
"""

AGAINST_MEAN = (
    "mean", "largest", "three_largest", "entropy", "excess", "lost", "not_first", "digits", "digits_largest", "digits_lost",
    "digits_lost_largest",
)  # fmt: skip
AGAINST_LARGEST = ("mean", "largest", "three_largest", "lost_largest", "digits_largest", "digits_lost_largest")
NAMES = (*STEP, *(f"{n}-mean_before" for n in AGAINST_MEAN), *(f"{n}-largest_before" for n in AGAINST_LARGEST))


@dataclass(frozen=True, slots=True)
class StepFeatures:
    """A frozen model's features of one solution. Steps that do not fit into the context are rows of NaN."""

    states: NDArray[np.float32]
    """Hidden state at each step's end and the mean over the step's tokens, shape (steps, 2 d)."""
    surprise: NDArray[np.float32]
    """Statistics of the token probabilities, shape (steps, summaries)."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Which tokens of a vocabulary contain a digit and which an equals sign; shape (tokens,) each."""

    digit: NDArray[np.bool_]
    equals: NDArray[np.bool_]


def mark_tokens(tokenizer: Any) -> Marks:
    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    return Marks(np.array([any(c.isdigit() for c in t) for t in texts]), np.array(["=" in t for t in texts]))


def summarize(expected: Floats, ids: NDArray[np.int64], counts: NDArray[np.int64], marks: Marks) -> NDArray[np.float32]:
    """Compute the features of the steps of one solution: shape (steps, len(NAMES)), NaN where a step lacks the tokens.

    `expected` (tokens, 3) holds, for the tokens of all steps, the log probability, the entropy and the highest log probability.
    `counts` (steps,) is the number of tokens of each step, including the last one of its tag. A row depends only on its own and
    earlier steps.
    """
    bounds = np.concatenate([[0], np.cumsum(counts)])
    own = np.array([_step(expected[a:b], ids[a:b], marks) for a, b in pairwise(bounds)])
    mean_at, largest_at = ([STEP.index(name) for name in names] for names in (AGAINST_MEAN, AGAINST_LARGEST))
    known = ~np.isnan(own)
    seen = np.cumsum(known, axis=0) - known
    total = np.cumsum(np.where(known, own, 0.0), axis=0) - np.where(known, own, 0.0)
    mean = np.divide(total, seen, out=np.full_like(own, np.nan), where=seen > 0)
    running = np.maximum.accumulate(np.where(known, own, -np.inf), axis=0)
    largest = np.vstack([np.full((1, own.shape[1]), np.nan), np.where(np.isinf(running), np.nan, running)[:-1]])
    against = [own[:, mean_at] - mean[:, mean_at], own[:, largest_at] - largest[:, largest_at]]
    return np.concatenate([own, *against], axis=1).astype(np.float32)


def _step(expected: Floats, ids: NDArray[np.int64], marks: Marks) -> list[float]:
    body, names = (expected[:-1], ids[:-1]) if len(expected) > 1 else (expected, ids)
    surprise, entropy, lost = -body[:, 0], body[:, 1], body[:, 2] - body[:, 0]
    excess, falling = surprise - entropy, np.sort(surprise)[::-1]
    digit, at = marks.digit[names], np.flatnonzero(marks.equals[names])
    result = np.zeros(len(names), dtype=bool)
    for offset in range(1, RESULT + 1):
        result[(at + offset)[at + offset < len(names)]] = True
    result &= digit
    return [
        surprise.mean(), falling[0], falling[:3].mean(), falling[:8].mean(), float(np.median(surprise)), surprise.std(),
        surprise.sum(), entropy.mean(), entropy.max(), excess.mean(), np.sort(excess)[::-1][:3].mean(), lost.mean(), lost.max(),
        float((lost > 0).mean()), float((surprise > 3).mean()),
        *_two(surprise, digit), *_two(excess, digit), *_two(lost, digit), *_two(surprise, result), *_two(lost, result),
        *_two(surprise, ~digit), -expected[-1, 0], expected[-1, 1], surprise[0], surprise[:5].mean(), surprise[-5:].mean(),
        float(digit.mean()), float(len(names)),
    ]  # fmt: skip


def _two(values: Floats, where: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the mean and the maximum of the selected values, NaN if there are none."""
    return (float(values[where].mean()), float(values[where].max())) if where.any() else (np.nan, np.nan)
