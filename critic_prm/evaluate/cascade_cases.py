"""Collect the results of a cheap critic and a judge on solutions with gold, which is hidden from both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from critic_prm.critics.cascade import By, verdict_on
from critic_prm.data.critic import Critic
from critic_prm.data.hashing import problem_key
from critic_prm.data.judgement import Judgement, Label, combine
from critic_prm.data.trajectory import Trajectory, blind
from critic_prm.engine.ordered_map import ordered_map
from critic_prm.engine.together import gather_all
from critic_prm.evaluate.cascade_tuning import CascadeCase


@dataclass(frozen=True, slots=True)
class CascadeCases:
    """The cases. `left_out` counts solutions without a usable judgement of the first critic."""

    rows: tuple[CascadeCase, ...]
    left_out: int
    tokens: int
    """Input and output tokens of the judge."""


async def collect_cases(
    trajectories: Iterable[Trajectory],
    first: Critic,
    judge: Critic | Mapping[str, Label],
    by: By = "solution",
    workers: int = 64,
) -> CascadeCases:
    """Ask the first critic about every solution, and the judge about every solution or, with "step", about every step.

    The cost of a band is computed from these results, so every judgement is needed once; the cascade later finds the replies in
    the cache. `judge` may also be labels by trajectory id, as in a label file; a step that such a label does not judge, because
    an earlier step is incorrect, is undecided. Raises whatever stops the critics.
    """
    known = [t for t in trajectories if t.first_error() is not None and t.steps]
    firsts: list[Judgement] = []
    for start in range(0, len(known), max(first.batch, 1)):
        firsts += await first.judge([blind(t) for t in known[start : start + max(first.batch, 1)]])
    rows: list[CascadeCase] = []
    tokens = left_out = 0

    async def work(part: Sequence[tuple[Trajectory, Judgement]]) -> list[list[Judgement]]:
        return [await _asked(blind(trajectory), judge, by) for trajectory, _ in part]

    pairs = list(zip(known, firsts, strict=True))
    async for (trajectory, said), answers in ordered_map(pairs, work, workers=lambda: workers):
        gold, steps = trajectory.first_error(), len(trajectory.steps)
        p_correct = combine([said], steps).p_correct
        if gold is None or said.first_error is None:
            left_out += 1
            continue
        tokens += sum(answer.usage.input + answer.usage.output for answer in answers)
        label = judge.get(trajectory.id) if isinstance(judge, Mapping) else None
        rows.append(_heard(problem_key(trajectory.problem), gold, p_correct, said.first_error, answers, label, by))
    return CascadeCases(tuple(rows), left_out, tokens)


async def _asked(trajectory: Trajectory, judge: Critic | Mapping[str, Label], by: By) -> list[Judgement]:
    if isinstance(judge, Mapping):
        return []
    if by == "solution":
        return await judge.judge([trajectory])
    return await gather_all(judge.judge_step(trajectory, step) for step in range(len(trajectory.steps)))


def _heard(
    problem: str,
    gold: int,
    scores: tuple[float | None, ...],
    first: int,
    answers: Sequence[Judgement],
    label: Label | None,
    by: By,
) -> CascadeCase:
    if by == "solution":
        verdict = answers[0].first_error if answers else None if label is None else label.first_error
        return CascadeCase(problem, gold, scores, first, verdict=verdict)
    if answers:
        verdicts = [verdict_on(answer, step) for step, answer in enumerate(answers)]
        judged = tuple(None if verdict is None else verdict.value == "correct" for verdict in verdicts)
    else:
        said = label.p_correct if label is not None else (None,) * len(scores)
        judged = tuple(None if p is None else p >= 0.5 for p in said)
    # The judge alone would go step by step, so its cost is the number of calls up to its first error.
    stops = next((step for step, right in enumerate(judged) if right is not True), len(judged) - 1)
    return CascadeCase(problem, gold, scores, first, judged=judged, calls=stops + 1)
