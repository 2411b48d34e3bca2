"""OpenRLHF PRM data: one text with a placeholder token after each step, and a list with one label per step.

{"inputs": "p Step 1: s ки\\nStep 2: t ки", "labels": ["+", "-"]}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Dropped, Options, has, id_of, judged, rest, say, text_of, unsaid
from critic_prm.data.formats.math_shepherd import TAG, marked, unmarked
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels='`labels`: "+" or "-" (or P(correct)) for each placeholder `ки`', after_error="labelled")
_FIRST = re.compile(r"[ \n]?Step 1:")
_SIGNS = {"+": 1.0, "-": 0.0}


def score(row: Mapping[str, Any]) -> int:
    """A row has inputs with placeholders, and a list of labels."""
    found = has(row, "inputs", "labels") and isinstance(row["inputs"], str) and isinstance(row["labels"], list)
    return 4 if found and TAG in row["inputs"] else 0


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed. Raises InputError for text after the last
    placeholder, which would be a step without a label."""
    row, where = record.data, record.where
    *pieces, behind = text_of(row, "inputs", where).split(TAG)
    labels = row.get("labels")
    if behind.strip():
        raise InputError(where, f'"inputs" goes on behind its last placeholder: {say(behind)}', "each step ends with one")
    if not isinstance(labels, list) or len(pieces) != len(labels):
        mend = "each step needs a label"
        size = len(labels) if isinstance(labels, list) else say(labels)
        raise InputError(where, f'"labels" is {size} for {len(pieces)} placeholders "{TAG.strip()}"', mend)
    start = _FIRST.search(pieces[0])
    if start is None or not pieces[0][: start.start()].strip():
        raise InputError(where, '"inputs" has no "Step 1:"', "the problem is what stands before it")
    problem, first = pieces[0][: start.start()], pieces[0][start.end() - len("Step 1:") :]
    yield Trajectory(
        id=id_of(row),
        problem=problem,
        steps=unmarked([first, *(piece.removeprefix("\n") for piece in pieces[1:])]),
        step_labels=tuple(_label(label, index, where) for index, label in enumerate(labels)),
        meta=rest(row, ("id", "inputs", "labels")),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write `inputs` and `labels` for the labelled steps. Raises Dropped if a text contains one of the format's own markers."""
    labels = judged(trajectory, "openrlhf", lost)
    if _FIRST.search(trajectory.problem) or TAG in trajectory.problem:
        raise Dropped('the problem contains "Step 1:" or the placeholder')
    steps = marked(trajectory.texts[: len(labels)])
    if any(TAG in step for step in steps):  # also where "Step 1:" and the text make one of it
        raise Dropped("a step contains the placeholder")
    unsaid(trajectory, {"id"}, lost)
    return {
        "id": trajectory.id,
        "inputs": trajectory.problem + " " + "\n".join(step + TAG for step in steps),
        "labels": ["+" if good else "-" for good in labels],
    }


def _label(value: Any, index: int, where: str) -> StepLabel:
    if isinstance(value, str) and value in _SIGNS:
        return _SIGNS[value]
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    raise InputError(where, f"label {index} is {say(value)}", 'a label is "+", "-", or a number from 0 to 1')
