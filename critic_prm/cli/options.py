"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

from critic_prm.cli.fields import Fields
from critic_prm.engine.options import JudgeOptions

PolicyOptions = Annotated[
    JudgeOptions,
    Fields(without=("style", "logprobs", "follow_ups", "force", "think_rounds", "schema", "with_reference", "image_root")),
]
"""The options of a policy: those of a judge that do not concern verdicts."""

CacheOptions = Annotated[JudgeOptions, Fields(only=("db",))]
BatchOptions = Annotated[JudgeOptions, Fields(only=("db", "base_url", "trust"))]
TrustOptions = Annotated[JudgeOptions, Fields(only=("trust",))]
