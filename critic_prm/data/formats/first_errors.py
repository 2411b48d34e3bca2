"""Formats with the number of the first wrong step, such as ProcessBench, BIG-Bench Mistake, ReasonEval and Mr-Ben."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import RATINGS, Format, Source, Target, about, describe, has
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError


def _score_processbench(row: Mapping[str, Any]) -> int:
    """A row has a problem, steps and a label. Native rows do too, so the score is low without `final_answer_correct`."""
    return has(row, "problem", "steps", "label", "final_answer_correct") or min(1, has(row, "problem", "steps", "label"))


def _read_processbench(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. `generator` and `final_answer_correct` become extra fields."""
    steps = source.steps()
    if source.row.get("label") is None:
        raise InputError(source.where, '"label" is missing', "it is the first wrong step or -1; rows without one are native")
    trajectory = source.trajectory(source.text("problem"), steps, label=source.first_error("label", 0, len(steps)))
    yield replace(trajectory, extra=trajectory.meta, meta={})


def _write_processbench(target: Target) -> dict[str, Any]:
    """Write the six fields of ProcessBench. `generator` and `final_answer_correct` are omitted if unknown."""
    trajectory, label = target.trajectory, target.first_error(0, -1)
    return {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "steps": trajectory.texts,
        "label": label,
        **target.own,
    }


def _read_bigbench_mistake(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. `answer` is the model's answer, `target` the gold answer."""
    steps = source.steps()
    yield source.trajectory(
        source.text("input"),
        steps,
        final_answer=source.answer("answer"),
        gold_answer=source.answer("target"),
        label=source.first_error("mistake_index", 0, len(steps)),
    )


def _write_bigbench_mistake(target: Target) -> dict[str, Any]:
    """Write the five fields of BIG-Bench Mistake."""
    trajectory = target.trajectory
    return {
        "input": trajectory.problem,
        "steps": trajectory.texts,
        "target": trajectory.gold_answer,
        "answer": trajectory.final_answer,
        "mistake_index": target.first_error(0, None),
    }


def _read_stepverify(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The teacher's dialogue and explanation go to `meta`."""
    steps = source.steps("student_incorrect_solution")
    yield source.trajectory(source.text("problem"), steps, label=source.first_error("incorrect_index", 0, len(steps)))


def _read_who_and_when(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Each message of the history is a step, prefixed with the name of its agent."""
    history = source.get("history")
    if not isinstance(history, list) or not history or not all(isinstance(turn, dict) for turn in history):
        raise source.error("history", "it must be a list of messages")
    steps = tuple(Step(f"{turn.get('name') or turn.get('role')}: {turn.get('content')}") for turn in history)
    yield source.trajectory(
        source.text("question"),
        steps,
        id=source.id("question_ID"),
        gold_answer=source.answer("ground_truth"),
        label=source.first_error("mistake_step", 0, len(steps)),
    )


_NESTED, _FLAT, _FIRST = "model_output_step_format", "model_output_steps", "model_output_solution_first_error_step"
_CORRECT = "model_output_solution_correctness"


def _score_reasoneval(row: Mapping[str, Any]) -> int:
    """A row has the steps of a model's output with a first error or ratings, or a perturbed hypothesis."""
    layouts = ((_NESTED, _FIRST), (_FLAT, _FIRST), (_NESTED, "rating"), ("hypothesis_steps", "reference_steps", "tags"))
    return max(3 * has(row, "question", *layout) for layout in layouts)


def _read_reasoneval(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Judge outputs in MR-GSM8K's result files go to `meta`."""
    steps, row = _reasoneval_steps(source), source.row
    label: int | None = None
    labels: tuple[StepLabel, ...] | None = None
    if "rating" in row:
        labels = source.labels("rating", len(steps), RATINGS)
    elif "tags" in row:
        label = source.first_error("tags", 0, len(steps))
    else:
        label = -1 if row.get(_FIRST) == "N/A" else source.first_error(_FIRST, 1, len(steps))
    source.drop("id", "uuid", _NESTED, _FLAT, _FIRST, "rating", "hypothesis_steps", "tags")
    yield source.trajectory(
        source.text("question"),
        steps,
        id=source.id("uuid" if "uuid" in row else "id"),
        gold_answer=source.answer("ground_truth_answer"),
        label=label,
        step_labels=labels,
    )


def _write_reasoneval(target: Target) -> dict[str, Any]:
    """Write an MR-MATH row."""
    trajectory, first = target.trajectory, target.first_error(1, "N/A")
    return {
        "id": trajectory.id,
        "question": trajectory.problem,
        "ground_truth_answer": trajectory.gold_answer,
        **target.own,
        _NESTED: [[step] for step in trajectory.texts],
        _CORRECT: "correct" if first == "N/A" else "wrong",
        _FIRST: first,
    }


def _reasoneval_steps(source: Source) -> tuple[Step, ...]:
    """The steps of a row; a step may be a list of its sentences."""
    nested = source.row.get(_NESTED)
    if not isinstance(nested, list) or not nested:
        return source.steps("hypothesis_steps" if "hypothesis_steps" in source.row else _FLAT)
    return tuple(Step("\n".join(map(str, part)) if isinstance(part, list) else str(part)) for part in nested)


_MRBEN_STEPS, _MRBEN_FIRST = "Model_Solution_Steps", "Model_Solution_First_Error_Step"


def _score_mrben(row: Mapping[str, Any]) -> int:
    """A row is one solution record, or an object whose values are all lists of records."""
    if _MRBEN_STEPS in row:
        return 10
    lists = list(row.values())[:5]
    return 10 if lists and all(isinstance(item, list) and item and _is_mrben_record(item[0]) for item in lists) else 0


def _is_mrben_record(item: Any) -> bool:
    return isinstance(item, dict) and _MRBEN_STEPS in item


def _read_mrben(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory per model solution. Code is split into its non-blank lines."""
    groups = [[source.row]] if _MRBEN_STEPS in source.row else source.row.values()
    for group in groups:
        for row in group if isinstance(group, list) else [group]:
            if not _is_mrben_record(row):
                raise InputError(source.where, f"a solution is {describe(row)}", f'it must be an object with "{_MRBEN_STEPS}"')
            where = f"{source.where} ({str(row.get('Question_UUID'))[:40]})"
            yield _mrben_solution(Source(row, where, source.options))


def _mrben_solution(source: Source) -> Trajectory:
    row, text = source.row, source.row.get(_MRBEN_STEPS)
    code = isinstance(text, str)
    steps = (
        tuple(Step(line) for line in text.split("\n") if line.strip()) if isinstance(text, str) else source.steps(_MRBEN_STEPS)
    )
    if not steps:
        raise InputError(source.where, f'"{_MRBEN_STEPS}" is empty', "it must hold the solution")
    problem = source.text("Question")
    if options := source.get("Options"):
        problem += "\n" + str(options).strip()
    gold, modified = source.answer("Ground_Truth_Answer"), source.answer("Ground_Truth_Answer_Modified")
    source.used.discard("Ground_Truth_Answer_Modified")  # stays in `meta`
    source.drop("Question_UUID", _MRBEN_STEPS, _MRBEN_FIRST)
    return source.trajectory(
        problem,
        steps,
        id="-".join(str(row[key]) for key in ("Question_UUID", "Sampled_Model") if row.get(key)),
        gold_answer=modified or gold or None,
        label=_mrben_label(source, [step.text for step in steps], code),
        meta={_MRBEN_FIRST: row.get(_MRBEN_FIRST)} if code else {},
    )


def _mrben_label(source: Source, steps: Sequence[str], code: bool) -> int | None:
    first = source.row.get(_MRBEN_FIRST)
    if first == "N/A" or source.row.get("Model_Solution_Correctness") == "correct":
        return -1
    if not code:
        return source.first_error(_MRBEN_FIRST, 1, len(steps))
    # The annotators copied the incorrect line, so a blank or repeated line leaves its position unknown.
    lines = [line.strip() for line in str(first).split("\n") if line.strip()]
    places = [index for index, step in enumerate(steps) if lines and step.strip() == lines[0]]
    return places[0] if len(places) == 1 else None


FORMATS = {
    "processbench": Format(
        read=_read_processbench, write=_write_processbench, score=_score_processbench, **about("processbench")
    ),
    "bigbench-mistake": Format(read=_read_bigbench_mistake, write=_write_bigbench_mistake, **about("bigbench-mistake")),
    "stepverify": Format(read=_read_stepverify, **about("stepverify")),
    "who-and-when": Format(read=_read_who_and_when, **about("who-and-when")),
    "reasoneval": Format(read=_read_reasoneval, write=_write_reasoneval, score=_score_reasoneval, **about("reasoneval")),
    "mrben": Format(read=_read_mrben, score=_score_mrben, **about("mrben")),
}
