"""Read and write label files: rows with a trajectory, its label and the critic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from critic_prm.data.judgement import STATUSES, Judgement, Label, Status, judgement_from_json, judgement_to_json
from critic_prm.data.records.reading import read_records
from critic_prm.data.trajectory import Trajectory, trajectory_from_json, trajectory_to_json
from critic_prm.errors import InputError

LABEL_FIELDS = ("p_correct", "p_from", "votes", "first_error", "status", "judgements", "critic")
"""Fields that a label file adds to a native row. A gold label, if any, stays under "label" and "step_labels"."""

SHADOWED = "before_labelling"
"""Input fields whose names collide with label fields are stored under this key, so that no input data is lost."""


UNLABELLED = "label the file first: critic-prm label FILE -o LABELS"


@dataclass(frozen=True, slots=True)
class LabelledTrajectory:
    """One row of a label file. `critic` is the card of the critic: provider, model, style, fingerprint, sampling."""

    trajectory: Trajectory
    label: Label
    critic: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"LabelledTrajectory({self.trajectory.id!r}, {self.label!r})"

    def _repr_html_(self) -> str:
        from critic_prm.data.html import trajectory_html

        return trajectory_html(self.trajectory, self.label)


def label_row(trajectory: Trajectory, label: Label, card: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON row of a label file: all input fields, then the label.

    If the input is already a label-file row, the new label replaces the old one.
    """
    row = trajectory_to_json(trajectory)
    if not is_labelled(row) and (shadowed := {name: row[name] for name in LABEL_FIELDS if name in row}):
        row[SHADOWED] = shadowed
    for name in LABEL_FIELDS:
        row.pop(name, None)
    return {**row, **label_to_json(label), "critic": dict(card)}


def label_to_json(label: Label) -> dict[str, Any]:
    """The label's own fields. `p_correct` and `votes` have one entry per step, null and [0, 0] for unjudged steps."""
    return {
        "p_correct": list(label.p_correct),
        "p_from": label.p_from,
        "votes": [list(vote) for vote in label.votes],
        "first_error": label.first_error,
        "status": label.status,
        "judgements": [judgement_to_json(judgement) for judgement in label.judgements],
    }


def label_from_json(row: Mapping[str, Any], steps: int, where: str) -> Label:
    """Parse the label of a row with `steps` steps. `judgements` may be missing (a slim file); other fields are required.
    Raises InputError."""
    status = row.get("status")
    if status not in STATUSES:
        raise InputError(where, f'"status" is {status!r}', f"a label file says one of {', '.join(STATUSES)}")
    p_correct = row.get("p_correct")
    if (
        not isinstance(p_correct, list)
        or len(p_correct) != steps
        or not all(p is None or _is_probability(p) for p in p_correct)
    ):
        raise InputError(
            where, f'"p_correct" is {p_correct!r:.60}', f"it needs a number from 0 to 1 or null for each of {steps} steps"
        )
    votes = row.get("votes")
    if not isinstance(votes, list) or len(votes) != steps or not all(_is_vote(vote) for vote in votes):
        raise InputError(where, f'"votes" is {votes!r:.60}', f"it needs [k, n] with 0 <= k <= n for each of {steps} steps")
    first = row.get("first_error")
    if first is not None and (not isinstance(first, int) or isinstance(first, bool) or not -1 <= first < steps):
        raise InputError(where, f'"first_error" is {first!r:.60}', f"it is a step, 0 to {steps - 1}, -1 or null")
    return Label(
        p_correct=tuple(None if p is None else float(p) for p in p_correct),
        votes=tuple((k, n) for k, n in votes),
        first_error=first,
        status=status,
        judgements=_judgements(row.get("judgements") or (), steps, where),
        p_from=row.get("p_from"),
    )


def labelled_from_json(row: Any, where: str) -> LabelledTrajectory:
    """Parse one row of a label file. `where` is the file and line for error messages. Raises InputError."""
    trajectory = trajectory_from_json(row, where)
    label = label_from_json(row, len(trajectory.steps), where)
    card = row.get("critic") or {}
    if not isinstance(card, dict):
        raise InputError(where, f'"critic" is {card!r:.60}', "it is the card of who judged, an object")
    return LabelledTrajectory(without_labels(trajectory), label, card)


def is_labelled(row: Mapping[str, Any]) -> bool:
    """Whether a row, or a trajectory's extra fields, are those of a label file."""
    return "p_correct" in row and "votes" in row and "status" in row


def without_labels(trajectory: Trajectory) -> Trajectory:
    """The trajectory as it was before labelling, without the fields a label file added. Other trajectories are returned
    unchanged."""
    if not is_labelled(trajectory.extra):
        return trajectory
    extra = {name: value for name, value in trajectory.extra.items() if name not in (*LABEL_FIELDS, SHADOWED)}
    shadowed = trajectory.extra.get(SHADOWED)
    if isinstance(shadowed, Mapping):
        extra.update(shadowed)
    elif shadowed is not None:
        extra[SHADOWED] = shadowed
    return replace(trajectory, extra=extra)


def read_labels(path: str | Path, fix: str = UNLABELLED) -> Iterator[LabelledTrajectory]:
    """Stream a label file, one row at a time. Raises InputError with file and line, and `fix` for a row without labels."""
    for record in read_records(path):
        if isinstance(record.data, dict) and not is_labelled(record.data):
            raise _unlabelled(record.data, record.where, fix)
        yield labelled_from_json(record.data, record.where)


def _unlabelled(row: Mapping[str, Any], where: str, fix: str) -> InputError:
    if "problem" in row and "steps" in row:
        return InputError(where, "this solution has no labels", fix)
    shown = ", ".join(sorted(row)[:8]) + (", ..." if len(row) > 8 else "")
    return InputError(where, f"this is not a row of a label file; it has {shown}", fix)


def _judgements(rows: Iterable[Any], steps: int, where: str) -> tuple[Judgement, ...]:
    try:
        judgements = tuple(judgement_from_json(row) for row in rows)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            where, f'"judgements" cannot be read ({type(error).__name__}: {error})', "label the row again"
        ) from None
    for judgement in judgements:
        known: Status = judgement.status
        if known not in STATUSES or any(not _is_index(v.step, steps) for v in judgement.verdicts):
            raise InputError(where, f"judgement {judgement.sample} has an unknown status or step", "label the row again")
    return judgements


def _is_index(value: Any, steps: int) -> bool:
    return isinstance(value, int) and 0 <= value < steps


def _is_probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_vote(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(x, int) for x in value) and 0 <= value[0] <= value[1]
