"""ProcessBench (QwenLM/ProcessBench): solutions with the 0-based index of the first incorrect step, or -1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target, has
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError


def score(row: Mapping[str, Any]) -> int:
    """A row has a problem, steps and a label. Native rows do too, so the score is low without `final_answer_correct`."""
    return has(row, "problem", "steps", "label", "final_answer_correct") or min(1, has(row, "problem", "steps", "label"))


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. `generator` and `final_answer_correct` become extra fields."""
    steps = source.steps()
    if source.row.get("label") is None:
        raise InputError(source.where, '"label" is missing', "it is the first wrong step or -1; rows without one are native")
    trajectory = source.trajectory(source.text("problem"), steps, label=source.first_error("label", 0, len(steps)))
    yield replace(trajectory, extra=trajectory.meta, meta={})


def write(target: Target) -> dict[str, Any]:
    """Write the six fields of ProcessBench. `generator` and `final_answer_correct` are omitted if unknown."""
    trajectory, label = target.trajectory, target.first_error(0, -1)
    return {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "steps": trajectory.texts,
        "label": label,
        **target.own,
    }


FORMAT = Format(
    sample={"id": "a", "generator": "m", "problem": "p", "steps": ["s"], "final_answer_correct": True, "label": -1},
    read=read,
    write=write,
    score=score,
    labels="`label`: first incorrect step, -1 if every step is correct",
    index_base=0,
    keeps=("id",),
    own=("generator", "final_answer_correct"),
)
