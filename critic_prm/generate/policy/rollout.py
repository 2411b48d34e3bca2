"""Label steps by Monte Carlo rollouts: sample completions of each prefix, count the correct ones, and turn shares to labels.

Completions are made once per prefix and reused. A completion is correct if it reaches the gold answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from critic_prm.data.judgement import Judgement, Status, Verdict
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.concurrency import gather_all
from critic_prm.generate.options import EPSILON, RolloutOptions
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Came, Completion, Policy
from critic_prm.generate.policy.stopping import MOST, Enough, interval
from critic_prm.providers.provider import Usage


def progress_ratios(root: float, shares: Sequence[float]) -> list[float | None]:
    """GenPRM's relative progress (arXiv 2504.00891): P_t = MC(after step t) / MC(before step t).

    `root` is the MC value of the problem itself. The ratio is None where the value before the step is 0.
    """
    before = [root, *shares]
    return [after / earlier if earlier > 0 else None for earlier, after in zip(before, shares, strict=False)]


def progress_labels(root: float, shares: Sequence[float], epsilon: float = EPSILON) -> list[int]:
    """Label steps 1 where the progress ratio is at least `epsilon`, else 0; always 0 from the first MC value of 0 on."""
    labels: list[int] = []
    dead = False
    for share, ratio in zip(shares, progress_ratios(root, shares), strict=True):
        dead = dead or share <= 0
        # tolerance: both shares are rounded, and a ratio of exactly `epsilon` must pass
        labels.append(int(not dead and ratio is not None and ratio >= epsilon - 1e-12))
    return labels


def dual_sided(values: Sequence[float], factor: float = 1.0, *, recursive: bool = False) -> list[float]:
    """MedS3's dual-sided label (arXiv 2501.12051): l_i = v_i - factor * (v_{i-1} - v_i), a step's value plus its gain.

    `recursive` uses l_{i-1} in place of v_{i-1}, as the released code does; that can oscillate. The first step keeps its value.
    Labels may leave [0, 1]: clip them, or binarize at 0.
    """
    labels: list[float] = []
    for i, value in enumerate(values):
        before = value if i == 0 else labels[i - 1] if recursive else values[i - 1]
        labels.append(value - factor * (before - value))
    return labels


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion of a prefix and whether it reaches the gold answer."""

    completion: Completion
    right: bool


@dataclass(frozen=True, slots=True)
class Estimate:
    """Monte Carlo estimate of a prefix: `k` of `n` completions reach the gold answer."""

    k: int
    n: int
    enough: Enough = field(default_factory=Enough)
    rollouts: tuple[Rollout, ...] = ()
    lost: tuple[Came, ...] = ()
    """Status of completions that did not finish (truncated, refused, failed). They count in neither `k` nor `n`."""
    own: bool = False
    """True for the outcome of the solution itself (k of 1), which needs no rollout."""

    @property
    def share(self) -> float:
        """k / n, Math-Shepherd's soft label. An unbiased estimate only under the rule "all". n must not be 0."""
        return self.k / self.n

    @property
    def good(self) -> bool:
        """Math-Shepherd's hard label: whether the prefix can still reach the gold answer. n must not be 0."""
        return self.enough.good(self.k, self.n)

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the success probability at `enough.level`; see `stopping.interval`."""
        return interval(self.k, self.n, self.enough)

    @property
    def words(self) -> str:
        """The estimate in words, with its confidence interval."""
        if self.own:
            return "the solution's own answer is " + ("the gold answer" if self.k else "not the gold answer")
        low, high = self.interval
        sure = f"{self.enough.level:.0%}: {low:.2f} to {high:.2f}"
        return f"{self.k} of {self.n} completions from here reach the gold answer ({sure})"


@dataclass
class Prefixes:
    """Rollouts of all prefixes of one problem. Asking again for a prefix reuses its rollouts and adds only the missing ones.

    `first` is the sample number of the first rollout of each prefix; a different value gives different rollouts.
    """

    policy: Policy
    grader: Grader
    problem: str
    gold: str
    first: int = 0
    made: int = 0
    _kept: dict[tuple[str, ...], list[Completion]] = field(default_factory=dict)

    async def estimate(self, steps: Sequence[str], enough: Enough) -> Estimate:
        """Roll out from `steps` until the stopping rule is satisfied. Raises errors that must stop the whole run."""
        kept = self._kept.setdefault(tuple(steps), [])
        seen: list[Rollout] = []
        lost: list[Came] = []
        used = 0
        while True:
            k = sum(rollout.right for rollout in seen)
            wave = min(enough.more(k, len(seen)), enough.most - used)
            if wave <= 0:
                return Estimate(k, len(seen), enough, tuple(seen), tuple(lost))
            if missing := used + wave - len(kept):
                kept += await self._ask(steps, len(kept), missing)
            for completion in kept[used : used + wave]:
                if completion.came == "ok":
                    right = await self.grader.same(final_answer(completion.text), self.gold)
                    seen.append(Rollout(completion, right))
                else:
                    lost.append(completion.came)
            used += wave

    async def outcome(self, trajectory: Trajectory) -> Estimate | None:
        """Return the outcome of the solution itself, or None where it states no final answer and rollouts are needed."""
        stated = trajectory.final_answer or final_answer(trajectory.texts[-1])
        if stated is None:
            return None
        return Estimate(int(await self.grader.same(stated, self.gold)), 1, own=True)

    async def _ask(self, steps: Sequence[str], start: int, count: int) -> list[Completion]:
        if count <= 0:
            return []
        self.made += count
        samples = range(self.first + start, self.first + start + count)
        return await gather_all(self.policy.complete(self.problem, steps, s) for s in samples)


@dataclass(frozen=True, slots=True)
class PrefixEstimates:
    """Rollout results of one solution: an estimate per evaluated step (0-based) and the first error."""

    at: Mapping[int, Estimate]
    first_error: int | None
    """Index of the first error, -1 for none, None if it could not be determined."""
    root: Estimate | None = None
    """Estimate of the problem itself (the empty prefix), if it was evaluated."""
    notes: tuple[str, ...] = ()

    @property
    def rollouts(self) -> list[Rollout]:
        """All finished rollouts."""
        return [rollout for estimate in self._all for rollout in estimate.rollouts]

    @property
    def lost(self) -> list[Came]:
        """Status of all rollouts that did not finish."""
        return [came for estimate in self._all for came in estimate.lost]

    @property
    def _all(self) -> list[Estimate]:
        return [*([self.root] if self.root else []), *self.at.values()]


async def every_step(
    prefixes: Prefixes, trajectory: Trajectory, enough: Enough, *, whole: bool = True, root: Estimate | None = None
) -> PrefixEstimates:
    """Math-Shepherd (arXiv 2312.08935): roll out after every step.

    The last step gets the outcome of the solution itself if it states an answer. With `whole`, all steps are rolled out
    concurrently; otherwise one after the other up to the first error.
    """
    texts = trajectory.texts
    own = await prefixes.outcome(trajectory)
    rolled = range(len(texts) - 1 if own else len(texts))
    at: dict[int, Estimate] = {}
    if whole:
        estimates = await gather_all(prefixes.estimate(texts[: step + 1], enough) for step in rolled)
        at.update(zip(rolled, estimates, strict=True))
    else:
        for step in rolled:
            at[step] = await prefixes.estimate(texts[: step + 1], enough)
            if at[step].n == 0 or not at[step].good:
                return PrefixEstimates(at, _first_bad(at, len(texts)), root)
    if own:
        at[len(texts) - 1] = own
    return PrefixEstimates(at, _first_bad(at, len(texts)), root)


async def halving(prefixes: Prefixes, trajectory: Trajectory, enough: Enough, *, recheck: bool = False) -> PrefixEstimates:
    """Find the first error by OmegaPRM's binary search (arXiv 2406.06592).

    The first error is the first step after which no rollout reaches the gold answer (generally, after which the prefix is not
    good; see `Enough`). At most floor(log2(steps)) + 1 prefixes are rolled out. The search assumes monotonicity: once a prefix
    cannot be completed, no longer prefix can. Hence a solution whose own answer is correct has no error. Steps that were not
    evaluated get no label. With `recheck`, the prefixes on both sides of the error get twice the rollouts; if the error would
    move, the first error is None.
    """
    texts = trajectory.texts
    own = await prefixes.outcome(trajectory)
    at: dict[int, Estimate] = {}
    if own is not None:
        at[len(texts) - 1] = own
        if own.good:
            return PrefixEstimates(at, -1)
    low, high = 0, len(texts) - 1 if own else len(texts)  # the range of the first error; `len(texts)` means none
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
    """Describe the policy and the rollout settings, for label files."""
    rule = {"rollouts": enough.most, "rule": enough.rule, "theta": enough.theta}
    return {"provider": "rollout", "policy": dict(policy.card), **rule, **how}


def judgement_of(found: PrefixEstimates, options: RolloutOptions, steps: int, sample: int = 0) -> Judgement:
    """Convert estimates to a judgement: one verdict per step that was rolled out from, with votes (k, n)."""
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
    if not told:  # the policy never solves the problem: a valid result that gives no verdict on the steps
        return Judgement("ok", sample=sample, keys=keys, notes=tuple(notes), usage=usage)
    verdicts = _verdicts(told, found.root, options)
    if options.search != "every" and found.first_error is not None and found.first_error >= 0:
        verdicts = [verdict for verdict in verdicts if verdict.step <= found.first_error]
    first = found.first_error
    if options.target == "progress":
        first = next((verdict.step for verdict in verdicts if verdict.value == "incorrect"), -1)
    return Judgement("ok", tuple(verdicts), first, sample, keys, tuple(notes), ("plain",), usage=usage)


def _verdicts(told: Mapping[int, Estimate], root: Estimate | None, options: RolloutOptions) -> list[Verdict]:
    shares = [estimate.share for estimate in told.values()]
    goods = [estimate.good for estimate in told.values()]
    if options.target == "progress":
        assert root is not None
        goods = [bool(label) for label in progress_labels(root.share, shares, options.epsilon)]
    if options.target in ("progress", "hard"):
        chances = [float(good) for good in goods]
    elif options.target == "dual":
        chances = [min(max(label, 0.0), 1.0) for label in dual_sided(shares)]
    else:
        chances = shares
    return [
        Verdict(step, "correct" if good else "incorrect", estimate.words, chance, votes=(estimate.k, estimate.n))
        for (step, estimate), good, chance in zip(told.items(), goods, chances, strict=True)
    ]
