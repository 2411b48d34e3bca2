"""PARC: solutions with an error annotation per step, identified by its 1-based number."""

from __future__ import annotations

from collections.abc import Iterable

from critic_prm.data.formats.common import Format, Source
from critic_prm.data.trajectory import Trajectory


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Premises and error descriptions go to `meta`. A step without an annotation has no label."""
    steps = source.steps()
    wrong: dict[int, bool] = {}
    try:
        for note in source.row["error_annotation"]["error_annotations"]["step_level"]:
            wrong[int(note["step_number"]) - source.base(1)] = bool(note["has_error"])
    except (KeyError, TypeError, ValueError):
        fix = 'it must hold error_annotations.step_level, a list of {"step_number", "has_error"}'
        raise source.error("error_annotation", fix) from None
    yield source.trajectory(
        source.text("question"),
        steps,
        final_answer=source.answer("model_answer"),
        gold_answer=source.answer("ground_truth_answer"),
        step_labels=(None if index not in wrong else float(not wrong[index]) for index in range(len(steps))),
    )


FORMAT = Format(
    sample={
        "question": "p",
        "steps": ["s"],
        "error_annotation": {"error_annotations": {"step_level": [{"step_number": 1, "has_error": True}]}},
    },
    read=read,
    fields=("question", "steps", "error_annotation"),
    certainty=3,
    labels="`error_annotations`: `has_error` under each step's number",
    index_base=1,
    after_error="labelled (accumulated errors)",
)
