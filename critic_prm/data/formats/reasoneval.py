"""ReasonEval (GAIR) and MR-GSM8K: first errors (MR-MATH), PRM800K redundancy ratings, and perturbed solutions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target, has
from critic_prm.data.trajectory import Step, StepLabel, Trajectory

_NESTED, _FLAT, _FIRST = "model_output_step_format", "model_output_steps", "model_output_solution_first_error_step"
_CORRECT = "model_output_solution_correctness"
_RATINGS: Mapping[Any, StepLabel] = {1: 1.0, 0: "neutral", -1: 0.0}


def score(row: Mapping[str, Any]) -> int:
    """A row has the steps of a model's output with a first error or ratings, or a perturbed hypothesis."""
    layouts = ((_NESTED, _FIRST), (_FLAT, _FIRST), (_NESTED, "rating"), ("hypothesis_steps", "reference_steps", "tags"))
    return max(3 * has(row, "question", *layout) for layout in layouts)


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Judge outputs in MR-GSM8K's result files go to `meta`."""
    steps, row = _steps(source), source.row
    label: int | None = None
    labels: tuple[StepLabel, ...] | None = None
    if "rating" in row:
        labels = source.labels("rating", len(steps), _RATINGS)
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


def write(target: Target) -> dict[str, Any]:
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


def _steps(source: Source) -> tuple[Step, ...]:
    """The steps of a row; a step may be a list of its sentences."""
    nested = source.row.get(_NESTED)
    if not isinstance(nested, list) or not nested:
        return source.steps("hypothesis_steps" if "hypothesis_steps" in source.row else _FLAT)
    return tuple(Step("\n".join(map(str, part)) if isinstance(part, list) else str(part)) for part in nested)


FORMAT = Format(
    sample={"question": "p", _NESTED: [["s"]], _FIRST: 1},
    read=read,
    write=write,
    score=score,
    labels=f'`{_FIRST}`: number, "N/A" if all correct; or `rating` per step; or `tags`, from 0',
    index_base=1,
    neutral="rating 0 (redundant)",
    keeps=("id", "gold_answer", f"meta.{_CORRECT}"),
    own=("generator", "model_output", "model_output_answer_correctness"),
)
