"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from critic_prm.cli.fields import Fields
from critic_prm.engine.options import JudgeOptions
from critic_prm.option import Option

PolicyOptions = Annotated[
    JudgeOptions,
    Fields(without=("style", "logprobs", "follow_ups", "force", "think_rounds", "schema", "with_reference", "image_root")),
]
"""The options of a policy: those of a judge that do not concern verdicts."""


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How a command reads trajectories."""

    format: Annotated[str, Option(("--from",))] = "auto"
    """Input format."""
    skip_bad: bool = False
    """Report and skip invalid rows; exit with code 3."""
    limit: Annotated[int | None, Option(min=1)] = None
    """Process at most N trajectories."""


ALL_ROWS = InputOptions()

CacheOptions = Annotated[JudgeOptions, Fields(only=("db",))]
BatchOptions = Annotated[JudgeOptions, Fields(only=("db", "base_url", "trust"))]
TrustOptions = Annotated[JudgeOptions, Fields(only=("trust",))]
