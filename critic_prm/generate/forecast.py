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
    """Forecast of a run with a policy."""

    policy: LLMPolicy
    judging: JudgeOptions
    items: int = 0
    low: int = 0
    """Minimum number of requests."""
    high: int = 0
    """Maximum number of requests."""
    stored: int = 0
    """How many of the requests that may be needed are in the cache."""
    size: int = 0
    """Bytes of the prompts of all requests that may be needed."""
    possible: int = 0
    """Number of the requests that may be needed."""

    def add(
        self, low: int, high: int, requests: Sequence[Request], each: int, cached: Sequence[tuple[Request, int]] | None = None
    ) -> None:
        """Add an item that needs `low` to `high` requests: `each` samples of `requests`, of which `cached` may be stored."""
        self.items += 1
        self.low += low
        self.high += high
        pairs = [(request, sample) for request in requests for sample in range(each)] if cached is None else cached
        self.stored += self.policy.stored(self.judging.cache, pairs)
        wire = self.policy.client.provider.wire
        self.size += each * sum(len(orjson.dumps(wire(request)["messages"])) for request in requests)
        self.possible += each * len(requests)

    @property
    def requests(self) -> tuple[int, int]:
        """Bounds on the requests that are not in the cache."""
        return max(self.low - self.stored, 0), max(self.high - self.stored, 0)

    @property
    def tokens_in(self) -> tuple[int, int]:
        """Bounds on their input tokens."""
        low, high = (
            int(self.size * (count / self.possible if self.possible else 0.0) * tokens)
            for count, tokens in zip(self.requests, TOKENS_PER_BYTE, strict=True)
        )
        return low, high

    @property
    def tokens_out(self) -> tuple[int, int]:
        """Bounds on their output tokens."""
        longest = self.judging.sampling.max_tokens or UNKNOWN_OUTPUT[1]
        return self.requests[0] * min(UNKNOWN_OUTPUT[0], longest), self.requests[1] * longest

    @property
    def usd(self) -> tuple[float, float] | None:
        """Bounds on their cost in USD; None if the price is unknown."""
        provider, tier = self.policy.client.provider, requested_tier(self.judging.sampling.extra)
        prices: Prices | None = self.judging.prices or abilities(provider.name, provider.model).prices
        if prices is None:
            return None
        low, high = (prices.cost(Usage(i, o, tier=tier)) for i, o in zip(self.tokens_in, self.tokens_out, strict=True))
        return None if low is None or high is None else (low, high)

    def lines(self, noun: str) -> list[str]:
        """Return the forecast as lines for the terminal; `noun` names the items."""
        exact = self.low == self.high
        count = f"{self.high:,}" if exact else f"{self.low:,} to {self.high:,}"
        lines = [
            f"{self.items:,} {noun}: {count} requests, {self.stored:,} of them in the cache already",
            f"to be asked, at most: {self.requests[1]:,} requests,"
            f" {self.tokens_in[0]:,} to {self.tokens_in[1]:,} tokens in, {self.tokens_out[0]:,} to {self.tokens_out[1]:,} out",
        ]
        cost = (
            "the price of this model is unknown (--prices)" if self.usd is None else f"${self.usd[0]:.2f} to ${self.usd[1]:.2f}"
        )
        return [*lines, f"cost: {cost}"]


def forecast_samples(policy: LLMPolicy, judging: JudgeOptions, problems: Iterable[Problem], k: int) -> Forecast:
    """Forecast `generate sample`: exactly k requests per problem."""
    forecast = Forecast(policy, judging)
    for problem in problems:
        forecast.add(k, k, [policy.request(problem.text)], k)
    return forecast


def forecast_rollouts(
    policy: LLMPolicy, judging: JudgeOptions, trajectories: Iterable[Trajectory], options: RolloutOptions
) -> Forecast:
    """Forecast `generate rollout`. The number depends on the results, so there is a minimum and a maximum."""
    forecast = Forecast(policy, judging)
    sizes = [n for _, n in options.table]
    most = max(sizes or [options.enough.most])
    least = min([most if options.enough.rule == "all" else 1, *sizes])
    for trajectory in trajectories:
        texts = trajectory.texts
        stated = trajectory.final_answer or final_answer(texts[-1])
        prefixes = [texts[: i + 1] for i in range(len(texts) - (stated is not None))]
        root: list[list[str]] = [[]] if options.target == "progress" or options.table else []
        low, high = {
            "every": (len(prefixes), len(prefixes)),
            "first": (min(len(prefixes), 1), len(prefixes)),
            "halving": (0 if stated else 1, ceil(log2(len(texts) + (stated is None)))),
        }[options.search]
        requests = [policy.request(trajectory.problem, steps) for steps in [*root, *prefixes]]
        most_requests = (high + len(root)) * most * (1 + options.recheck)
        forecast.add((low + len(root)) * least, most_requests, requests, most)
    return forecast


def forecast_trees(policy: LLMPolicy, judging: JudgeOptions, problems: Iterable[Problem], growth: TreeOptions) -> Forecast:
    """Forecast `generate tree`: from the rollouts of the problem itself to the budget plus the last search."""
    forecast = Forecast(policy, judging)
    most = max(growth.budget, growth.rollouts) + growth.rollouts * (floor(log2(LONG)) + 1)
    for problem in problems:
        request = policy.request(problem.text)
        forecast.add(growth.rollouts, most, [request], most, [(request, sample) for sample in range(growth.rollouts)])
    return forecast


def forecast_writing(policy: LLMPolicy, judging: JudgeOptions, plans: Iterable[Plan], options: PerturbOptions) -> Forecast:
    """Forecast `generate perturb`: one request per step a model writes, and one per solution it continues."""
    forecast = Forecast(policy, judging)
    for plan in plans:
        if not plan.kind:
            continue
        written = [] if plan.kind in KINDS else [(writing_request(plan, policy), plan.number)]
        requests = [request for request, _ in written]
        if options.later == "regenerate":
            requests.append(policy.request(plan.solution.problem, plan.solution.texts[: plan.at + 1]))
        forecast.add(len(written), len(requests), requests, 1, written)
    return forecast
