"""Advantages of the responses to one prompt: each response is compared with the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from critic_prm.errors import UsageError
from critic_prm.serve.rewards.credit import min_form, returns

Form = Literal["leave-one-out", "prime"]
Baseline = Literal["step", "token"]


def leave_one_out(rewards: Sequence[float | None]) -> list[float | None]:
    """Each reward minus the mean of the others (RLOO). None stays None and is excluded from the means; 0 if there are no
    others."""
    known = [r for r in rewards if r is not None]
    total, n = math.fsum(known), len(known)
    return [None if r is None else r - (total - r) / (n - 1) if n > 1 else 0.0 for r in rewards]


def process_advantages(
    rewards: Sequence[Sequence[float]],
    outcomes: Sequence[float] | None = None,
    *,
    gamma: float = 1.0,
    form: Form = "leave-one-out",
) -> list[list[float]]:
    """Advantages of each token or step in PRIME (Cui et al. 2025, 2502.01456), before whitening.

    `rewards[i]` are those of response i. The baseline is the mean, over the other responses, of their mean reward; the
    differences are summed from each position on. With `outcomes`, one per response, their leave-one-out advantage is added.
    "prime" is the form of the released code: the return of the whole response is the same, but distributed slightly
    differently. Raises UsageError for fewer than two responses or an empty one.
    """
    n = len(rewards)
    if n < 2 or not all(rewards):
        raise UsageError(f"{n} responses of lengths {[len(row) for row in rewards]}; it takes two or more, none of them empty")
    means = [math.fsum(row) / len(row) for row in rewards]
    total = math.fsum(means)
    ends = leave_one_out(outcomes) if outcomes is not None else [0.0] * n
    out = []
    for row, own, end in zip(rewards, means, ends, strict=True):
        scale, baseline = (n / (n - 1), total / (n - 1)) if form == "prime" else (1.0, (total - own) / (n - 1))
        relative = [r * scale - baseline for r in row]
        relative[-1] += end or 0.0
        out.append(returns(relative, gamma))
    return out


def min_form_advantages(
    rewards: Sequence[Sequence[float]],
    tokens: Sequence[Sequence[int]] | None = None,
    *,
    temperature: float = 0.1,
) -> list[list[float]]:
    """Advantages of each step in PURE: min-form returns minus a baseline from the other responses, per step or per token.

    `rewards[i]` are the signed step rewards of response i. With `tokens`, the number of tokens of each step, the baseline is
    the others' reward per token times the step's tokens; otherwise the others' mean reward per step. Raises UsageError.
    """
    n = len(rewards)
    if n < 2 or not all(rewards):
        raise UsageError(f"{n} responses of lengths {[len(row) for row in rewards]}; it takes two or more, none of them empty")
    credit = [min_form(row, temperature) for row in rewards]
    totals = [math.fsum(row) for row in credit]
    sizes = tokens if tokens is not None else [[1] * len(row) for row in rewards]
    lengths = [sum(row) for row in sizes]
    out = []
    for i in range(n):
        others = [j for j in range(n) if j != i]
        if tokens is None:
            rate = math.fsum(totals[j] / lengths[j] for j in others) / (n - 1)
        else:
            rate = math.fsum(totals[j] for j in others) / sum(lengths[j] for j in others)
        out.append(returns([r - rate * size for r, size in zip(credit[i], sizes[i], strict=True)]))
    return out


def whiten(advantages: Sequence[Sequence[float]], epsilon: float = 1e-8) -> list[list[float]]:
    """Normalize the advantages of a batch to mean 0 and standard deviation 1 over all its tokens."""
    flat = [value for row in advantages for value in row]
    middle = math.fsum(flat) / len(flat)
    scale = math.sqrt(math.fsum((value - middle) ** 2 for value in flat) / len(flat)) + epsilon
    return [[(value - middle) / scale for value in row] for row in advantages]
