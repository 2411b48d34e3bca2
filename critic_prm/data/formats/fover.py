"""FoVer (psunlpgroup/FoVer): solutions with a true/false label per step, and a chat that asks for each label.

{"problem": "p", "solution_steps": ["s"], "error_labels": [true],
 "messages": [{"role": "user", "content": "p\\n\\ns"}, {"role": "assistant", "content": "correct"}]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import (
    Convention,
    Dropped,
    Options,
    count,
    has,
    id_of,
    known,
    rest,
    say,
    text_of,
    texts_of,
    unsaid,
)
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError, UsageError

CONVENTION = Convention(labels="`error_labels`: true where the step is right (sic), null where unknown", after_error="labelled")
_OWN = ("base_dataset", "hypothesis_formula", "facts_formula", "problem_witout_definition")
_MADE = ("messages", "messages_for_prediction")


def score(row: Mapping[str, Any]) -> int:
    """A row has a problem, solution steps and error labels."""
    return 2 * has(row, "problem", "solution_steps", "error_labels")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The chats are derived from the other fields, so they are not kept."""
    row, where = record.data, record.where
    steps = texts_of(row, "solution_steps", where)
    labels = row.get("error_labels")
    if not isinstance(labels, list) or len(labels) != len(steps):
        size = len(labels) if isinstance(labels, list) else say(labels)
        raise InputError(
            where, f'"error_labels" is {size}, but there are {len(steps)} steps', "each step needs a label or null"
        )
    yield Trajectory(
        id=id_of(row),
        problem=text_of(row, "problem", where),
        steps=steps,
        step_labels=tuple(_label(label, index, where) for index, label in enumerate(labels)),
        meta=rest(row, ("id", "problem", "solution_steps", "error_labels", *_MADE)),
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write one row. `messages` holds the chat for the longest labelled prefix, one user turn per step answered
    by its label."""
    gold = trajectory.gold()
    if all(label is None for label in gold):
        raise Dropped("no step has a label")
    if "neutral" in gold:
        raise UsageError(
            f"{trajectory.id}: step {gold.index('neutral')} is neutral, which fover cannot say;"
            " choose --neutral good, --neutral bad or --neutral drop"
        )
    count("soft labels (rounded at 0.5)", sum(label not in (0.0, 1.0, None) for label in gold), lost)
    labels = [None if label is None else isinstance(label, float) and label >= 0.5 for label in gold]
    turns = []
    for index, (text, label) in enumerate(zip(trajectory.texts, labels, strict=True)):
        if label is None:
            break
        shown = text if index else f"{trajectory.problem}\n\n{text}"
        turns += [{"role": "user", "content": shown}, {"role": "assistant", "content": "correct" if label else "incorrect"}]
    own = known(trajectory, *_OWN)
    unsaid(trajectory, {"id", *(f"meta.{key}" for key in own), *own}, lost)
    return {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "solution_steps": trajectory.texts,
        "error_labels": labels,
        "messages": turns,
        **own,
    }


def _label(value: Any, index: int, where: str) -> StepLabel:
    if value is None:
        return None
    if isinstance(value, bool | int) and value in (0, 1):
        return float(value)
    raise InputError(where, f"error label {index} is {say(value)}", "it is true (the step is right), false or null")
