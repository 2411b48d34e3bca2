"""Estimate the requests, tokens and cost of a labelling run from the rendered prompts, without sending any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, tee

import orjson

from critic_prm.critics.llm import LLMCritic
from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.budget import reply_limit
from critic_prm.label.run import Samples
from critic_prm.providers.images import ImageError
from critic_prm.providers.models import Prices, unlisted
from critic_prm.providers.provider import Wire, prompt_parts, request_key, requested_tier

BYTES_PER_TOKEN = (4.6, 2.9)
"""Bytes of a prompt's JSON per token, highest and lowest: English prose has more, digits, code and Chinese have fewer."""

OUTPUT_PER_STEP = (40, 350)
"""Output tokens per step, thinking included, assumed until replies of this model are known."""

ENOUGH = 20
"""Minimum number of cached replies of a model for using their token counts instead of the defaults."""

PART = 256


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would do. Pairs are (low, high). Without the judge's prices, `usd` and `most_usd` are None: unknown.

    `to_send` is a band where later requests depend on the replies to earlier ones. `most_usd` is the price if every reply were
    as long as its limit allows, None too where there is none. `known` is how many earlier replies the token figures rest on;
    `tier` is the service tier that is asked for. `left_out` rows have an image that cannot be sent: nothing is asked of them.
    """

    judge: str
    rows: int
    requests: int
    cached: int
    to_send: tuple[int, int]
    """Requests that are not cached. A range where later requests depend on the replies to earlier ones."""
    input: tuple[int, int]
    output: tuple[int, int]
    usd: tuple[float, float] | None
    """Cost; None if the prices of the judge are unknown."""
    most_usd: float | None
    """Cost if every reply reached its token limit; None if there is no limit or no price."""
    known: int
    """The number of earlier replies that the token counts are based on."""
    tier: str = ""
    left_out: int = 0

    def lines(self) -> list[str]:
        """The estimate as text."""
        send = f"{self.to_send[1]:,}" if self.to_send[0] == self.to_send[1] else f"{self.to_send[0]:,} to {self.to_send[1]:,}"
        basis = f"by {self.known:,} earlier replies" if self.known >= ENOUGH else "a guess: no earlier replies to go by"
        lines = [
            f"{self.judge}: {self.rows:,} rows, {self.requests:,} requests, {self.cached:,} cached already, {send} to send",
            f"tokens: {self.input[0]:,} to {self.input[1]:,} in, {self.output[0]:,} to {self.output[1]:,} out ({basis})",
        ]
        if self.left_out:
            lines.append(f"left out: {self.left_out:,} of the rows, because an image of theirs cannot be sent")
        provider, _, model = self.judge.partition("/")
        note = unlisted(provider, model)
        if note and (self.usd is None or "did you mean" in note):
            lines.append(f"model: {note}")
        if self.usd is None:
            of = f" of service tier {self.tier!r}" if self.tier else ""
            return [*lines, f"cost: price{of} unknown; give it with --prices IN,OUT (USD per million tokens)"]
        most = "" if self.most_usd is None else f", at most ${self.most_usd:,.4f} if every reply were as long as it may be"
        return [*lines, f"cost: ${self.usd[0]:,.4f} to ${self.usd[1]:,.4f}{most}"]


@dataclass
class _Sum:
    """Totals of the requests to send."""

    token_limits: Sequence[str]
    count: int = 0
    size: int = 0
    steps: int = 0
    limits: int = 0
    unlimited: bool = False

    def add(self, wire: Wire, steps: int) -> None:
        self.count += 1
        self.size += len(orjson.dumps(prompt_parts(wire)))
        self.steps += steps
        limit = reply_limit(wire, self.token_limits)
        self.limits += limit or 0
        self.unlimited |= limit is None


def estimate(critic: LLMCritic, trajectories: Iterable[Trajectory], samples: Samples, *, batch: bool = False) -> Estimate:
    """Render every prompt and look up each request in the cache; `batch` applies batch prices. Memory does not grow with the
    input. Raises InputError."""
    provider, cache, prices = critic.client.provider, critic.client.cache, critic.client.money.prices
    per_step = critic.style.per == "step"
    sure, most = _Sum(provider.token_limits), _Sum(provider.token_limits)
    rows = requests = cached = 0
    bad: list[str] = []
    source = iter(trajectories)
    while part := list(islice(source, PART)):
        rows += len(part)
        asked = list(_asked(critic, part, samples, bad))
        requests += len(asked)
        there = cache.known([key for _, _, _, key in asked])
        for trajectory, wire, certain, key in asked:
            if key in there:
                cached += 1
                continue
            steps = 1 if per_step else len(trajectory.steps)
            most.add(wire, steps)
            if certain:
                sure.add(wire, steps)
    known, tokens_per_byte, replied = cache.experience(provider.name, provider.model)
    ratios = (0.97 * tokens_per_byte, 1.05 * tokens_per_byte)
    if known < ENOUGH:
        ratios = (1 / BYTES_PER_TOKEN[0], 1 / BYTES_PER_TOKEN[1])
    tokens_in = int(sure.size * ratios[0]), int(most.size * ratios[1])
    if known >= ENOUGH:
        tokens_out = int(0.85 * sure.count * replied), int(1.2 * most.count * replied)
    else:
        tokens_out = sure.steps * OUTPUT_PER_STEP[0], most.steps * OUTPUT_PER_STEP[1]
    if not most.unlimited:
        tokens_out = min(tokens_out[0], most.limits), min(tokens_out[1], most.limits)
    tier = requested_tier(critic.sampling.extra)
    factor = None if prices is None else prices.factor(tier, batch=batch)
    usd = worst = None
    if prices is not None and factor is not None:
        usd = factor * _price(prices, tokens_in[0], tokens_out[0]), factor * _price(prices, tokens_in[1], tokens_out[1])
        worst = None if most.unlimited else factor * _price(prices, tokens_in[1], most.limits)
    return Estimate(
        judge=f"{provider.name}/{provider.model}",
        rows=rows,
        requests=requests,
        cached=cached,
        to_send=(sure.count, most.count),
        input=tokens_in,
        output=tokens_out,
        usd=usd,
        most_usd=worst,
        known=known,
        tier=tier,
        left_out=len(bad),
    )


def _asked(
    critic: LLMCritic, part: list[Trajectory], samples: Samples, bad: list[str]
) -> Iterator[tuple[Trajectory, Wire, bool, str]]:
    """(trajectory, wire, whether it is sure to be asked, key) of every request that the part may need; the ids of trajectories
    with an image that cannot be sent are added to `bad`."""
    salt = critic.client.options.salt
    for trajectory in part:
        try:
            requests = critic.requests(trajectory)
        except ImageError:  # nothing will be sent for this row
            bad.append(trajectory.id)
            continue
        for index, request in enumerate(requests):
            wire = critic.client.provider.wire(request)
            for sample in range(samples.most):
                certain = sample < samples.least and (index == 0 or not critic.style.stops)
                yield trajectory, wire, certain, request_key(wire, sample, salt)


def _price(prices: Prices, tokens_in: int, tokens_out: int) -> float:
    """The price of many requests together. Long-prompt prices do not apply: no single request is that long."""
    return (tokens_in * prices.input + tokens_out * prices.output) / 1e6


def estimates(critic: Critic, trajectories: Iterable[Trajectory], samples: Samples, *, batch: bool = False) -> Iterator[str]:
    """A few lines for each LLM judge in a critic: requests, tokens and cost."""
    judges = judges_in(critic)
    if not judges:
        yield "nothing would be sent: this critic works on this machine and costs nothing"
    for judge, rows in zip(judges, tee(trajectories, len(judges)), strict=True):
        yield from estimate(judge, rows, samples, batch=batch).lines()


def judges_in(critic: Critic) -> list[LLMCritic]:
    """The LLM critics in a critic, in order: itself or those it asks."""
    if isinstance(critic, LLMCritic):
        return [critic]
    return [judge for _, inner in critic.judges for judge in judges_in(inner)]
