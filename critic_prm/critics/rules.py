"""Rule-based critic: the first step that states a false equation is the first error."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from critic_prm.arithmetic.claims import judge_one
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory

FINGERPRINT = "rules-1"
"""Changed whenever the same trajectory could be judged differently than before."""


@dataclass(frozen=True, slots=True)
class RuleCritic(Critic):
    """Judges written arithmetic only; needs no model, network or randomness.

    A step is `incorrect` if one of its equations or inequalities is false, `correct` if all that can be evaluated hold, and
    `neutral` if there is nothing to evaluate; a neutral step was examined but has no vote. `first_error` is therefore -1 if no
    false equation was found, and a note says how much of the trajectory was evaluated. Steps after the first error are omitted.
    `p_correct` is always None: a rule has no probability.
    """

    batch: int = 64
    stochastic: bool = False

    @property
    def card(self) -> Mapping[str, Any]:
        return {"provider": "rules", "fingerprint": FINGERPRINT}

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return await asyncio.to_thread(lambda: [judge_one(trajectory, sample) for trajectory in trajectories])


CRITIC = RuleCritic
