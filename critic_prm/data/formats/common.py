"""Shared by all format modules: conversion options, format conventions, field parsers and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal, Protocol, get_args

from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError, UsageError

Neutral = Literal["keep", "good", "bad", "drop"]
AfterError = Literal["null", "keep"]
Alternatives = Literal["chosen", "all"]
HumanSteps = Literal["null", "good"]


@dataclass(frozen=True, slots=True)
class Options:
    """Conversion options for conventions on which datasets disagree. They are applied once, on import or export."""

    neutral: Neutral = "keep"
    """A neutral step stays neutral ("keep"), counts as correct ("good") or incorrect ("bad"), or loses its label ("drop")."""
    index_base: int | None = None
    """Number of the first step in the file, 0 or 1. None uses the format's own base."""
    after_error: AfterError = "null"
    """Labels after the first error become null ("null") or stay as they are in the source ("keep")."""
    alternatives: Alternatives = "chosen"
    """If a step has several candidates, read only the "chosen" path, or one extra trajectory per candidate ("all")."""
    human_steps: HumanSteps = "null"
    """Steps written by a labeler in place of a model's step are unlabelled ("null") or correct ("good") (PRM800K phase 1)."""

    def base(self, own: int) -> int:
        """The index base to use: `index_base` if set, else the format's own base."""
        return own if self.index_base is None else self.index_base


def options_from(chosen: Mapping[str, str], index_base: int | None = None) -> Options:
    """Build Options from user-supplied strings. Raises UsageError, listing the valid choices, for an unknown one."""
    for name, value in chosen.items():
        if value not in _CHOICES[name]:
            raise UsageError(f"--{name.replace('_', '-')} {value!r} is no choice; it is {', '.join(_CHOICES[name])}")
    if index_base not in (None, 0, 1):
        raise UsageError(f"--index-base {index_base} is no choice; it is 0 or 1")
    words: dict[str, Any] = dict(chosen)
    return Options(**words, index_base=index_base)


_CHOICES = {
    "neutral": get_args(Neutral),
    "after_error": get_args(AfterError),
    "alternatives": get_args(Alternatives),
    "human_steps": get_args(HumanSteps),
}


@dataclass(frozen=True, slots=True)
class Convention:
    """How a format labels steps, in words for the table of formats. `index_base` is None if steps have no numbers."""

    labels: str
    index_base: int | None = None
    neutral: str = "cannot be said"
    after_error: str = "not labelled"


class Format(Protocol):
    """Protocol of a format module. Read-only formats have no `write`."""

    CONVENTION: Convention

    def score(self, row: Mapping[str, Any]) -> int:
        """Number of fields of this format found in the row; 0 if the row is not in this format."""

    def read(self, record: Record, options: Options) -> Iterable[Trajectory]:
        """Parse the trajectories of one record with all labels of the source. An id of "" means the source has none."""


Write = Callable[[Trajectory, Options, Counter[str]], dict[str, Any]]


class Dropped(Exception):
    """A row that is deliberately skipped. The message is the reason and the key under which it is counted."""


@dataclass(slots=True)
class Report:
    """Statistics of a conversion, updated while it runs."""

    source: str = ""
    target: str = ""
    path: str = ""
    read: int = 0
    """Records read from the source."""
    written: int = 0
    """Rows written to the target."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Rows skipped, by reason."""
    hidden: Counter[str] = field(default_factory=Counter)
    """Labels removed by the options."""
    unsaid: Counter[str] = field(default_factory=Counter)
    """Content that the target format cannot represent, by field."""

    def lines(self) -> list[str]:
        """The report as text, one line per part. Empty parts are omitted."""
        parts = (
            ("left out", self.dropped),
            ("hidden by the options", self.hidden),
            (f"{self.target} cannot say", self.unsaid),
        )
        said = [f"{what}: {', '.join(f'{n} {name}' for name, n in some.most_common())}" for what, some in parts if some]
        source = self.source or "no records"
        return [f"read {self.read} rows ({source}), wrote {self.written} ({self.target}) to {self.path}", *said]


def has(row: Mapping[str, Any], *keys: str) -> int:
    """The number of `keys` if the row has all of them, else 0. A format that requires more fields is a more certain match."""
    return len(keys) if all(key in row for key in keys) else 0


def rest(row: Mapping[str, Any], used: Container[str]) -> dict[str, Any]:
    """The fields of a source row that were not used; they are kept in `meta`."""
    return {key: value for key, value in row.items() if key not in used}


def id_of(row: Mapping[str, Any], key: str = "id") -> str:
    """The id of a source row, or "" if it has none."""
    return "" if row.get(key) is None else str(row[key])


def text_of(row: Mapping[str, Any], key: str, where: str) -> str:
    """A required text field. Raises InputError."""
    value = row.get(key)
    if isinstance(value, str) and value.strip():
        return value
    raise InputError(where, f'"{key}" is {say(value)}', "it must be text")


def texts_of(row: Mapping[str, Any], key: str, where: str) -> tuple[Step, ...]:
    """A required, non-empty list of step texts. Raises InputError."""
    value = row.get(key)
    if not isinstance(value, list) or not value:
        raise InputError(where, f'"{key}" is {say(value)}', "it must be a list with the text of each step")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise InputError(where, f'"{key}" holds {say(item)} at step {index}', "every step is text")
    return tuple(Step(item) for item in value)


def answer_of(row: Mapping[str, Any], key: str) -> str | None:
    """An optional answer as text; numbers are converted."""
    value = row.get(key)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def first_error_from(value: Any, base: int, steps: int, where: str, key: str) -> int:
    """Convert a step number of the source to a 0-based first error; -1 for null or a number below the base.

    Raises InputError for a value that is not a number and for a step that does not exist.
    """
    if value is None:
        return -1
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(where, f'"{key}" is {say(value)}', "it must be the number of the first wrong step")
    if value < base:
        return -1
    if value - base >= steps:
        mend = "are its steps counted from 1? (--index-base 1)" if base == 0 and value == steps else "check the steps"
        raise InputError(where, f'"{key}" is {value}, but there are {steps} steps counted from {base}', mend)
    return value - base


def first_error_to(trajectory: Trajectory, base: int, correct: Any) -> Any:
    """The first error in the numbering of the target, or `correct` if there is none. Raises Dropped if it is unknown."""
    first = trajectory.first_error()
    if first is None:
        raise Dropped("the first error is unknown")
    return correct if first < 0 else first + base


def settle(trajectory: Trajectory, options: Options, lost: Counter[str]) -> Trajectory:
    """Apply `neutral` and `after_error` to the step labels and update `label`. `lost` counts the labels removed."""
    labels = trajectory.step_labels
    if labels is None:
        return trajectory
    chosen: dict[Neutral, StepLabel] = {"keep": "neutral", "good": 1.0, "bad": 0.0, "drop": None}
    if options.neutral != "keep" and "neutral" in labels:
        labels = tuple(chosen[options.neutral] if label == "neutral" else label for label in labels)
        trajectory = replace(trajectory, step_labels=labels, label=None)
    first = trajectory.first_error()
    if first is not None and options.after_error == "null" and 0 <= first < len(labels) - 1:
        hidden = sum(label is not None for label in labels[first + 1 :])
        if hidden:
            lost["labels after the first error"] += hidden
            labels = (*labels[: first + 1], *((None,) * (len(labels) - first - 1)))
            trajectory = replace(trajectory, step_labels=labels)
    return trajectory if trajectory.label == first else replace(trajectory, label=first)


def judged(trajectory: Trajectory, target: str, lost: Counter[str]) -> list[bool]:
    """Hard labels for the longest labelled prefix of the steps. `lost` counts the steps cut and the soft labels rounded.

    Raises Dropped if the first step has no label, and UsageError for a neutral step.
    """
    labels = list(takewhile(lambda label: label is not None, trajectory.gold()))
    if not labels:
        raise Dropped("no step has a label")
    if "neutral" in labels:
        raise UsageError(
            f"{trajectory.id}: step {labels.index('neutral')} is neutral, which {target} cannot say;"
            " choose --neutral good, --neutral bad or --neutral drop"
        )
    count("steps without a label", len(trajectory.steps) - len(labels), lost)
    count("soft labels (rounded at 0.5)", sum(label not in (0.0, 1.0) for label in labels), lost)
    return [isinstance(label, float) and label >= 0.5 for label in labels]


def beyond_first_error(trajectory: Trajectory, lost: Counter[str]) -> None:
    """Count the step labels that are lost if the target stores only a first error."""
    implied = replace(trajectory, step_labels=None, label=trajectory.first_error()).gold()
    count("step_labels", sum(a != b for a, b in zip(trajectory.gold(), implied, strict=True)), lost)


def unsaid(trajectory: Trajectory, said: Container[str], lost: Counter[str]) -> None:
    """Count the fields of a trajectory that are not in `said`: field names, "meta.<key>" and keys of extra fields."""
    fields: dict[str, Any] = {
        "id": trajectory.id,
        "observation": any(step.observation is not None for step in trajectory.steps),
        "final_answer": trajectory.final_answer is not None,
        "gold_answer": trajectory.gold_answer is not None,
        "images": trajectory.images,
        "tools": trajectory.tools,
    }
    for name, value in fields.items():
        if value and name not in said:
            lost[name] += 1
    for key in trajectory.meta:
        if f"meta.{key}" not in said:
            lost[f"meta.{key}"] += 1
    for key in trajectory.extra:
        if key not in said:
            lost[key] += 1


def count(what: str, number: int, lost: Counter[str]) -> None:
    """Add `number` to the count of `what`, unless it is 0."""
    if number:
        lost[what] += number


def known(trajectory: Trajectory, *keys: str) -> dict[str, Any]:
    """Those of `keys` that an earlier import stored in `meta` or in the extra fields."""
    both = {**trajectory.extra, **trajectory.meta}
    return {key: both[key] for key in keys if key in both}


def rating(value: Any, meanings: Mapping[Any, StepLabel], where: str, what: str) -> StepLabel:
    """The label that a rating stands for. Raises InputError for an unknown rating."""
    if isinstance(value, int | float | None) and value in meanings:
        return meanings[value]
    choices = ", ".join("null" if choice is None else str(choice) for choice in meanings)
    raise InputError(where, f"{what} is {say(value)}", f"it must be one of {choices}")


def say(value: Any) -> str:
    """Short description of an invalid value, for an error message."""
    if value is None:
        return "missing"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
