"""Prefixes of a solution -> completions by a policy, each made once -> how many of them reach the gold answer, and where none
does any more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from critic_prm.data.judgement import Judgement, Status, Verdict
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Came, Completion, Policy
from critic_prm.generate.policy.stopping import MOST, Enough, interval
from critic_prm.generate.policy.targets import EPSILON, TARGETS, Target, dual_sided, progress_labels
from critic_prm.providers.provider import Usage


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of a prefix, and whether it reaches the gold answer."""

    completion: Completion
    right: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """k of n completions of a prefix reach the gold answer. `lost` are those that came to no end (cut, refused, failed): they
    say nothing and are in neither. `own` marks a solution's own outcome, k of 1, for which nothing was rolled out."""

    k: int
    n: int
    enough: Enough = field(default_factory=Enough)
    rollouts: tuple[Rollout, ...] = ()
    lost: tuple[Came, ...] = ()
    own: bool = False

    @property
    def share(self) -> float:
        """k / n: Math-Shepherd's soft label. Only with the rule "all" an unbiased estimate. n must not be 0."""
        return self.k / self.n

    @property
    def good(self) -> bool:
        """Whether the prefix can still be finished: Math-Shepherd's hard label. n must not be 0."""
        return self.enough.good(self.k, self.n)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the chance of a right completion lies, at `enough.level`; see `stopping.interval`."""
        return interval(self.k, self.n, self.enough)

    @property
    def words(self) -> str:
        if self.own:
            return "the solution's own answer is " + ("the gold answer" if self.k else "not the gold answer")
        low, high = self.interval
        sure = f"{self.enough.level:.0%}: {low:.2f} to {high:.2f}"
        return f"{self.k} of {self.n} completions from here reach the gold answer ({sure})"


@dataclass
class Prefixes:
    """The rollouts of all prefixes of one problem, kept while it is worked on: more of one prefix go on where the first ended.

    `first` is the sample of the first rollout of each prefix: another one makes other rollouts.
    """

    policy: Policy
    grader: Grader
    problem: str
    gold: str
    first: int = 0
    made: int = 0
    _kept: dict[tuple[str, ...], list[Completion]] = field(default_factory=dict)
    _right: dict[str, bool] = field(default_factory=dict)

    async def estimate(self, steps: Sequence[str], enough: Enough) -> Estimate:
        """Roll out from after `steps` until there are enough. Raises what must stop the whole run."""
        kept = self._kept.setdefault(tuple(steps), [])
        seen: list[Rollout] = []
        lost: list[Came] = []
        used = 0
        while True:
            right = sum(rollout.right for rollout in seen)
            wave = min(enough.more(right, len(seen)), enough.most - used)
            if wave <= 0:
                return Estimate(right, len(seen), enough, tuple(seen), tuple(lost))
            if missing := used + wave - len(kept):
                kept += await self._ask(steps, len(kept), missing)
            for completion in kept[used : used + wave]:
                if completion.came == "ok":
                    seen.append(Rollout(completion, await self._is_right(completion)))
                else:
                    lost.append(completion.came)
            used += wave

    async def outcome(self, trajectory: Trajectory) -> Estimate | None:
        """The solution's own outcome; None where it states no final answer, and it takes rollouts to tell."""
        stated = trajectory.final_answer or final_answer(trajectory.texts[-1])
        if stated is None:
            return None
        return Estimate(int(await self.grader.same(stated, self.gold)), 1, own=True)

    async def _ask(self, steps: Sequence[str], start: int, count: int) -> list[Completion]:
        if count <= 0:
            return []
        self.made += count
        samples = range(self.first + start, self.first + start + count)
        # When one fails, the others are still brought in: they are paid for.
        found = await asyncio.gather(*(self.policy.complete(self.problem, steps, s) for s in samples), return_exceptions=True)
        for outcome in found:
            if isinstance(outcome, BaseException):
                raise outcome
        return [outcome for outcome in found if not isinstance(outcome, BaseException)]

    async def _is_right(self, completion: Completion) -> bool:
        return await self.grader.same(final_answer(completion.text), self.gold)


@dataclass(frozen=True, slots=True)
class PrefixEstimates:
    """What rollouts said of a solution: an estimate for each step that was asked about (0-based), and the first error: -1 for
    none, None where that cannot be told. `root` is the estimate of the problem itself, where it was asked for."""

    at: Mapping[int, Estimate]
    first_error: int | None
    root: Estimate | None = None
    notes: tuple[str, ...] = ()

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for estimate in self._all for rollout in estimate.rollouts]

    @property
    def lost(self) -> list[Came]:
        return [came for estimate in self._all for came in estimate.lost]

    @property
    def _all(self) -> list[Estimate]:
        return [*([self.root] if self.root else []), *self.at.values()]


async def every_step(
    prefixes: Prefixes, trajectory: Trajectory, enough: Enough, *, whole: bool = True, root: Estimate | None = None
) -> PrefixEstimates:
    """Math-Shepherd (arXiv 2312.08935): rollouts from after every step; at the last one the solution's own outcome where it
    states an answer. With `whole` all steps at once, else one after the other up to the first error."""
    texts = trajectory.texts
    own = await prefixes.outcome(trajectory)
    rolled = range(len(texts) - 1 if own else len(texts))
    at: dict[int, Estimate] = {}
    if whole:
        found = await asyncio.gather(*(prefixes.estimate(texts[: step + 1], enough) for step in rolled), return_exceptions=True)
        for step, outcome in enumerate(found):
            if isinstance(outcome, BaseException):
                raise outcome
            at[step] = outcome
    else:
        for step in rolled:
            at[step] = await prefixes.estimate(texts[: step + 1], enough)
            if at[step].n == 0 or not at[step].good:
                return PrefixEstimates(at, _first_bad(at, len(texts)), root)
    if own:
        at[len(texts) - 1] = own
    return PrefixEstimates(at, _first_bad(at, len(texts)), root)


async def halving(prefixes: Prefixes, trajectory: Trajectory, enough: Enough, *, recheck: bool = False) -> PrefixEstimates:
    """OmegaPRM's binary search (arXiv 2406.06592) for the first step after which no rollout reaches the gold answer.

    At most floor(log2(steps)) + 1 prefixes are rolled out. It rests on this: once a prefix cannot be finished, no longer one
    can. So a solution whose own answer is right has no error, and steps between those asked about are not labelled. With
    `recheck` both sides of the error found get twice the rollouts; where it would move, the first error is None.
    """
    texts = trajectory.texts
    own = await prefixes.outcome(trajectory)
    at: dict[int, Estimate] = {}
    if own is not None:
        at[len(texts) - 1] = own
        if own.good:
            return PrefixEstimates(at, -1)
    low, high = 0, len(texts) - 1 if own else len(texts)  # the first error is here; `len(texts)` stands for none
    while low < high:
        middle = (low + high) // 2
        at[middle] = await prefixes.estimate(texts[: middle + 1], enough)
        if at[middle].n == 0:
            return PrefixEstimates(at, None, notes=(f"no rollout after step {middle} came to an end",))
        if at[middle].good:
            low = middle + 1
        else:
            high = middle
    if low == len(texts):
        return PrefixEstimates(at, -1)
    if recheck:
        twice = replace(enough, most=min(2 * enough.most, MOST))
        for step in (low - 1, low):
            if step in at and not at[step].own:
                at[step] = await prefixes.estimate(texts[: step + 1], twice)
                if at[step].good != (step < low):
                    return PrefixEstimates(at, None, notes=(f"the first error moved from step {low} with twice the rollouts",))
    return PrefixEstimates(at, low)


def _first_bad(at: Mapping[int, Estimate], steps: int) -> int | None:
    for step in range(steps):
        if step not in at or at[step].n == 0:
            return None
        if not at[step].good:
            return step
    return -1


def card_of(policy: Policy, enough: Enough, **how: Any) -> dict[str, Any]:
    """Who rolled out and how, for label files."""
    rule = {"rollouts": enough.most, "rule": enough.rule, "theta": enough.theta}
    return {"provider": "rollout", "policy": dict(policy.card), **rule, **how}


Search = Literal["first", "every", "halving"]


SEARCHES: tuple[Search, ...] = get_args(Search)


NEEDS_ALL = ("progress", "dual")


@dataclass(frozen=True, slots=True)
class RolloutOptions:
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


def judgement_of(found: PrefixEstimates, how: RolloutOptions, steps: int, sample: int = 0) -> Judgement:
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


def _verdicts(told: Mapping[int, Estimate], root: Estimate | None, how: RolloutOptions) -> list[Verdict]:
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
