"""Trajectories with a gold answer to judgements by Monte Carlo: a policy completes prefixes, and the share that comes out right
counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client
from critic_prm.engine.options import JudgeOptions
from critic_prm.generate.policy.answers import Grader
from critic_prm.generate.policy.policy import LLMPolicy, Policy, open_policy
from critic_prm.generate.policy.rollout import (
    Prefixes,
    PrefixEstimates,
    RolloutOptions,
    card_of,
    every_step,
    halving,
    judgement_of,
)
from critic_prm.generate.policy.stopping import MOST, rollouts_for

NO_GOLD = "there is no gold_answer that completions could be compared with"
OBSERVED = "steps with observations cannot be rolled out without their environment; see `generate agent` for runs of agents"


@dataclass(frozen=True)
class RolloutCritic:
    """Judges by what a policy still makes of a prefix; the trajectory needs its `gold_answer`.

    It says whether the right answer can still be reached, which is not the same as whether a step is right: a wrong step can be
    mended later on, and a right answer be reached by wrong steps.
    """

    policy: Policy
    how: RolloutOptions = field(default_factory=RolloutOptions)
    grader: Grader = field(default_factory=Grader)
    batch: int = 1
    repeats: bool = True

    @property
    def client(self) -> Client | None:
        return self.policy.client if isinstance(self.policy, LLMPolicy) else None

    @property
    def card(self) -> Mapping[str, Any]:
        how: dict[str, Any] = {"search": self.how.search, "target": self.how.target}
        if self.how.target == "progress":
            how["epsilon"] = self.how.epsilon
        if self.how.table:
            how["rollouts_by_pass_rate"] = [list(row) for row in self.how.table]
        return card_of(self.policy, self.how.enough, **how)

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return [await self._judge(trajectory, sample) for trajectory in trajectories]

    async def close(self) -> None:
        await self.grader.close()
        await self.policy.close()

    async def _judge(self, trajectory: Trajectory, sample: int) -> Judgement:
        if not trajectory.gold_answer:
            return Judgement("unparseable", sample=sample, notes=(NO_GOLD,))
        if any(step.observation is not None for step in trajectory.steps):
            return Judgement("unparseable", sample=sample, notes=(OBSERVED,))
        # Samples lie so far apart that none of their rollouts are the same, however many each takes.
        prefixes = Prefixes(self.policy, self.grader, trajectory.problem, trajectory.gold_answer, sample * 2 * MOST)
        found = await self.found(prefixes, trajectory)
        return judgement_of(found, self.how, len(trajectory.steps), sample)

    async def found(self, prefixes: Prefixes, trajectory: Trajectory) -> PrefixEstimates:
        """The estimates for one trajectory."""
        how, root = self.how, None
        enough = how.enough
        if how.table or how.target == "progress":
            rate = _pass_rate(trajectory)
            if rate is None or how.target == "progress":
                least = replace(enough, most=min(n for _, n in how.table)) if how.table else enough
                root = await prefixes.estimate((), replace(least, rule="all"))
                rate = root.share if root.n else 0.0
            if how.table:
                enough = replace(enough, most=rollouts_for(how.table, rate))
            if how.target == "progress" and root is not None:
                root = await prefixes.estimate((), replace(enough, rule="all"))
                if root.k == 0:  # GenPRM skips these: nothing can be told from a policy that never gets there
                    return PrefixEstimates({}, None, root, ("no completion of the problem itself reaches the gold answer",))
        if how.search == "halving":
            return await halving(prefixes, trajectory, enough, recheck=how.recheck)
        return await every_step(prefixes, trajectory, enough, whole=how.search == "every", root=root)


def connect(name: str, judging: JudgeOptions, how: RolloutOptions | None = None, prompt: str = "solve") -> RolloutCritic:
    """Open the Monte Carlo critic whose policy is "provider/model". Raises UsageError and ConfigError."""
    how = how or RolloutOptions()
    how.check()
    return RolloutCritic(open_policy(name, judging, prompt), how)


def _pass_rate(trajectory: Trajectory) -> float | None:
    """What `generate sample` found: [k, n] of its samples came out right."""
    rate = trajectory.meta.get("pass_rate")
    if isinstance(rate, Sequence) and len(rate) == 2 and all(isinstance(x, int) for x in rate) and rate[1] > 0:
        return float(rate[0] / rate[1])
    return None
