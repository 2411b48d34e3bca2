"""Estimate the requests, cached replies and cost of a generation run before starting it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2

import orjson

from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.options import JudgeOptions
from critic_prm.generate.options import PerturbOptions, RolloutOptions, TreeOptions
from critic_prm.generate.perturb import Plan, writing_request
from critic_prm.generate.planting import KINDS
from critic_prm.generate.policy.answers import final_answer
from critic_prm.generate.policy.policy import LLMPolicy
from critic_prm.generate.policy.problems import Problem
from critic_prm.providers.models import Prices, abilities
from critic_prm.providers.provider import Request, Usage, requested_tier

TOKENS_PER_BYTE = (0.2, 0.35)
"""Of a prompt: English prose, and digits or Chinese."""
LONG = 16
"""Rollouts are assumed to have at most this many steps; few have more."""
UNKNOWN_OUTPUT = (100, 1500)
"""Assumed tokens of a completion without a token limit."""


@dataclass
class Forecast:
    """Forecast of a run."""

    items: int = 0
    low: int = 0
    """Minimum number of requests."""
    high: int = 0
    """Maximum number of requests."""
    stored: int = 0
    """How many of the requests that may be needed are in the cache."""
    tokens_in: tuple[int, int] = (0, 0)
    """Bounds on the input tokens of the requests that are not in the cache."""
    tokens_out: tuple[int, int] = (0, 0)
    """Bounds on their output tokens."""
    usd: tuple[float, float] | None = None
    """Bounds on their cost in USD; None if the price is unknown."""

    def lines(self, noun: str) -> list[str]:
        """Return the forecast as lines for the terminal; `noun` names the items."""
        exact = self.low == self.high
        count = f"{self.high:,}" if exact else f"{self.low:,} to {self.high:,}"
        lines = [
            f"{self.items:,} {noun}: {count} requests, {self.stored:,} of them in the cache already",
            f"to be asked, at most: {max(self.high - self.stored, 0):,} requests,"
            f" {self.tokens_in[0]:,} to {self.tokens_in[1]:,} tokens in, {self.tokens_out[0]:,} to {self.tokens_out[1]:,} out",
        ]
        cost = (
            "the price of this model is unknown (--prices)" if self.usd is None else f"${self.usd[0]:.2f} to ${self.usd[1]:.2f}"
        )
        return [*lines, f"cost: {cost}"]


def forecast_samples(policy: LLMPolicy, judging: JudgeOptions, problems: Iterable[Problem], k: int) -> Forecast:
    """Forecast `generate sample`: exactly k requests per problem."""
    found = Forecast()
    for problem in problems:
        found.items += 1
        found.low += k
        found.high += k
        _count(found, policy, judging, [policy.request(problem.text)], k)
    return _priced(found, policy, judging)


def forecast_rollouts(
    policy: LLMPolicy, judging: JudgeOptions, trajectories: Iterable[Trajectory], how: RolloutOptions
) -> Forecast:
    """Forecast `generate rollout`. The number depends on the results, so there is a minimum and a maximum."""
    found = Forecast()
    most = max([n for _, n in how.table] or [how.enough.most])
    least = most if how.enough.rule == "all" else 1
    if how.table:
        least = min(least, *(n for _, n in how.table))
    for trajectory in trajectories:
        found.items += 1
        texts = trajectory.texts
        stated = trajectory.final_answer or final_answer(texts[-1])
        prefixes = [texts[: i + 1] for i in range(len(texts) - (stated is not None))]
        root: list[list[str]] = [[]] if how.target == "progress" or how.table else []
        needs = {
            "every": (len(prefixes), len(prefixes)),
            "first": (min(len(prefixes), 1), len(prefixes)),
            "halving": (0 if stated else 1, ceil(log2(len(texts) + (stated is None)))),
        }[how.search]
        found.low += (needs[0] + len(root)) * least
        found.high += (needs[1] + len(root)) * most * (1 + how.recheck)
        _count(found, policy, judging, [policy.request(trajectory.problem, steps) for steps in [*root, *prefixes]], most)
    return _priced(found, policy, judging)


def forecast_trees(policy: LLMPolicy, judging: JudgeOptions, problems: Iterable[Problem], growth: TreeOptions) -> Forecast:
    """Forecast `generate tree`: from the rollouts of the problem itself to the budget plus the last search."""
    found = Forecast()
    most = max(growth.budget, growth.rollouts) + growth.rollouts * (floor(log2(LONG)) + 1)
    for problem in problems:
        found.items += 1
        found.low += growth.rollouts
        found.high += most
        request = policy.request(problem.text)
        found.stored += policy.stored(judging.db, [(request, sample) for sample in range(growth.rollouts)])
        _measure(found, policy, [request], most)
    return _priced(found, policy, judging)


def forecast_writing(policy: LLMPolicy, judging: JudgeOptions, plans: Iterable[Plan], options: PerturbOptions) -> Forecast:
    """Forecast `generate perturb`: one request per step a model writes, and one per solution it continues."""
    found = Forecast()
    for plan in plans:
        if not plan.kind:
            continue
        found.items += 1
        requests = [] if plan.kind in KINDS else [(writing_request(plan, policy), plan.number)]
        again = int(options.later == "regenerate")
        found.low += len(requests)
        found.high += len(requests) + again
        found.stored += policy.stored(judging.db, requests)
        wires = [request for request, _ in requests] + [
            policy.request(plan.solution.problem, plan.solution.texts[: plan.at + 1])
        ] * again
        _measure(found, policy, wires, 1)
    return _priced(found, policy, judging)


def _count(found: Forecast, policy: LLMPolicy, judging: JudgeOptions, requests: Sequence[Request], each: int) -> None:
    found.stored += policy.stored(judging.db, [(request, sample) for request in requests for sample in range(each)])
    _measure(found, policy, requests, each)


def _measure(found: Forecast, policy: LLMPolicy, requests: Sequence[Request], each: int) -> None:
    size = sum(len(orjson.dumps(policy.client.provider.wire(request)["messages"])) for request in requests) * each
    found.tokens_in = (found.tokens_in[0] + size, found.tokens_in[1] + size)  # bytes until `_priced`
    found.tokens_out = (found.tokens_out[0] + len(requests) * each, 0)  # maximum number of completions until `_priced`


def _priced(found: Forecast, policy: LLMPolicy, judging: JudgeOptions) -> Forecast:
    size, possible = found.tokens_in[0], found.tokens_out[0]
    left = max(found.high - found.stored, 0)
    share = left / possible if possible else 0.0
    lowest = max(found.low - found.stored, 0)
    longest = judging.sampling.max_tokens or UNKNOWN_OUTPUT[1]
    bounds = (lowest / possible if possible else 0.0, share)
    found.tokens_in = (int(size * bounds[0] * TOKENS_PER_BYTE[0]), int(size * bounds[1] * TOKENS_PER_BYTE[1]))
    found.tokens_out = (lowest * min(UNKNOWN_OUTPUT[0], longest), left * longest)
    provider = policy.client.provider
    prices: Prices | None = judging.prices or abilities(provider.name, provider.model).prices
    if prices is not None:
        tier = requested_tier(judging.sampling.extra)
        low, high = (prices.cost(Usage(i, o, tier=tier)) for i, o in zip(found.tokens_in, found.tokens_out, strict=True))
        found.usd = None if low is None or high is None else (low, high)
    return found
