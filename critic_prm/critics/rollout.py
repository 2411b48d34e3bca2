"""Monte Carlo critic: judge a step by how many policy completions of its prefix reach the gold answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client
from critic_prm.engine.options import JudgeOptions
from critic_prm.generate.options import RolloutOptions
from critic_prm.generate.policy.answers import Grader
from critic_prm.generate.policy.policy import LLMPolicy, Policy, open_policy
from critic_prm.generate.policy.rollout import Prefixes, PrefixEstimates, card_of, every_step, halving, judgement_of
from critic_prm.generate.policy.stopping import MOST, rollouts_for

NO_GOLD = "there is no gold_answer that completions could be compared with"
OBSERVED = "steps with observations cannot be rolled out without their environment; see `generate agent` for runs of agents"


@dataclass(frozen=True)
class RolloutCritic(Critic):
    """Judges by the success rate of a policy from each prefix; the trajectory needs a `gold_answer`.

    This measures whether the right answer is still reachable, not whether a step is correct: a wrong step can be corrected
    later, and wrong steps can lead to the right answer.
    """

    policy: Policy
    how: RolloutOptions = field(default_factory=RolloutOptions)
    grader: Grader = field(default_factory=Grader)

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
        # Sample indices are spaced far enough apart that no two samples share a rollout, whatever their number.
        prefixes = Prefixes(self.policy, self.grader, trajectory.problem, trajectory.gold_answer, sample * 2 * MOST)
        estimates = await self.estimates(prefixes, trajectory)
        return judgement_of(estimates, self.how, len(trajectory.steps), sample)

    async def estimates(self, prefixes: Prefixes, trajectory: Trajectory) -> PrefixEstimates:
        """The Monte Carlo estimates for one trajectory."""
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
                if root.k == 0:  # GenPRM skips these: a policy that never succeeds says nothing about the steps
                    return PrefixEstimates({}, None, root, ("no completion of the problem itself reaches the gold answer",))
        if how.search == "halving":
            return await halving(prefixes, trajectory, enough, recheck=how.recheck)
        return await every_step(prefixes, trajectory, enough, whole=how.search == "every", root=root)


def connect(name: str, options: JudgeOptions, how: RolloutOptions | None = None, prompt: str = "solve") -> RolloutCritic:
    """Open the Monte Carlo critic with the policy "provider/model". Raises UsageError and ConfigError."""
    return RolloutCritic(open_policy(name, options, prompt), how or RolloutOptions())


def _pass_rate(trajectory: Trajectory) -> float | None:
    """The pass rate recorded by `generate sample`: [k, n], of n samples k were correct."""
    rate = trajectory.meta.get("pass_rate")
    if isinstance(rate, Sequence) and len(rate) == 2 and all(isinstance(x, int) for x in rate) and rate[1] > 0:
        return float(rate[0] / rate[1])
    return None
