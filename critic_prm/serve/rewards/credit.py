"""Assign credit to steps: rewards from step values or log-ratios, and advantages over the other responses to a prompt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Literal

from critic_prm.errors import UsageError

Form = Literal["leave-one-out", "prime"]

TEMPERATURE = 0.1
"""Softmax temperature of PURE."""

BETA = 0.05
"""Scale of implicit rewards."""


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
            f"the step ends {list(ends)} do not fit {len(rewards)} rewards on {length} tokens; give one increasing end per step"
        )
    out = [0.0] * length
    for reward, end in zip(rewards, ends, strict=True):
        out[end - 1] = reward or 0.0
    return out


# Rewards from log-ratios of two models, without step labels, as in PRIME.


def implicit_token_rewards(log_ratios: Sequence[float], beta: float = BETA) -> list[float]:
    """beta * (log pi_prm - log pi_ref) for each token of a response (Yuan et al. 2024, 2412.01981)."""
    return [beta * ratio for ratio in log_ratios]


def implicit_values(log_ratios: Sequence[float], beta: float = BETA) -> list[float]:
    """Q after each token: the cumulative sum of rewards. The last value is the response-level reward r(y)."""
    return list(accumulate(implicit_token_rewards(log_ratios, beta)))


def implicit_step_rewards(log_ratios: Sequence[float], ends: Sequence[int], beta: float = BETA) -> list[float]:
    """The rewards of steps whose tokens end at `ends` (exclusive, increasing, the last one equal to the length). Raises
    UsageError.

    The rewards are relative: 0 where both models agree. They are not probabilities, so a threshold of one half has no meaning.
    """
    if sorted({0, *ends}) != [0, *ends] or (ends or [0])[-1] != len(log_ratios):
        raise UsageError(
            f"the step ends {list(ends)} must increase, and the last one must be the number of tokens, {len(log_ratios)}"
        )
    return [math.fsum(implicit_token_rewards(log_ratios[a:b], beta)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]


def implicit_outcome_loss(log_ratios: Sequence[Sequence[float]], outcomes: Sequence[float], beta: float = BETA) -> float:
    """The mean cross-entropy, in nats, of sigmoid(r(y)) and the outcomes (0 to 1): the training loss of an implicit PRM.

    Computed from log-sigmoids, so that large rewards do not overflow.
    """
    rewards = [beta * math.fsum(ratios) for ratios in log_ratios]
    pairs = zip(rewards, outcomes, strict=True)
    return -math.fsum(y * _log_sigmoid(r) + (1 - y) * _log_sigmoid(-r) for r, y in pairs) / len(rewards)


def scale_by_returns(rewards: Sequence[Sequence[float]], epsilon: float = 1e-6) -> list[list[float]]:
    """The rewards of a batch divided by the largest return-to-go in it: PRIME's batch normalization (2502.01456)."""
    most = max((abs(value) for row in rewards for value in accumulate(reversed(row))), default=0.0)
    return [[reward / (most + epsilon) for reward in row] for row in rewards]


def _log_sigmoid(x: float) -> float:
    return min(x, 0.0) - math.log1p(math.exp(-abs(x)))


# Advantages of the responses to one prompt.


def leave_one_out(rewards: Sequence[float | None]) -> list[float | None]:
    """Each reward minus the mean of the others (RLOO). None stays None and is excluded from the means; 0 if there are no
    others."""
    known = [r for r in rewards if r is not None]
    total, n = math.fsum(known), len(known)
    return [None if r is None else r - (total - r) / (n - 1) if n > 1 else 0.0 for r in rewards]


def group_normalised(rewards: Sequence[Sequence[float | None]], epsilon: float = 1e-6) -> list[list[float | None]]:
    """(r - mean) / (std + epsilon) over all step rewards of the responses to one prompt: GRPO with process supervision (Shao et
    al. 2024, 2402.03300, section 4.1.3).

    `std` has the divisor n - 1, as in TRL and verl. None stays None and has no part in mean and std. Rewards that are all
    equal, or a single one, become 0: nothing distinguishes them.
    """
    known = [r for row in rewards for r in row if r is not None]
    if len(known) < 2:
        return [[None if r is None else 0.0 for r in row] for row in rewards]
    middle = math.fsum(known) / len(known)
    scale = math.sqrt(math.fsum((r - middle) ** 2 for r in known) / (len(known) - 1)) + epsilon
    return [[None if r is None else (r - middle) / scale for r in row] for row in rewards]


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
    n = _group_size(rewards)
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
    n = _group_size(rewards)
    credit = [min_form(row, temperature) for row in rewards]
    totals = [math.fsum(row) for row in credit]
    sizes = tokens if tokens is not None else [[1] * len(row) for row in rewards]
    lengths = [sum(row) for row in sizes]
    out = []
    for i in range(n):
        others = [(totals[j], lengths[j]) for j in range(n) if j != i]
        if tokens is None:
            rate = math.fsum(total / length for total, length in others) / (n - 1)
        else:
            rate = math.fsum(total for total, _ in others) / sum(length for _, length in others)
        out.append(returns([r - rate * size for r, size in zip(credit[i], sizes[i], strict=True)]))
    return out


def _group_size(rewards: Sequence[Sequence[float]]) -> int:
    if len(rewards) < 2 or not all(rewards):
        lengths = [len(row) for row in rewards]
        raise UsageError(f"the responses have the lengths {lengths}; give two or more responses, none of them empty")
    return len(rewards)


def whiten(advantages: Sequence[Sequence[float]], epsilon: float = 1e-8) -> list[list[float]]:
    """Normalize the advantages of a batch to mean 0 and standard deviation 1 over all its tokens."""
    flat = [value for row in advantages for value in row]
    middle = math.fsum(flat) / len(flat)
    scale = math.sqrt(math.fsum((value - middle) ** 2 for value in flat) / len(flat)) + epsilon
    return [[(value - middle) / scale for value in row] for row in advantages]
