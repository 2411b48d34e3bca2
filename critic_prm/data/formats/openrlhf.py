"""OpenRLHF PRM data: one text with a placeholder token after each step, and a list with one label per step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Source, Target, describe, has
from critic_prm.data.formats.math_shepherd import FIRST, SIGNS, TAG, divided, marked, unmarked
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError


def score(row: Mapping[str, Any]) -> int:
    """A row has inputs with placeholders, and a list of labels."""
    complete = has(row, "inputs", "labels") and isinstance(row["inputs"], str) and isinstance(row["labels"], list)
    return 4 if complete and TAG in row["inputs"] else 0


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The "Step k:" markers before the steps are removed. Raises InputError for text after the last
    placeholder, which would be a step without a label."""
    *pieces, behind = source.text("inputs").split(TAG)
    if behind.strip():
        problem = f'"inputs" goes on behind its last placeholder: {describe(behind)}'
        raise InputError(source.where, problem, "each step ends with one")
    labels = source.labels("labels", len(pieces), SIGNS, numbers=True)
    problem, first = divided(pieces[0], "inputs", source.where)
    steps = unmarked([first, *(piece.removeprefix("\n") for piece in pieces[1:])])
    yield source.trajectory(problem, steps, step_labels=labels)


def write(target: Target) -> dict[str, Any]:
    """Write `inputs` and `labels` for the labelled steps. Raises Dropped if a text contains one of the format's own markers."""
    trajectory, labels = target.trajectory, target.hard_labels()
    if FIRST.search(trajectory.problem) or TAG in trajectory.problem:
        raise Dropped('the problem contains "Step 1:" or the placeholder')
    steps = marked(trajectory.texts[: len(labels)])
    if any(TAG in step for step in steps):  # also where "Step 1:" and the text make one of it
        raise Dropped("a step contains the placeholder")
    return {
        "id": trajectory.id,
        "inputs": trajectory.problem + " " + "\n".join(step + TAG for step in steps),
        "labels": ["+" if good else "-" for good in labels],
    }


FORMAT = Format(
    sample={"inputs": "p Step 1: s ки\nStep 2: t ки", "labels": ["+", "-"]},
    read=read,
    write=write,
    score=score,
    labels='`labels`: "+" or "-" (or P(correct)) for each placeholder `ки`',
    after_error="labelled",
    step_labels=(1.0, 0.0),
    keeps=("id",),
)
