"""PRMBench (ssmisya/PRMBench): solutions modified to contain errors, with the 1-based list of incorrect steps.

{"modified_question": "p", "modified_process": ["s"], "error_steps": [1], "classification": "circular"}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Dropped,
    Options,
    answer_of,
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

CONVENTION = Convention(
    labels="`error_steps`: numbers of all wrong steps; the others are right",
    index_base=1,
    neutral="error_steps of the class `redundency` (needless, not wrong)",
    after_error="labelled",
)
_USED = ("modified_question", "modified_process", "error_steps", "ground_truth", "id")


def score(row: Mapping[str, Any]) -> int:
    """A row has a modified process and its error steps."""
    return 2 * has(row, "modified_process", "error_steps")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory, the modified solution. The original goes to `meta`."""
    row, where = record.data, record.where
    steps = texts_of(row, "modified_process", where)
    base, wrong = options.base(1), row.get("error_steps")
    if not isinstance(wrong, list) or not all(isinstance(n, int) and base <= n for n in wrong):
        mend = f"it must list step numbers from {base} to {len(steps) + base - 1}"
        raise InputError(where, f'"error_steps" is {say(wrong)}, and there are {len(steps)} steps', mend)
    if any(number - base >= len(steps) for number in wrong):  # the published files contain a few
        raise Dropped("error_steps name a step that does not exist")
    mark: StepLabel = "neutral" if row.get("classification") == "redundency" else 0.0
    numbers = {number - base for number in wrong}
    name = id_of(row, "idx")
    if name and row.get("classification"):  # the classes share the same question numbers
        name = f"{row['classification']}-{name}"
    yield Trajectory(
        id=name or id_of(row),
        problem=text_of(row, "modified_question" if row.get("modified_question") else "question", where),
        steps=steps,
        gold_answer=answer_of(row, "ground_truth"),
        step_labels=tuple(mark if index in numbers else 1.0 for index in range(len(steps))),
        meta=rest(row, _USED),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write a row for the labelled steps. Steps that are not listed count as correct, so unjudged steps are cut."""
    own = known(
        trajectory, "idx", "classification", "reason", "original_question", "original_process", "modified_steps", "question"
    )
    needless = own.get("classification") == "redundency" and 0.0 not in trajectory.gold()
    labels = [label != "neutral" for label in trajectory.gold()] if needless else judged(trajectory, "prmbench", lost)
    base = options.base(1)
    row: dict[str, Any] = {
        "idx": trajectory.id,
        "modified_question": trajectory.problem,
        "modified_process": trajectory.texts[: len(labels)],
        "error_steps": [index + base for index, good in enumerate(labels) if not good],
        **own,
    }
    if trajectory.gold_answer is not None:
        row["ground_truth"] = trajectory.gold_answer
    unsaid(trajectory, {"id", "gold_answer", *own, *(f"meta.{key}" for key in own)}, lost)
    return row
