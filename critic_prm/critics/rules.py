"""Trajectories to judgements by arithmetic alone: the first step that states a false equation is the first error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from critic_prm.arithmetic.judge import judge_one
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory

FINGERPRINT = "rules-1"
"""Changes whenever the same trajectory could be judged differently than before."""


@dataclass(frozen=True, slots=True)
class RuleCritic:
    """Judges what is written as arithmetic and nothing else; needs no model, no network and no randomness.

    A step is `incorrect` when an equation or inequality in it is false, `correct` when all that could be evaluated hold, and
    `neutral` when there was nothing to evaluate: it was looked at, but it counts in no vote. So `first_error` is -1 when no
    false equation was found, and the note says how much of the trajectory that rests on. Steps after the first error are
    left out. `p_correct` is None throughout: a rule knows no probability.
    """

    batch: int = 64
    repeats: bool = False

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "rules", "fingerprint": FINGERPRINT}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return await asyncio.to_thread(lambda: [judge_one(trajectory, sample) for trajectory in trajectories])

    async def close(self) -> None:
        return None


def connect() -> RuleCritic:
    return RuleCritic()
