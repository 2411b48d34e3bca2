"""Assign credit for the final reward of agent runs to their steps, by returns or TD(lambda)."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError
from critic_prm.generate.options import CreditOptions
from critic_prm.generate.policy.answers import plainly_same

REWARDS = ("reward", "score", "success", "outcome", "final_answer_correct", "is_correct", "resolved")
"""Fields that may hold the reward of a run, looked up first in the row and then in its meta."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Credit of the steps of one run; the lists have one entry per step."""

    start: float
    """Promise before the first step."""
    promise: list[float]
    """Expected outcome of the run after the step."""
    progress: list[float]
    """What the step added to the promise."""
    runs: list[int]
    """Number of runs with the same history."""


def td_lambda(
    start: float, values: Sequence[float], rewards: Sequence[float], lam: float, gamma: float
) -> tuple[list[float], list[float]]:
    """Return (advantages, promises), one entry per step.

    delta_t = r_t + gamma M_t - M_(t-1), without M after the last step; A_t = sum over k of (gamma lam)^k delta_(t+k); Q_t = A_t
    + M_(t-1). `start` is M before the first step.
    """
    before = [start, *values]
    advantages = [0.0] * len(values)
    later = 0.0
    for t in reversed(range(len(values))):
        bootstrap = gamma * values[t] if t + 1 < len(values) else 0.0
        later = rewards[t] + bootstrap - before[t] + gamma * lam * later
        advantages[t] = later
    return advantages, [advantage + value for advantage, value in zip(advantages, before, strict=False)]


def discounted(outcome: float, steps: int, gamma: float, discount: Literal["to-go", "elapsed"]) -> list[float]:
    """Discount a run's outcome in [0, 1] for each step: (1 + w (2 outcome - 1)) / 2, with weight w as `discount` says."""
    weights = [gamma**t for t in range(steps)]
    if discount == "to-go":
        weights.reverse()
    return [(1 + weight * (2 * outcome - 1)) / 2 for weight in weights]


def reward_of(run: Trajectory, name: str | None = None) -> float | None:
    """Return the reward of a run in [0, 1], or None if it has none.

    It is the field `name`, or one of REWARDS, or else whether the final answer equals the gold answer. Raises InputError for a
    reward that is not a number from 0 to 1.
    """
    for key in (name,) if name else REWARDS:
        for place in (run.extra, run.meta):
            value = place.get(key)
            if value is None:
                continue
            if isinstance(value, bool | int | float) and 0 <= value <= 1:
                return float(value)
            fix = "it must be true, false, or a number from 0 to 1"
            raise InputError(f"run {run.id}", f'the reward under "{key}" is {value!r:.40}', fix)
    if name is None and run.final_answer is not None and run.gold_answer is not None:
        same = plainly_same(run.final_answer, run.gold_answer)
        return None if same is None else float(same)
    return None


@dataclass
class AgentStats:
    """Counts of runs and their outcomes, for the run summary."""

    name: str = "agent"
    counts: Counter[str] = field(default_factory=Counter)

    def report(self) -> Mapping[str, int]:
        """Return the counts as JSON data."""
        return dict(self.counts)

    def lines(self) -> list[str]:
        """Return the summary lines for the terminal."""
        c = self.counts
        lines = [
            f"{c['runs']:,} runs of {c['tasks']:,} tasks, {c['successes']:,} of them successes;"
            f" {c['without a reward']:,} left out without a reward"
        ]
        if c["steps"]:
            lines.append(f"{c['shared']:,} of {c['steps']:,} steps have a history that several runs share")
        return lines


def credited(runs: Iterable[Trajectory], credit: CreditOptions, account: AgentStats | None = None) -> list[Trajectory]:
    """Return the runs with step labels, in input order. Runs without a reward are dropped and counted.

    meta["agent"] holds the fields of `Shares`, the reward and the method. Raises InputError for invalid rewards or values.
    """
    account = account or AgentStats()
    known: list[tuple[Trajectory, float]] = []
    for run in runs:
        reward = reward_of(run, credit.reward)
        if reward is None:
            account.counts["without a reward"] += 1
        else:
            known.append((run, reward))
    table = _Table(known, credit)
    account.counts.update({"runs": len(known), "tasks": len(table.tasks), "successes": sum(r >= 0.5 for _, r in known)})
    made = []
    for run, reward in known:
        shares = table.shares(run, reward)
        account.counts["steps"] += len(run.steps)
        account.counts["shared"] += sum(n > 1 for n in shares.runs)
        made.append(_labelled(run, reward, shares, credit))
    return made


class _Table:
    """Outcome statistics per history over all runs."""

    def __init__(self, runs: Sequence[tuple[Trajectory, float]], credit: CreditOptions) -> None:
        self.credit = credit
        self.tasks: dict[str, list[float]] = defaultdict(list)
        self.sums: dict[bytes, float] = defaultdict(float)
        self.counts: Counter[bytes] = Counter()
        for run, reward in runs:
            self.tasks[run.problem].append(reward)
            outcomes = [reward] * len(run.steps)
            if credit.method == "returns":
                outcomes = discounted(reward, len(run.steps), credit.gamma, credit.discount)
            for key, outcome in zip(histories(run), outcomes, strict=True):
                self.sums[key] += outcome
                self.counts[key] += 1

    def shares(self, run: Trajectory, reward: float) -> Shares:
        rewards = self.tasks[run.problem]
        start = sum(rewards) / len(rewards)
        keys = histories(run)
        counts = [self.counts[key] for key in keys]
        if self.credit.method == "returns":
            promise = [self.sums[key] / self.counts[key] for key in keys]
            return Shares(start, promise, _differences(start, promise), counts)
        values = self._values(run, keys, start)
        earned = [0.0] * (len(keys) - 1) + [reward]
        advantages, promise = td_lambda(start, values, earned, self.credit.lam, self.credit.gamma)
        progress = advantages if self.credit.progress == "gae" else _differences(start, promise)
        return Shares(start, promise, progress, counts)

    def _values(self, run: Trajectory, keys: Sequence[bytes], start: float) -> list[float]:
        if self.credit.values == "labels":
            given = run.extra.get("p_correct")
            whole = isinstance(given, list) and len(given) == len(keys)
            if not whole or not all(isinstance(p, int | float) and 0 <= p <= 1 for p in given or ()):
                fix = "label the runs with a critic first, or use --values table"
                raise InputError(f"run {run.id}", '"p_correct" has no number for every step', fix)
            return [float(p) for p in given or ()]
        prior = self.credit.prior
        return [(self.sums[key] + prior * start) / (self.counts[key] + prior) for key in keys]


def histories(run: Trajectory) -> list[bytes]:
    """Return a key per step for its history: the task, all earlier actions and observations, and the action of the step.

    The observation that follows the action is excluded, so runs that diverge only by a random outcome share that step.
    """
    digest = hashlib.sha256(run.problem.encode("utf-8", "surrogatepass"))
    keys = []
    for step in run.steps:
        digest.update(b"\x00" + step.text.strip().encode("utf-8", "surrogatepass"))
        keys.append(digest.digest())
        digest.update(b"\x01" + (step.observation or "").strip().encode("utf-8", "surrogatepass"))
    return keys


def _differences(start: float, promise: Sequence[float]) -> list[float]:
    return [after - before for before, after in zip([start, *promise], promise, strict=False)]


def _labelled(run: Trajectory, reward: float, shares: Shares, credit: CreditOptions) -> Trajectory:
    labels: list[StepLabel] = [min(max(value, 0.0), 1.0) for value in shares.promise]
    if credit.labels == "progress":
        labels = [float(value >= -credit.tolerance - 1e-12) for value in shares.progress]
    how: dict[str, Any] = {"method": credit.method, "gamma": credit.gamma}
    how |= {"lambda": credit.lam, "values": credit.values} if credit.method == "td" else {"discount": credit.discount}
    agent = {"reward": reward, **asdict(shares), "labels": credit.labels, **how}
    return replace(run, label=None, step_labels=tuple(labels), meta={**run.meta, "agent": agent})
