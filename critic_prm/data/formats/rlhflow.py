"""RLHFlow PRM chats: the user turns hold the problem and one step each, the assistant answers each with + or -."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Source, Target
from critic_prm.data.formats.math_shepherd import SIGNS, marked, unmarked
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

_FIRST = " Step 1:"


def score(row: Mapping[str, Any]) -> int:
    """A row has conversations in which the assistant only says + or -."""
    turns = row.get("conversations")
    if not isinstance(turns, list) or not turns or len(turns) % 2:
        return 0
    return 4 * all(isinstance(turn, dict) and turn.get("content") in ("+", "-") for turn in turns[1::2])


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed."""
    turns = source.get("conversations")
    if not score(source.row):
        fix = "fix or delete the row"
        raise InputError(source.where, '"conversations" does not alternate steps with + or -', fix)
    texts = [str(turn.get("content", "")) if isinstance(turn, dict) else "" for turn in turns[::2]]
    problem, mark, first = texts[0].partition(_FIRST)
    if not mark or not problem.strip():
        raise InputError(source.where, 'the first turn has no "Step 1:"', "the text before it is the problem")
    steps = unmarked([mark[1:] + first, *texts[1:]])
    yield source.trajectory(problem, steps, step_labels=(SIGNS[turn["content"]] for turn in turns[1::2]))


def write(target: Target) -> dict[str, Any]:
    """Write the conversation for the labelled steps."""
    trajectory, labels = target.trajectory, target.hard_labels()
    if _FIRST in trajectory.problem:
        raise Dropped('the problem contains "Step 1:"')
    steps = marked(trajectory.texts[: len(labels)])
    steps[0] = f"{trajectory.problem} {steps[0]}"
    turns = [
        turn
        for step, good in zip(steps, labels, strict=True)
        for turn in ({"role": "user", "content": step}, {"role": "assistant", "content": "+" if good else "-"})
    ]
    return {"id": trajectory.id, "conversations": turns}


FORMAT = Format(
    sample={"conversations": [{"role": "user", "content": "p Step 1: s"}, {"role": "assistant", "content": "+"}]},
    read=read,
    write=write,
    score=score,
    labels="the assistant's turns, `+` or `-`",
    after_error="labelled",
    step_labels=(1.0, 0.0),
    keeps=("id",),
)
