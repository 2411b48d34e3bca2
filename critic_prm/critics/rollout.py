"""Trajectories with a gold answer to judgements by Monte Carlo: a policy completes prefixes, and the share that comes out right
counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from critic_prm.data.critic import Judging
from critic_prm.data.judgement import Judgement, Status, Verdict
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader
from critic_prm.generate.policy.policy import LLMPolicy, Policy, open_policy
from critic_prm.generate.policy.rollout import Estimate, Found, Prefixes, card_of, every_step, halving
from critic_prm.generate.policy.stopping import MOST, Enough, rollouts_for
from critic_prm.generate.policy.targets import EPSILON, TARGETS, Target, dual_sided, progress_labels
from critic_prm.providers.provider import Usage

Search = Literal["first", "every", "halving"]
SEARCHES: tuple[Search, ...] = get_args(Search)
NEEDS_ALL = ("progress", "dual")

NO_GOLD = "there is no gold_answer that completions could be compared with"
OBSERVED = "steps with observations cannot be rolled out without their environment; see `generate agent` for runs of agents"


@dataclass(frozen=True, slots=True)
class How:
    """How steps are labelled by rollouts.

    `search`: "first" rolls out after one step after the other up to the first error, "every" after all of them, "halving"
    finds the first error by binary search. `target`: what becomes a step's P(correct): "soft", the share of right completions;
    "hard", 1 or 0; "progress", 1 or 0 by GenPRM's ratio; "dual", MedS3's label, clipped to [0, 1]. A verdict is "correct"
    where the prefix is good (see `Enough`) or, by "progress", where the ratio is at least `epsilon`. `table` gives the
    rollouts by pass rate, instead of `enough.most`.
    """

    enough: Enough = field(default_factory=Enough)
    search: Search = "first"
    target: Target = "soft"
    epsilon: float = EPSILON
    recheck: bool = False
    table: tuple[tuple[float, int], ...] = ()

    def check(self) -> None:
        """Raises UsageError for what does not exist or does not go together."""
        for name, value, names in (("search", self.search, SEARCHES), ("target", self.target, TARGETS)):
            if value not in names:
                raise UsageError(f"--{name} is {value!r}; it is {', '.join(names[:-1])} or {names[-1]}")
        if self.target in NEEDS_ALL and self.search != "every":
            raise UsageError(f"the target {self.target!r} compares every step with the one before it; it needs --search every")
        if self.target in ("soft", *NEEDS_ALL) and self.enough.rule == "curtailed":
            raise UsageError(
                f"rollouts that are curtailed tell good from bad and nothing more, the target {self.target!r} needs shares;"
                " use --target hard, or --stop all"
            )
        if self.recheck and self.search != "halving":
            raise UsageError("--recheck looks again at the error that --search halving found; it needs that search")


@dataclass(frozen=True)
class RolloutCritic:
    """Judges by what a policy still makes of a prefix; the trajectory needs its `gold_answer`.

    It says whether the right answer can still be reached, which is not the same as whether a step is right: a wrong step can be
    mended later on, and a right answer be reached by wrong steps.
    """

    policy: Policy
    how: How = How()
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

    async def found(self, prefixes: Prefixes, trajectory: Trajectory) -> Found:
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
                    return Found({}, None, root, ("no completion of the problem itself reaches the gold answer",))
        if how.search == "halving":
            return await halving(prefixes, trajectory, enough, recheck=how.recheck)
        return await every_step(prefixes, trajectory, enough, whole=how.search == "every", root=root)


def connect(name: str, judging: Judging, how: How | None = None, prompt: str = "solve") -> RolloutCritic:
    """Open the Monte Carlo critic whose policy is "provider/model". Raises UsageError and ConfigError."""
    how = how or How()
    how.check()
    return RolloutCritic(open_policy(name, judging, prompt), how)


def judgement_of(found: Found, how: How, steps: int, sample: int = 0) -> Judgement:
    """What estimates say, as a judgement: a verdict for each step that was rolled out from, with its votes k of n."""
    told = {step: estimate for step, estimate in sorted(found.at.items()) if estimate.n}
    rolled = found.rollouts
    keys = tuple(dict.fromkeys(rollout.completion.key for rollout in rolled if rollout.completion.key))
    usage = sum((rollout.completion.usage for rollout in rolled), Usage())
    notes = list(found.notes)
    if found.lost:
        notes.append(
            "rollouts that came to no end: " + ", ".join(f"{came} {n}" for came, n in Counter(found.lost).most_common())
        )
    if found.root is not None:
        notes.append(f"the problem itself: {found.root.words}")
    if found.lost and (not told or (len(told) < len(found.at) and found.first_error is None)):
        status: Status = Counter(found.lost).most_common(1)[0][0]
        return Judgement(status, sample=sample, keys=keys, notes=tuple(notes), usage=usage)
    if not told:  # the policy never gets there: that was found out, and says nothing of the steps
        return Judgement("ok", sample=sample, keys=keys, notes=tuple(notes), usage=usage)
    verdicts = _verdicts(told, found.root, how)
    if how.search != "every" and found.first_error is not None and found.first_error >= 0:
        verdicts = [verdict for verdict in verdicts if verdict.step <= found.first_error]
    first = found.first_error
    if how.target == "progress":
        first = next((verdict.step for verdict in verdicts if verdict.value == "incorrect"), -1)
    return Judgement("ok", tuple(verdicts), first, sample, keys, tuple(notes), ("plain",), usage=usage)


def _verdicts(told: Mapping[int, Estimate], root: Estimate | None, how: How) -> list[Verdict]:
    shares = [estimate.share for estimate in told.values()]
    goods = [estimate.good for estimate in told.values()]
    if how.target == "progress":
        assert root is not None
        goods = [bool(label) for label in progress_labels(root.share, shares, how.epsilon)]
    if how.target in ("progress", "hard"):
        chances = [float(good) for good in goods]
    elif how.target == "dual":
        chances = [min(max(label, 0.0), 1.0) for label in dual_sided(shares)]
    else:
        chances = shares
    return [
        Verdict(step, "correct" if good else "incorrect", estimate.words, chance, votes=(estimate.k, estimate.n))
        for (step, estimate), good, chance in zip(told.items(), goods, chances, strict=True)
    ]


def _pass_rate(trajectory: Trajectory) -> float | None:
    """What `generate sample` found: [k, n] of its samples came out right."""
    rate = trajectory.meta.get("pass_rate")
    if isinstance(rate, Sequence) and len(rate) == 2 and all(isinstance(x, int) for x in rate) and rate[1] > 0:
        return float(rate[0] / rate[1])
    return None
