"""ProcessBench (QwenLM/ProcessBench): solutions with the 0-based index of the first incorrect step, or -1.

{"id": "a", "generator": "m", "problem": "p", "steps": ["s"], "final_answer_correct": true, "label": -1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Options,
    beyond_first_error,
    first_error_from,
    first_error_to,
    has,
    id_of,
    known,
    rest,
    text_of,
    texts_of,
    unsaid,
)
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels="`label`: first wrong step, -1 when every step is right", index_base=0)
_OWN = ("generator", "final_answer_correct")


def score(row: Mapping[str, Any]) -> int:
    """A row has a problem, steps and a label. Native rows do too, so the score is low without `final_answer_correct`."""
    return has(row, "problem", "steps", "label", "final_answer_correct") or min(1, has(row, "problem", "steps", "label"))


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. `generator` and `final_answer_correct` become extra fields."""
    row, where = record.data, record.where
    steps = texts_of(row, "steps", where)
    if row.get("label") is None:
        raise InputError(where, '"label" is missing', "it is the first wrong step or -1; rows without one are native")
    yield Trajectory(
        id=id_of(row),
        problem=text_of(row, "problem", where),
        steps=steps,
        label=first_error_from(row["label"], options.base(0), len(steps), where, "label"),
        extra=rest(row, ("id", "problem", "steps", "label")),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write the six fields of ProcessBench. `generator` and `final_answer_correct` are omitted if unknown."""
    row = {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "steps": trajectory.texts,
        "label": first_error_to(trajectory, options.base(0), -1),
        **known(trajectory, *_OWN),
    }
    beyond_first_error(trajectory, lost)
    unsaid(trajectory, {"id", *_OWN, *(f"meta.{key}" for key in _OWN)}, lost)
    return row
