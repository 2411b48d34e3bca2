"""ReasonEval (GAIR) and MR-GSM8K: first errors (MR-MATH), PRM800K redundancy ratings, and perturbed solutions.

{"question": "p", "model_output_step_format": [["s"]], "model_output_solution_first_error_step": 1}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Options,
    answer_of,
    beyond_first_error,
    first_error_from,
    first_error_to,
    has,
    known,
    rating,
    rest,
    say,
    text_of,
    texts_of,
    unsaid,
)
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(
    labels='`model_output_solution_first_error_step`: number, "N/A" when right; or `rating` per step; or `tags`, from 0',
    index_base=1,
    neutral="rating 0 (redundant)",
)
_NESTED, _FLAT, _FIRST = "model_output_step_format", "model_output_steps", "model_output_solution_first_error_step"
_RATINGS: Mapping[Any, StepLabel] = {1: 1.0, 0: "neutral", -1: 0.0}
_USED = ("id", "uuid", "question", "ground_truth_answer", _NESTED, _FLAT, _FIRST, "rating", "hypothesis_steps", "tags")


def score(row: Mapping[str, Any]) -> int:
    """A row has the steps of a model's output with a first error or ratings, or a perturbed hypothesis."""
    layouts = ((_NESTED, _FIRST), (_FLAT, _FIRST), (_NESTED, "rating"), ("hypothesis_steps", "reference_steps", "tags"))
    return max(3 * has(row, "question", *layout) for layout in layouts)


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. Judge outputs in MR-GSM8K's result files go to `meta`."""
    row, where = record.data, record.where
    steps = _steps(row, where)
    label: int | None = None
    labels: tuple[StepLabel, ...] | None = None
    if "rating" in row:
        ratings = row["rating"]
        if not isinstance(ratings, list) or len(ratings) != len(steps):
            raise InputError(where, f'"rating" is {say(ratings)}', f"it needs 1, 0 or -1 for each of {len(steps)} steps")
        labels = tuple(rating(value, _RATINGS, where, f"the rating of step {n}") for n, value in enumerate(ratings))
    elif "tags" in row:
        label = first_error_from(row["tags"], options.base(0), len(steps), where, "tags")
    else:
        first = None if row.get(_FIRST) == "N/A" else row.get(_FIRST)
        label = first_error_from(first, options.base(1), len(steps), where, _FIRST)
    identity = row.get("uuid", row.get("id"))
    yield Trajectory(
        id="" if identity is None else str(identity),
        problem=text_of(row, "question", where),
        steps=steps,
        gold_answer=answer_of(row, "ground_truth_answer"),
        label=label,
        step_labels=labels,
        meta=rest(row, _USED),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write an MR-MATH row."""
    first = first_error_to(trajectory, options.base(1), "N/A")
    own = known(trajectory, "generator", "model_output", "model_output_answer_correctness")
    beyond_first_error(trajectory, lost)
    unsaid(trajectory, {"id", "gold_answer", *own, *(f"meta.{key}" for key in own), f"meta.{_CORRECT}"}, lost)
    return {
        "id": trajectory.id,
        "question": trajectory.problem,
        "ground_truth_answer": trajectory.gold_answer,
        **own,
        _NESTED: [[step] for step in trajectory.texts],
        _CORRECT: "correct" if first == "N/A" else "wrong",
        _FIRST: first,
    }


_CORRECT = "model_output_solution_correctness"


def _steps(row: Mapping[str, Any], where: str) -> tuple[Step, ...]:
    """The steps of a row; a step may be a list of its sentences."""
    nested = row.get(_NESTED)
    if not isinstance(nested, list) or not nested:
        return texts_of(row, "hypothesis_steps" if "hypothesis_steps" in row else _FLAT, where)
    return tuple(Step("\n".join(map(str, part)) if isinstance(part, list) else str(part)) for part in nested)
