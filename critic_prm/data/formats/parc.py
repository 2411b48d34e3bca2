"""PARC: solutions with an error annotation per step, identified by its 1-based number.

{"question": "p", "steps": ["s"],
 "error_annotation": {"error_annotations": {"step_level": [{"step_number": 1, "has_error": true}]}}}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Options, answer_of, has, id_of, rest, say, text_of, texts_of
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(
    labels="`error_annotations`: `has_error` under each step's number",
    index_base=1,
    after_error="labelled (accumulated errors)",
)
_USED = ("question", "steps", "ground_truth_answer", "model_answer", "id")


def score(row: Mapping[str, Any]) -> int:
    """A row has a question, steps and an error annotation."""
    return 3 * has(row, "question", "steps", "error_annotation")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. Premises and error descriptions go to `meta`. A step without an annotation has no label."""
    row, where = record.data, record.where
    steps = texts_of(row, "steps", where)
    wrong: dict[int, bool] = {}
    try:
        for note in row["error_annotation"]["error_annotations"]["step_level"]:
            wrong[int(note["step_number"]) - options.base(1)] = bool(note["has_error"])
    except (KeyError, TypeError, ValueError):
        mend = 'it must hold error_annotations.step_level, a list of {"step_number", "has_error"}'
        raise InputError(where, f'"error_annotation" is {say(row["error_annotation"])}', mend) from None
    yield Trajectory(
        id=id_of(row),
        problem=text_of(row, "question", where),
        steps=steps,
        final_answer=answer_of(row, "model_answer"),
        gold_answer=answer_of(row, "ground_truth_answer"),
        step_labels=tuple(None if index not in wrong else float(not wrong[index]) for index in range(len(steps))),
        meta=rest(row, _USED),
    )
