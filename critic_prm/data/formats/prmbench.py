"""PRMBench (ssmisya/PRMBench): solutions modified to contain errors, with the 1-based list of incorrect steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Source, Target, describe
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory, the modified solution. The original goes to `meta`."""
    steps = source.steps("modified_process")
    base, wrong, row = source.base(1), source.get("error_steps"), source.row
    if not isinstance(wrong, list) or not all(isinstance(n, int) and base <= n for n in wrong):
        fix = f"it must list step numbers from {base} to {len(steps) + base - 1}"
        raise InputError(source.where, f'"error_steps" is {describe(wrong)}, and there are {len(steps)} steps', fix)
    if any(number - base >= len(steps) for number in wrong):  # the published files contain a few
        raise Dropped("error_steps name a step that does not exist")
    mark: StepLabel = "neutral" if row.get("classification") == "redundency" else 0.0
    numbers = {number - base for number in wrong}
    name = "" if row.get("idx") is None else str(row["idx"])
    if name and row.get("classification"):  # the classes share the same question numbers
        name = f"{row['classification']}-{name}"
    source.drop("modified_question", "id")
    problem = source.text("modified_question" if row.get("modified_question") else "question")
    source.used.discard("question")
    yield source.trajectory(
        problem,
        steps,
        id=name or source.id(),
        gold_answer=source.answer("ground_truth"),
        step_labels=(mark if index in numbers else 1.0 for index in range(len(steps))),
    )


def write(target: Target) -> dict[str, Any]:
    """Write a row for the labelled steps. Steps that are not listed count as correct, so unjudged steps are cut."""
    trajectory, own, base = target.trajectory, target.own, target.base(1)
    needless = own.get("classification") == "redundency" and 0.0 not in trajectory.gold()
    labels = [label != "neutral" for label in trajectory.gold()] if needless else target.hard_labels()
    row: dict[str, Any] = {
        "idx": trajectory.id,
        "modified_question": trajectory.problem,
        "modified_process": trajectory.texts[: len(labels)],
        "error_steps": [index + base for index, good in enumerate(labels) if not good],
        **own,
    }
    return row if trajectory.gold_answer is None else {**row, "ground_truth": trajectory.gold_answer}


FORMAT = Format(
    sample={"modified_question": "p", "modified_process": ["s"], "error_steps": [1], "classification": "circular"},
    read=read,
    write=write,
    fields=("modified_process", "error_steps"),
    certainty=2,
    labels="`error_steps`: numbers of all incorrect steps; the others are correct",
    index_base=1,
    neutral="error_steps of the class `redundency` (redundant, not incorrect)",
    after_error="labelled",
    step_labels=(1.0, 0.0),
    keeps=("id", "gold_answer"),
    own=("idx", "classification", "reason", "original_question", "original_process", "modified_steps", "question"),
)
