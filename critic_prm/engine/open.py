"""Open a client: the provider with its cache, rate limiter, prices and budget."""

from __future__ import annotations

from critic_prm.engine.budget import Budget
from critic_prm.engine.cache import Cache
from critic_prm.engine.client import Client, ClientSettings
from critic_prm.engine.limiter import START, AdaptiveLimiter, RateLimiter
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.providers.addresses import is_near
from critic_prm.providers.models import abilities, did_you_mean
from critic_prm.providers.provider import Provider, requested_tier

SENT = ("temperature", "top_p", "max_tokens", "seed", "effort", "logprobs")
"""The sampling parameters that are recorded in a label file's card."""


def open_client(provider: Provider, judging: JudgeOptions) -> Client:
    """Open a client for `provider` with the cache, rate limiter, prices and limits in `judging`.

    Raises UsageError for a dollar budget with an unknown price.
    """
    prices = judging.prices or abilities(provider.name, provider.model).prices
    if judging.budget_usd is not None and prices is None:
        raise UsageError(
            f"--budget-usd needs a price, and that of {provider.name}/{provider.model} is unknown"
            f"{did_you_mean(provider.name, provider.model)};"
            " name it with --prices IN,OUT (USD per million tokens), or use --max-requests"
        )
    tier = requested_tier(judging.sampling.extra)
    if judging.budget_usd is not None and prices is not None and prices.factor(tier) is None:
        raise UsageError(
            f"--budget-usd needs a price, and that of {provider.name}/{provider.model} in service tier {tier!r} is unknown;"
            " name what you pay with --prices IN,OUT (USD per million tokens), or use --max-requests"
        )
    provider.max_reply_bytes = judging.max_reply_bytes
    # Local servers and in-process models have no rate limit to discover, so start at full concurrency.
    near = is_near(provider.base_url) or "in-process" in provider.capabilities
    start = judging.max_connections if near else START
    gate: RateLimiter = AdaptiveLimiter(judging.max_connections, rpm=judging.rpm, tpm=judging.tpm, start=start)
    if judging.cluster is not None:
        from critic_prm.engine.ray.provider import spread

        provider, gate = spread(provider, judging, start)
    return Client(
        provider,
        lambda: Cache(judging.db, durable=judging.durable, readonly=judging.offline),
        gate,
        Budget(prices, judging.budget_usd, judging.max_requests, provider.token_limits),
        ClientSettings(
            max_retries=judging.max_retries,
            regenerate=judging.regenerate,
            timeout=judging.timeout,
            grace=judging.grace,
            salt=judging.salt,
            offline=judging.offline,
        ),
    )
