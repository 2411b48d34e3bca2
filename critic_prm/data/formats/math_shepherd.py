"""Math-Shepherd (peiyi9979): one text with a tag after each step, and a copy with + or - in place of each tag.

{"input": "p Step 1: s ки\\nStep 2: t ки", "label": "p Step 1: s +\\nStep 2: t -", "task": "GSM8K"}
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from critic_prm.data.formats.common import Convention, Dropped, Options, has, id_of, judged, known, rest, text_of, unsaid
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels="`+` or `-` where the step tag `ки` stood", after_error="labelled")
TAG = " ки"
_FIRST = re.compile(r"[ \n]?Step 1:")


def score(row: Mapping[str, Any]) -> int:
    """A row has an input with step tags and a label that is text."""
    return has(row, "input", "label") and 3 * (
        isinstance(row["input"], str) and isinstance(row["label"], str) and TAG in row["input"]
    )


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed."""
    row, where = record.data, record.where
    pieces, labels = _aligned(text_of(row, "input", where), text_of(row, "label", where), where)
    start = _FIRST.search(pieces[0])
    if start is None:
        raise InputError(where, '"input" has no "Step 1:"', "the problem is what stands before it")
    problem, pieces[0] = pieces[0][: start.start()], pieces[0][start.end() - len("Step 1:") :]
    yield Trajectory(
        id=id_of(row),
        problem=problem,
        steps=unmarked(pieces),
        step_labels=tuple(labels),
        meta=rest(row, ("input", "label", "id")),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write `input` and `label` for the labelled steps. Raises Dropped if a text contains one of the format's own markers."""
    labels = judged(trajectory, "math-shepherd", lost)
    steps = marked(trajectory.texts[: len(labels)])
    if _FIRST.search(trajectory.problem):
        raise Dropped('the problem contains "Step 1:"')
    head = trajectory.problem + " "
    row = {
        "input": head + "\n".join(step + TAG for step in steps),
        "label": head + "\n".join(f"{step} {'+' if good else '-'}" for step, good in zip(steps, labels, strict=True)),
    }
    unsaid(trajectory, {"meta.task"}, lost)
    return {**row, **known(trajectory, "task")}


def _aligned(text: str, labelled: str, where: str) -> tuple[list[str], list[float]]:
    """The pieces between tags, and their labels. A tag counts only where `labelled` has + or - instead, so a step may contain
    "ки"."""
    pieces: list[str] = []
    labels: list[float] = []
    piece, place = "", 0
    parts = text.split(TAG)
    for index, part in enumerate(parts):
        if not labelled.startswith(part, place):
            break
        place += len(part)
        piece += part
        if index == len(parts) - 1:
            if piece.strip() or place != len(labelled):
                break
            return pieces, labels
        if (sign := labelled[place : place + 2]) in (" +", " -"):
            pieces.append(piece if not pieces else piece.removeprefix("\n"))
            labels.append(1.0 if sign == " +" else 0.0)
            piece, place = "", place + 2
        else:
            piece += TAG
            if not labelled.startswith(TAG, place):
                break
            place += len(TAG)
    near = labelled[max(0, place - 20) : place + 20]
    mend = '"label" must repeat "input" with + or - in the place of each tag'
    raise InputError(where, f'"input" and "label" part ways after {len(labels)} steps, near {near!r}', mend)


def unmarked(pieces: Sequence[str]) -> tuple[Step, ...]:
    """Steps without the leading "Step k: ", if every step has it."""
    marks = [f"Step {number}:" for number in range(1, len(pieces) + 1)]
    if not all(piece.startswith(mark) for piece, mark in zip(pieces, marks, strict=True)):
        return tuple(Step(piece) for piece in pieces)
    return tuple(Step(piece[len(mark) :].removeprefix(" ")) for piece, mark in zip(pieces, marks, strict=True))


def marked(texts: Sequence[str]) -> list[str]:
    """Steps with a leading "Step k: ". Raises Dropped if a step contains the tag."""
    if any(TAG in text for text in texts):
        raise Dropped(f"a step contains the step tag {TAG!r}")
    return [f"Step {number}: {text}" for number, text in enumerate(texts, 1)]
