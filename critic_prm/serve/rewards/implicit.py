"""Implicit process rewards from log-ratios of two models, without step labels, as in PRIME."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from critic_prm.errors import UsageError

BETA = 0.05


def token_rewards(log_ratios: Sequence[float], beta: float = BETA) -> list[float]:
    """beta * (log pi_prm - log pi_ref) for each token of a response (Yuan et al. 2024, 2412.01981)."""
    return [beta * ratio for ratio in log_ratios]


def token_values(log_ratios: Sequence[float], beta: float = BETA) -> list[float]:
    """Q after each token: the cumulative sum of rewards. The last value is the response-level reward r(y)."""
    return list(accumulate(token_rewards(log_ratios, beta)))


def step_rewards(log_ratios: Sequence[float], ends: Sequence[int], beta: float = BETA) -> list[float]:
    """The rewards of steps whose tokens end at `ends` (exclusive, increasing, the last one equal to the length). Raises
    UsageError.

    The rewards are relative: 0 where both models agree. They are not probabilities, so a threshold of one half has no meaning.
    """
    if sorted({0, *ends}) != [0, *ends] or (ends or [0])[-1] != len(log_ratios):
        raise UsageError(
            f"step ends {list(ends)} in {len(log_ratios)} tokens; they must rise, and the last be the number of tokens"
        )
    return [math.fsum(token_rewards(log_ratios[a:b], beta)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def outcome_loss(log_ratios: Sequence[Sequence[float]], outcomes: Sequence[float], beta: float = BETA) -> float:
    """The mean cross-entropy, in nats, of sigmoid(r(y)) and the outcomes (0 to 1): the training loss of an implicit PRM.

    Computed from log-sigmoids, so that large rewards do not overflow.
    """
    rewards = [beta * math.fsum(ratios) for ratios in log_ratios]
    pairs = zip(rewards, outcomes, strict=True)
    return -math.fsum(y * _log_sigmoid(r) + (1 - y) * _log_sigmoid(-r) for r, y in pairs) / len(rewards)


def scaled(rewards: Sequence[Sequence[float]], epsilon: float = 1e-6) -> list[list[float]]:
    """The rewards of a batch divided by the largest return-to-go in it: PRIME's batch normalization (2502.01456)."""
    most = max((abs(value) for row in rewards for value in accumulate(reversed(row))), default=0.0)
    return [[reward / (most + epsilon) for reward in row] for row in rewards]


def _log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))
