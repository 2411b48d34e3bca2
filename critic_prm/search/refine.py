"""Refine a solution: regenerate it from its weakest step while the critic's score improves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from critic_prm.data.aggregate import Aggregation, aggregate, open_aggregation
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, combine
from critic_prm.data.label_rows import without_labels
from critic_prm.data.trajectory import Step, Trajectory, blind, trajectory_to_json
from critic_prm.engine.together import gather_all
from critic_prm.generate.policy.answers import Grader, final_answer
from critic_prm.generate.policy.policy import Completion
from critic_prm.providers.provider import Usage
from critic_prm.search.rewriting import Mender

APART = 1_000_000
"""Size of the range of sample indices of one seed."""


@dataclass(frozen=True, slots=True)
class Refining:
    """Settings of a refinement. It ends when the critic finds no error and the score is at least `floor`."""

    rounds: int = 3
    """Maximum number of rounds."""
    tries: int = 4
    """New continuations per round."""
    margin: float = 0.0
    """The best continuation is accepted if its score is higher by more than this."""
    feedback: bool = True
    """Show the policy the replaced step and its critique."""
    floor: float = 0.0
    """Minimum score of a finished solution."""


@dataclass(frozen=True, slots=True)
class Round:
    """One round: the replaced step, the scores of the continuations (None: not judged), and whether the best one was
    accepted."""

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


@dataclass
class _Costs:
    usage: Usage = field(default_factory=Usage)
    judge: Usage = field(default_factory=Usage)


DEFAULT = Refining()


async def refine(
    trajectory: Trajectory,
    policy: Mender,
    critic: Critic,
    grader: Grader,
    *,
    settings: Refining = DEFAULT,
    by: str = "min",
    seed: int = 0,
) -> Refined:
    """Find the weakest step, keep the steps before it, regenerate the rest, and accept it if the critic's score rises.

    The weakest step is the critic's first error or, if there is none, the step with the lowest P(correct). The critic never
    sees the gold answer. For a given seed the result is as deterministic as the policy and the critic; with a cache, nothing is
    paid for twice. Raises UsageError and whatever stops the policy or the critic.
    """
    how, costs = open_aggregation(by), _Costs()
    start = without_labels(trajectory)  # labels of the original steps would not match the new ones
    (current,) = await _judge([start], critic, how, costs)
    first, rounds, why = current, [], "rounds spent"
    for number in range(settings.rounds):
        if current.score is None:
            why = "not judged"
            break
        if current.judgement.first_error == -1 and current.score >= settings.floor:
            break
        at = weakest(current.judgement, current.p)
        critique = next((v.critique for v in current.judgement.verdicts if v.step == at), "")
        base = seed * APART + number * settings.tries
        endings = await _write(current.trajectory, at, critique, policy, settings, base)
        for ending in endings:
            costs.usage += ending.usage
        written = [_with_ending(current.trajectory, at, ending.steps) for ending in endings if ending.steps]
        failed = tuple(ending.came for ending in endings if not ending.steps)
        keys = tuple(ending.key for ending in endings)
        judged = await _judge(written, critic, how, costs) if written else []
        best = max(judged, key=lambda one: -1.0 if one.score is None else one.score, default=None)
        accepted = best is not None and best.score is not None and best.score > current.score + settings.margin
        rounds.append(Round(at, critique, tuple(one.score for one in judged), accepted, failed, keys))
        if best is not None and accepted:
            current = best
        if not written:
            why = "policy failed"
            break
    if why == "rounds spent" and current.score is not None and current.judgement.first_error == -1:
        why = "no error found" if current.score >= settings.floor else why
    return Refined(
        before=start,
        after=current.trajectory,
        score_before=first.score,
        score_after=current.score,
        rounds=tuple(rounds),
        why=why,
        usage=costs.usage,
        judge_usage=costs.judge,
        right_before=await _right(start, grader),
        right_after=await _right(current.trajectory, grader),
    )


def weakest(judgement: Judgement, p: Sequence[float | None]) -> int:
    """The critic's first error, or the step with the lowest P(correct). At least one value of `p` must be known."""
    if judgement.first_error is not None and judgement.first_error >= 0:
        return judgement.first_error
    known = [(value, step) for step, value in enumerate(p) if value is not None]
    return min(known)[1]


async def _judge(trajectories: Sequence[Trajectory], critic: Critic, how: Aggregation, costs: _Costs) -> list[_Judged]:
    shown = [blind(trajectory) for trajectory in trajectories]
    if critic.batch > 1:
        judgements = await critic.judge(shown)
    else:
        judgements = [row[0] for row in await gather_all(critic.judge([one]) for one in shown)]
    found = []
    for trajectory, judgement in zip(trajectories, judgements, strict=True):
        costs.judge += judgement.usage
        p = combine([judgement], len(trajectory.steps)).p_correct
        found.append(_Judged(trajectory, judgement, p, aggregate(p, how)))
    return found


async def _write(
    trajectory: Trajectory, at: int, critique: str, policy: Mender, settings: Refining, base: int
) -> list[Completion]:
    kept, rejected = trajectory.texts[:at], trajectory.texts[at]
    samples = range(base, base + settings.tries)
    if settings.feedback:
        return await gather_all(policy.rewrite(trajectory.problem, kept, rejected, critique, n) for n in samples)
    return await gather_all(policy.complete(trajectory.problem, kept, n) for n in samples)


def _with_ending(trajectory: Trajectory, at: int, steps: Sequence[str]) -> Trajectory:
    whole = (*trajectory.steps[:at], *map(Step, steps))
    answer = final_answer("\n\n".join(step.text for step in whole))
    return replace(trajectory, steps=whole, final_answer=answer, label=None, step_labels=None)


async def _right(trajectory: Trajectory, grader: Grader) -> bool | None:
    if trajectory.gold_answer is None:
        return None
    answer = trajectory.final_answer or final_answer("\n\n".join(trajectory.texts))
    return await grader.same(answer, trajectory.gold_answer)


def refined_row(found: Refined) -> dict[str, Any]:
    """The refined solution as a native row, with the record of its refinement under "refine"."""
    return trajectory_to_json(found.after) | {
        "refine": {
            "why": found.why,
            "changed": found.changed,
            "score": [found.score_before, found.score_after],
            "right": [found.right_before, found.right_after],
            "steps_before": found.before.texts if found.changed else None,
            "rounds": [
                {
                    "step": one.step,
                    "critique": one.critique,
                    "scores": list(one.scores),
                    "accepted": one.accepted,
                    "failed": list(one.failed),
                    "keys": list(one.keys),
                }
                for one in found.rounds
            ],
        }
    }
