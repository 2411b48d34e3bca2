"""Credit assignment: step rewards from step values by progress, min-form, shaping, TD and KL methods."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from critic_prm.errors import UsageError

TEMPERATURE = 0.1
"""Softmax temperature of PURE."""


def progress(values: Sequence[float], start: float) -> list[float]:
    """The gain of each step: V_t - V_(t-1), with `start` as the value before the first. Sums to the last value minus
    `start`."""
    return [after - before for before, after in pairwise([start, *values])]


def prover_values(values: Sequence[float], k: int = 4) -> list[float]:
    """Success rates of the best of `k` attempts from success rates of one: 1 - (1 - Q)^k (PAV, Setlur et al. 2024,
    2410.08146)."""
    return [1 - (1 - q) ** k for q in values]


def effective_rewards(values: Sequence[float], start: float, alpha: float = 0.5, k: int = 4) -> list[float]:
    """Effective reward of each step in PAV: the policy's own value after it, plus `alpha` times the progress of a best-of-`k`
    prover. `start` is the policy's value before the first step."""
    gains = progress(prover_values(values, k), prover_values([start], k)[0])
    return [value + alpha * gain for value, gain in zip(values, gains, strict=True)]


def signed(p_correct: Sequence[float]) -> list[float]:
    """P(correct) - P(incorrect), in [-1, 1], the input of min-form credit."""
    return [2 * p - 1 for p in p_correct]


def min_form_weights(rewards: Sequence[float], temperature: float = TEMPERATURE) -> list[float]:
    """softmax(-r / temperature): at low temperature nearly all weight is on the worst step, at high temperature weights are
    equal."""
    if not temperature > 0:
        raise UsageError(f"the temperature is {temperature:g}; it must be above 0")
    least = min(rewards)
    weights = [math.exp((least - r) / temperature) for r in rewards]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def min_form(rewards: Sequence[float], temperature: float = TEMPERATURE) -> list[float]:
    """Min-form credit of PURE (Cheng et al. 2025, 2504.15275): each step's reward times its weight. The sum is close to the
    minimum, so more steps do not increase it. `rewards` are `signed`; returns are `returns(min_form(...))`."""
    weights = min_form_weights(rewards, temperature)
    return [weight * reward for weight, reward in zip(weights, rewards, strict=True)]


def returns(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """G_t = r_t + gamma * G_(t+1)."""
    out: list[float] = []
    after = 0.0
    for reward in reversed(rewards):
        after = reward + gamma * after
        out.append(after)
    return out[::-1]


def shaping(potentials: Sequence[float], gamma: float = 1.0, *, ended: bool = True) -> list[float]:
    """F_t = gamma * Phi(h_(t+1)) - Phi(h_t) for T steps from the T + 1 `potentials` of h_0 .. h_T (Ng, Harada, Russell 1999).

    The potential of the final state is taken as 0, so F adds -Phi(h_0) to the discounted return of every trajectory and does
    not change the ranking of policies. A truncated episode (`ended` false) keeps the potential of its last state.
    """
    phi = [*potentials[:-1], 0.0 if ended else potentials[-1]]
    return [gamma * after - before for before, after in pairwise(phi)]


def shaped_rewards(potentials: Sequence[float], outcome: float, gamma: float = 1.0, *, ended: bool = True) -> list[float]:
    """`shaping`, plus the outcome on the last step of an episode that ended."""
    rewards = shaping(potentials, gamma, ended=ended)
    if ended and rewards:
        rewards[-1] += outcome
    return rewards


def advantages(
    rewards: Sequence[float], values: Sequence[float], start: float, *, gamma: float = 1.0, trace: float = 0.95
) -> list[float]:
    """Generalized advantage estimates: the sum of delta_t = r_t + gamma * V_t - V_(t-1) weighted by (gamma * trace)^k, without
    a bootstrap value at the end.

    `values` are those after each step, `start` the one before the first. With `trace` 1, the advantage is the Monte Carlo
    return minus the value.
    """
    before = [start, *values[:-1]]
    after = [*values[:-1], 0.0]
    deltas = [r + gamma * b - a for r, b, a in zip(rewards, after, before, strict=True)]
    return returns(deltas, gamma * trace)


def value_targets(
    rewards: Sequence[float], values: Sequence[float], start: float, *, gamma: float = 1.0, trace: float = 0.95
) -> list[float]:
    """Training targets for the value of each step: its advantage plus the value before it (AgentPRM, 2511.08325)."""
    before = [start, *values[:-1]]
    gains = advantages(rewards, values, start, gamma=gamma, trace=trace)
    return [gain + value for gain, value in zip(gains, before, strict=True)]


def discounted_outcome(
    outcome: float, steps: int, gamma: float = 0.95, discount: Literal["to_go", "code"] = "to_go"
) -> list[float]:
    """The outcome (0 to 1) as a target for each of `steps` steps, discounted towards one half with the distance from the end
    (AgentPRM, 2502.10325). "code" discounts late steps instead of early ones, as the released code does."""
    powers = range(steps) if discount == "code" else range(steps - 1, -1, -1)
    return [(gamma**power * (2 * outcome - 1) + 1) / 2 for power in powers]


def regularised(log_ratios: Sequence[float], advantage: float, eta: float) -> list[float]:
    """Credit of PRL (2601.10201): the outcome advantage minus 1 / eta times the sum of the policy-to-reference log-ratios from
    each position on."""
    return [advantage - tail / eta for tail in returns(log_ratios)]


def first_error_chances(hazards: Sequence[float]) -> list[float]:
    """P(the first error is at step t) for each t, and last P(no error), from P(step t is incorrect | no earlier error)."""
    chances, alive = [], 1.0
    for hazard in hazards:
        chances.append(alive * hazard)
        alive *= 1 - hazard
    return [*chances, alive]


def on_tokens(rewards: Sequence[float | None], ends: Sequence[int], length: int) -> list[float]:
    """Distribute step rewards over `length` tokens: each on the last token of its step, given by `ends` (exclusive,
    increasing); 0 for all other tokens and for steps without a reward. Raises UsageError for invalid ends."""
    rising = all(0 < a < b for a, b in pairwise(ends)) and (not ends or (ends[0] > 0 and ends[-1] <= length))
    if len(ends) != len(rewards) or not rising:
        raise UsageError(
            f"{len(rewards)} rewards and step ends {list(ends)} in {length} tokens; give one rising end for each step"
        )
    out = [0.0] * length
    for reward, end in zip(rewards, ends, strict=True):
        out[end - 1] = reward or 0.0
    return out
