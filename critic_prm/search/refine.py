"""Refine a solution: regenerate it from its weakest step on while the critic's score improves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean
from typing import Any

from critic_prm.data import Critic, Judgement, Step, Trajectory, Usage, blind, combine, trajectory_to_json, without_labels
from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.engine.concurrency import gather_all
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Completion
from critic_prm.metrics.bootstrap import mean_difference
from critic_prm.search.ranking import answer_of
from critic_prm.search.search import points
from critic_prm.search.settings import RefineSettings
from critic_prm.search.stepper import SAMPLES_PER_SEED, Stepper
from critic_prm.search.tree import judge_all


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the replaced step, the scores of the rewrites (None: not judged), and whether the best one was accepted."""

    step: int
    critique: str
    scores: tuple[float | None, ...]
    accepted: bool
    failed: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refined:
    """A refined solution. `why` says why refinement ended: "no error found", "rounds spent", "not judged" or "policy
    failed"."""

    before: Trajectory
    after: Trajectory
    score_before: float | None
    score_after: float | None
    rounds: tuple[Round, ...]
    why: str
    usage: Usage = Usage()
    judge_usage: Usage = Usage()
    right_before: bool | None = None
    right_after: bool | None = None

    @property
    def changed(self) -> bool:
        return any(one.accepted for one in self.rounds)


@dataclass(frozen=True, slots=True)
class _Judged:
    trajectory: Trajectory
    judgement: Judgement
    p: tuple[float | None, ...]
    score: float | None

    @property
    def rank(self) -> float:
        return -1.0 if self.score is None else self.score


DEFAULTS = RefineSettings()


async def refine(
    trajectory: Trajectory, policy: Stepper, critic: Critic, grader: Grader, settings: RefineSettings = DEFAULTS
) -> Refined:
    """Find the weakest step, keep the steps before it, regenerate the rest, and accept it if the critic's score rises.

    The weakest step is the critic's first error or, if there is none, the step with the lowest P(correct). The critic never
    sees the gold answer. For a given seed the result is as deterministic as the policy and the critic; with a cache, nothing is
    paid for twice. Raises UsageError and whatever stops the policy or the critic.
    """
    start = without_labels(trajectory)  # labels of the original steps would not match the new ones
    (first,) = await _judge([start], critic, settings.by)
    current, rounds, usage, judge_usage = first, [], Usage(), first.judgement.usage
    why = ""
    for number in range(settings.rounds):
        if why := _reason_to_stop(current, settings):
            break
        at = weakest(current.judgement, current.p)
        critique = next((v.critique for v in current.judgement.verdicts if v.step == at), "")
        samples = range(number * settings.tries, (number + 1) * settings.tries)
        rewrites = await _rewrite(current.trajectory, at, critique, policy, settings, samples)
        usage = sum((rewrite.usage for rewrite in rewrites), usage)
        judged = await _judge(
            [_with_ending(current.trajectory, at, rewrite.steps) for rewrite in rewrites if rewrite.steps], critic, settings.by
        )
        judge_usage = sum((one.judgement.usage for one in judged), judge_usage)
        best = max(judged, key=lambda one: one.rank, default=None)
        accepted = best is not None and best.score is not None and best.score > (current.score or 0.0) + settings.margin
        failed = tuple(rewrite.came for rewrite in rewrites if not rewrite.steps)
        keys = tuple(rewrite.key for rewrite in rewrites)
        rounds.append(Round(at, critique, tuple(one.score for one in judged), accepted, failed, keys))
        if best is not None and accepted:
            current = best
        if not judged:
            why = "policy failed"
            break
    return Refined(
        before=start,
        after=current.trajectory,
        score_before=first.score,
        score_after=current.score,
        rounds=tuple(rounds),
        why=why or _reason_to_stop(current, settings) or "rounds spent",
        usage=usage,
        judge_usage=judge_usage,
        right_before=await _right(start, grader),
        right_after=await _right(current.trajectory, grader),
    )


def _reason_to_stop(current: _Judged, settings: RefineSettings) -> str:
    if current.score is None:
        return "not judged"
    return "no error found" if current.judgement.first_error == -1 and current.score >= settings.floor else ""


def weakest(judgement: Judgement, p: Sequence[float | None]) -> int:
    """The critic's first error, or the step with the lowest P(correct). At least one value of `p` must be known."""
    if judgement.first_error is not None and judgement.first_error >= 0:
        return judgement.first_error
    return min((value, step) for step, value in enumerate(p) if value is not None)[1]


async def _judge(trajectories: Sequence[Trajectory], critic: Critic, by: str) -> list[_Judged]:
    if not trajectories:
        return []
    aggregation = open_aggregation(by)
    judgements = await judge_all(critic, [blind(trajectory) for trajectory in trajectories])
    scores = [combine([judgement], len(t.steps)).p_correct for t, judgement in zip(trajectories, judgements, strict=True)]
    rows = zip(trajectories, judgements, scores, strict=True)
    return [_Judged(trajectory, judgement, p, aggregate(p, aggregation)) for trajectory, judgement, p in rows]


async def _rewrite(
    trajectory: Trajectory, at: int, critique: str, policy: Stepper, settings: RefineSettings, samples: Sequence[int]
) -> list[Completion]:
    problem, kept, rejected = trajectory.problem, trajectory.texts[:at], trajectory.texts[at]
    numbers = [settings.seed * SAMPLES_PER_SEED + sample for sample in samples]
    if settings.feedback:
        return await gather_all(policy.rewrite(problem, kept, rejected, critique, n) for n in numbers)
    return await gather_all(policy.complete(problem, kept, n) for n in numbers)


def _with_ending(trajectory: Trajectory, at: int, steps: Sequence[str]) -> Trajectory:
    whole = (*trajectory.steps[:at], *map(Step, steps))
    answer = final_answer("\n\n".join(step.text for step in whole))
    return replace(trajectory, steps=whole, final_answer=answer, label=None, step_labels=None)


async def _right(trajectory: Trajectory, grader: Grader) -> bool | None:
    gold = trajectory.gold_answer
    return None if gold is None else await grader.same(answer_of(trajectory), gold)


def refined_row(refined: Refined) -> dict[str, Any]:
    """The refined solution as a native row, with the record of its refinement under "refine"."""
    return trajectory_to_json(refined.after) | {
        "refine": {
            "why": refined.why,
            "changed": refined.changed,
            "score": [refined.score_before, refined.score_after],
            "right": [refined.right_before, refined.right_after],
            "steps_before": refined.before.texts if refined.changed else None,
            "rounds": [asdict(one) for one in refined.rounds],
        }
    }


@dataclass
class RefineStats:
    """Accumulates refined solutions. `lines` is the table printed at the end of a run; `report` goes into run.json."""

    name: str = "refine"
    why: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    scores: list[tuple[float, float]] = field(default_factory=list)
    right: list[tuple[bool, bool]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    usage: Usage = Usage()
    judge_usage: Usage = Usage()

    def add(self, refined: Refined) -> None:
        self.why[refined.why] += 1
        self.counts["solutions"] += 1
        self.counts["changed"] += refined.changed
        self.counts["rounds"] += len(refined.rounds)
        self.counts["endings"] += sum(len(one.scores) + len(one.failed) for one in refined.rounds)
        if refined.score_before is not None and refined.score_after is not None:
            self.scores.append((refined.score_before, refined.score_after))
        if refined.right_before is not None and refined.right_after is not None:
            self.right.append((refined.right_before, refined.right_after))
            self.problems.append(refined.before.problem)
        self.usage += refined.usage
        self.judge_usage += refined.judge_usage

    def report(self) -> dict[str, Any]:
        return {
            **self.counts,
            "ended": dict(self.why),
            "score": _means(self.scores),
            "right": {
                "known": len(self.right),
                **_means(self.right),
                "wrong_to_right": self.right.count((False, True)),
                "right_to_wrong": self.right.count((True, False)),
                "difference": self.difference(),
            },
            "tokens_written": {"policy": self.usage.output, "critic": self.judge_usage.output},
            "tokens_read": {"policy": self.usage.input, "critic": self.judge_usage.input},
        }

    def difference(self) -> dict[str, float | None] | None:
        """Accuracy after refinement minus accuracy before, with its 95% interval over problems."""
        if not self.right:
            return None
        gap = mean_difference(self.problems, [after for _, after in self.right], [before for before, _ in self.right])
        return {"value": gap.difference, "low": gap.interval.low, "high": gap.interval.high}

    def lines(self) -> list[str]:
        counts, report = self.counts, self.report()
        lines = [
            f"refine: {counts['changed']:,} of {counts['solutions']:,} solutions changed, in {counts['rounds']:,} rounds with"
            f" {counts['endings']:,} new endings; " + ", ".join(f"{count:,} {why}" for why, count in self.why.most_common()),
            f"tokens written: {self.usage.output:,} by the policy, {self.judge_usage.output:,} by the critic",
        ]
        if self.scores:
            lines.append(f"{'':14}{'before':>8}{'after':>8}")
            lines.append(f"{'mean score':14}{report['score']['before']:8.3f}{report['score']['after']:8.3f}")
        if self.right:
            right = report["right"]
            lines.append(
                f"{'right answers':14}{right['before']:8.1%}{right['after']:8.1%}  {points(**right['difference'])}:"
                f" {right['wrong_to_right']:,} corrected, {right['right_to_wrong']:,} broken, of {right['known']:,} with gold"
            )
        return lines


def _means(pairs: Sequence[tuple[float, float]]) -> dict[str, float | None]:
    """The mean before and after; None without pairs."""
    before, after = zip(*pairs, strict=True) if pairs else ((), ())
    return {"before": fmean(before) if pairs else None, "after": fmean(after) if pairs else None}
