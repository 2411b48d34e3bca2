"""BIG-Bench Mistake (WHGTyen): chains of thought with the 0-based index of the first mistake, or null."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target
from critic_prm.data.trajectory import Trajectory


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. `answer` is the model's answer, `target` the gold answer."""
    steps = source.steps()
    yield source.trajectory(
        source.text("input"),
        steps,
        final_answer=source.answer("answer"),
        gold_answer=source.answer("target"),
        label=source.first_error("mistake_index", 0, len(steps)),
    )


def write(target: Target) -> dict[str, Any]:
    """Write the five fields of BIG-Bench Mistake."""
    trajectory = target.trajectory
    return {
        "input": trajectory.problem,
        "steps": trajectory.texts,
        "target": trajectory.gold_answer,
        "answer": trajectory.final_answer,
        "mistake_index": target.first_error(0, None),
    }


FORMAT = Format(
    sample={"input": "p", "steps": ["s"], "answer": "1", "target": "2", "mistake_index": 0},
    read=read,
    write=write,
    fields=("input", "steps", "mistake_index"),
    certainty=2,
    labels="`mistake_index`: first incorrect step, null if every step is correct",
    index_base=0,
    keeps=("final_answer", "gold_answer"),
)
