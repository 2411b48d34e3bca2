"""TRL stepwise supervision, and critic-prm training rows: a prompt, completions, and one label per completion.

{"prompt": "p", "completions": ["s", "t"], "labels": [true, false]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Options,
    has,
    id_of,
    judged,
    known,
    rest,
    say,
    text_of,
    texts_of,
    unsaid,
)
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels="`labels`: true or false per step; P(correct) and null are read", after_error="labelled")


def score(row: Mapping[str, Any]) -> int:
    """A row has a prompt, completions and labels."""
    return has(row, "prompt", "completions", "labels")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. Votes, weight and source of a training row become extra fields."""
    row, where = record.data, record.where
    steps = texts_of(row, "completions", where)
    labels = row.get("labels")
    if not isinstance(labels, list) or len(labels) != len(steps):
        size = len(labels) if isinstance(labels, list) else say(labels)
        raise InputError(where, f'"labels" is {size}, but there are {len(steps)} completions', "each completion needs a label")
    yield Trajectory(
        id=id_of(row),
        problem=text_of(row, "prompt", where),
        steps=steps,
        step_labels=tuple(_label(label, index, where) for index, label in enumerate(labels)),
        extra=rest(row, ("id", "prompt", "completions", "labels")),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write the row with boolean labels, because TRL truncates fractions, for the labelled steps."""
    labels = judged(trajectory, "trl", lost)
    unsaid(trajectory, {"id", "source", "meta.source"}, lost)
    return {
        "prompt": trajectory.problem,
        "completions": trajectory.texts[: len(labels)],
        "labels": labels,
        "id": trajectory.id,
        **known(trajectory, "source"),
    }


def _label(value: Any, index: int, where: str) -> StepLabel:
    if value is None:
        return None
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    raise InputError(where, f"label {index} is {say(value)}", "a label is true, false, a number from 0 to 1, or null")
