"""RLHFlow PRM chats: the user turns hold the problem and one step each, the assistant answers each with + or -.

{"conversations": [{"role": "user", "content": "p Step 1: s"}, {"role": "assistant", "content": "+"}]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Dropped, Options, id_of, judged, rest, unsaid
from critic_prm.data.formats.math_shepherd import marked, unmarked
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels="the assistant's turns, `+` or `-`", after_error="labelled")
_FIRST = " Step 1:"


def score(row: Mapping[str, Any]) -> int:
    """A row has conversations in which the assistant only says + or -."""
    turns = row.get("conversations")
    if not isinstance(turns, list) or not turns or len(turns) % 2:
        return 0
    return 4 * all(isinstance(turn, dict) and turn.get("content") in ("+", "-") for turn in turns[1::2])


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed."""
    row, where = record.data, record.where
    turns = row["conversations"]
    texts = [str(turn.get("content", "")) if isinstance(turn, dict) else "" for turn in turns[::2]]
    if not score(row):
        raise InputError(where, '"conversations" does not alternate steps with + or -', "mend or remove the row")
    problem, mark, first = texts[0].partition(_FIRST)
    if not mark or not problem.strip():
        raise InputError(where, 'the first turn has no "Step 1:"', "the problem is what stands before it")
    yield Trajectory(
        id=id_of(row),
        problem=problem,
        steps=unmarked([mark[1:] + first, *texts[1:]]),
        step_labels=tuple(1.0 if turn["content"] == "+" else 0.0 for turn in turns[1::2]),
        meta=rest(row, ("conversations", "id")),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write the conversation for the labelled steps."""
    labels = judged(trajectory, "rlhflow", lost)
    if _FIRST in trajectory.problem:
        raise Dropped('the problem contains "Step 1:"')
    steps = marked(trajectory.texts[: len(labels)])
    steps[0] = f"{trajectory.problem} {steps[0]}"
    unsaid(trajectory, {"id"}, lost)
    turns = [
        turn
        for step, good in zip(steps, labels, strict=True)
        for turn in ({"role": "user", "content": step}, {"role": "assistant", "content": "+" if good else "-"})
    ]
    return {"id": trajectory.id, "conversations": turns}
