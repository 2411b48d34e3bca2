"""Math-Shepherd (peiyi9979): one text with a tag after each step, and a copy with + or - in place of each tag."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Source, Target, has
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

TAG = " ки"
FIRST = re.compile(r"[ \n]?Step 1:")
SIGNS: Mapping[Any, StepLabel] = {"+": 1.0, "-": 0.0}


def score(row: Mapping[str, Any]) -> int:
    """A row has an input with step tags and a label that is text."""
    return has(row, "input", "label") and 3 * (
        isinstance(row["input"], str) and isinstance(row["label"], str) and TAG in row["input"]
    )


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed."""
    pieces, labels = _aligned(source.text("input"), source.text("label"), source.where)
    problem, pieces[0] = divided(pieces[0], "input", source.where)
    yield source.trajectory(problem, unmarked(pieces), step_labels=labels)


def write(target: Target) -> dict[str, Any]:
    """Write `input` and `label` for the labelled steps. Raises Dropped if a text contains one of the format's own markers."""
    labels = target.hard_labels()
    steps = marked(target.trajectory.texts[: len(labels)])
    if FIRST.search(target.trajectory.problem):
        raise Dropped('the problem contains "Step 1:"')
    head = target.trajectory.problem + " "
    return {
        "input": head + "\n".join(step + TAG for step in steps),
        "label": head + "\n".join(f"{step} {'+' if good else '-'}" for step, good in zip(steps, labels, strict=True)),
        **target.own,
    }


FORMAT = Format(
    sample={"input": "p Step 1: s ки\nStep 2: t ки", "label": "p Step 1: s +\nStep 2: t -", "task": "GSM8K"},
    read=read,
    write=write,
    score=score,
    labels="`+` or `-` in place of each step tag `ки`",
    after_error="labelled",
    step_labels=(1.0, 0.0),
    own=("task",),
)


def divided(text: str, key: str, where: str) -> tuple[str, str]:
    """The problem, and the first step with its marker "Step 1:". Raises InputError if there is no such marker."""
    start = FIRST.search(text)
    if start is None or not text[: start.start()].strip():
        raise InputError(where, f'"{key}" has no "Step 1:"', "the text before it is the problem")
    return text[: start.start()], text[start.end() - len("Step 1:") :]


def _aligned(text: str, labelled: str, where: str) -> tuple[list[str], list[StepLabel]]:
    """The pieces between tags, and their labels. A tag counts only where `labelled` has + or - instead, so a step may contain
    "ки"."""
    pieces: list[str] = []
    labels: list[StepLabel] = []
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
            labels.append(SIGNS[sign[1]])
            piece, place = "", place + 2
        else:
            piece += TAG
            if not labelled.startswith(TAG, place):
                break
            place += len(TAG)
    near = labelled[max(0, place - 20) : place + 20]
    fix = '"label" must repeat "input" with + or - in the place of each tag'
    raise InputError(where, f'"input" and "label" part ways after {len(labels)} steps, near {near!r}', fix)


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
