"""The types of `open_critic`'s keyword options, which are the fields of JudgeOptions and of its Sampling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from critic_prm.engine.options import RayOptions
from critic_prm.providers.models import Prices
from critic_prm.providers.provider import Sampling


class SamplingKeywords(TypedDict, total=False):
    """The fields of Sampling."""

    temperature: float | None
    top_p: float | None
    max_tokens: int | None
    seed: int | None
    stop: tuple[str, ...]
    effort: str | None
    logprobs: int | None
    extra_body: Mapping[str, Any]
    service_tier: str | None


class JudgeKeywords(SamplingKeywords, total=False):
    """The fields of JudgeOptions and, in place of `sampling`, those of Sampling."""

    style: str
    sampling: Sampling
    follow_ups: int
    force: bool
    think_rounds: int
    schema: bool
    with_reference: bool
    image_root: Path | None
    db: str | Path | None
    base_url: str | None
    header: tuple[str, ...]
    api_key_env: str | None
    option: tuple[str, ...]
    offline: bool
    max_connections: int
    rpm: float | None
    tpm: float | None
    max_retries: int
    regenerate: int
    timeout: float
    grace: float
    max_reply_bytes: int
    prices: Prices | None
    budget_usd: float | None
    max_requests: int | None
    salt: str
    durable: bool
    profile: str | None
    trust: tuple[str | Path, ...]
    cluster: RayOptions | None
