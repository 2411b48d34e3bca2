"""Formats with a list of steps and labels for each of them: TRL, FoVer, PRMBench and PARC."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Source, Target, about, describe, is_good
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError


def _read_trl(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Votes, weight and source of a training row become extra fields."""
    steps = source.steps("completions")
    labels = source.labels("labels", len(steps), {None: None}, numbers=True)
    trajectory = source.trajectory(source.text("prompt"), steps, step_labels=labels)
    yield replace(trajectory, extra=trajectory.meta, meta={})


def _write_trl(target: Target) -> dict[str, Any]:
    """Write the row with boolean labels, because TRL truncates fractions, for the labelled steps."""
    trajectory, labels = target.trajectory, target.hard_labels()
    return {
        "prompt": trajectory.problem,
        "completions": trajectory.texts[: len(labels)],
        "labels": labels,
        "id": trajectory.id,
        **target.own,
    }


def _read_fover(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The chats are derived from the other fields, so they are not kept."""
    source.drop("messages", "messages_for_prediction")
    steps = source.steps("solution_steps")
    labels = source.labels("error_labels", len(steps), {True: 1.0, False: 0.0, None: None})
    yield source.trajectory(source.text("problem"), steps, step_labels=labels)


def _write_fover(target: Target) -> dict[str, Any]:
    """Write one row. `messages` holds the chat for the longest labelled prefix, one user turn per step answered
    by its label."""
    trajectory = target.trajectory
    labels = [None if label is None else is_good(label) for label in target.labels(neutral=False)]
    turns = []
    for index, (text, label) in enumerate(zip(trajectory.texts, labels, strict=True)):
        if label is None:
            break
        shown = text if index else f"{trajectory.problem}\n\n{text}"
        turns += [{"role": "user", "content": shown}, {"role": "assistant", "content": "correct" if label else "incorrect"}]
    return {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "solution_steps": trajectory.texts,
        "error_labels": labels,
        "messages": turns,
        **target.own,
    }


def _read_prmbench(source: Source) -> Iterable[Trajectory]:
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


def _write_prmbench(target: Target) -> dict[str, Any]:
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


def _read_parc(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Premises and error descriptions go to `meta`. A step without an annotation has no label."""
    steps = source.steps()
    wrong: dict[int, bool] = {}
    try:
        for note in source.row["error_annotation"]["error_annotations"]["step_level"]:
            wrong[int(note["step_number"]) - source.base(1)] = bool(note["has_error"])
    except (KeyError, TypeError, ValueError):
        fix = 'it must hold error_annotations.step_level, a list of {"step_number", "has_error"}'
        raise source.error("error_annotation", fix) from None
    if outside := wrong.keys() - set(range(len(steps))):
        problem = f"a step_number is {min(outside) + source.base(1)}, but there are {len(steps)} steps"
        raise InputError(source.where, problem, f"they are counted from {source.base(1)}")
    yield source.trajectory(
        source.text("question"),
        steps,
        final_answer=source.answer("model_answer"),
        gold_answer=source.answer("ground_truth_answer"),
        step_labels=(None if index not in wrong else float(not wrong[index]) for index in range(len(steps))),
    )


FORMATS = {
    "trl": Format(read=_read_trl, write=_write_trl, **about("trl")),
    "fover": Format(read=_read_fover, write=_write_fover, **about("fover")),
    "prmbench": Format(read=_read_prmbench, write=_write_prmbench, **about("prmbench")),
    "parc": Format(read=_read_parc, **about("parc")),
}
