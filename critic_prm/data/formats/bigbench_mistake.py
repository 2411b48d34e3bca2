"""BIG-Bench Mistake (WHGTyen): chains of thought with the 0-based index of the first mistake, or null.

{"input": "p", "steps": ["s"], "answer": "1", "target": "2", "mistake_index": 0}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Options,
    answer_of,
    beyond_first_error,
    first_error_from,
    first_error_to,
    has,
    id_of,
    rest,
    text_of,
    texts_of,
    unsaid,
)
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory

CONVENTION = Convention(labels="`mistake_index`: first wrong step, null when every step is right", index_base=0)
_USED = ("input", "steps", "target", "answer", "mistake_index", "id")


def score(row: Mapping[str, Any]) -> int:
    """A row has an input, steps and a mistake index."""
    return 2 * has(row, "input", "steps", "mistake_index")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. `answer` is the model's answer, `target` the gold answer."""
    row, where = record.data, record.where
    steps = texts_of(row, "steps", where)
    yield Trajectory(
        id=id_of(row),
        problem=text_of(row, "input", where),
        steps=steps,
        final_answer=answer_of(row, "answer"),
        gold_answer=answer_of(row, "target"),
        label=first_error_from(row["mistake_index"], options.base(0), len(steps), where, "mistake_index"),
        meta=rest(row, _USED),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write the five fields of BIG-Bench Mistake."""
    row = {
        "input": trajectory.problem,
        "steps": trajectory.texts,
        "target": trajectory.gold_answer,
        "answer": trajectory.final_answer,
        "mistake_index": first_error_to(trajectory, options.base(0), None),
    }
    beyond_first_error(trajectory, lost)
    unsaid(trajectory, {"final_answer", "gold_answer"}, lost)
    return row
