"""Define what a dataset format is, and give format modules typed access to the rows they read and write."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from critic_prm.data.segment.rows import Segment, StepCounts
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option, check_fields

if TYPE_CHECKING:
    from critic_prm.data.records.reading import Record

Neutral = Literal["keep", "good", "bad", "drop"]
Corrected = Literal["keep", "flip", "drop"]
AfterError = Literal["null", "keep"]
Alternatives = Literal["chosen", "all"]
HumanSteps = Literal["null", "good"]

IndexBase = Annotated[int | None, Option(min=0, max=1)]
MapOption = Annotated[tuple[str, ...], Option(("--map",), metavar="TARGET=FIELD,...")]

NUMBER = "a number from 0 to 1"
RATINGS: Mapping[Any, StepLabel] = {1: 1.0, 0: "neutral", -1: 0.0}
"""The labels that annotators' ratings stand for."""


@dataclass(frozen=True, slots=True)
class Options:
    """Conversion options for conventions on which datasets disagree. They are applied once, on import or export."""

    neutral: Neutral = "keep"
    """Neutral steps: keep, good or bad (treat as such), or drop (remove the label)."""
    corrected: Corrected | None = None
    """Steps that the solution corrects later: keep (as correct if OUT has no such label), flip (incorrect, but not the first
    error) or drop (remove the label); default: keep for native files, else drop."""
    index_base: IndexBase = None
    """Number of the first step in the gold labels, if it differs from the format's."""
    after_error: AfterError = "null"
    """Labels of IN after the first error: null (unjudged) or keep."""
    alternatives: Alternatives = "chosen"
    """Alternative steps: chosen (only the chosen path) or all (one trajectory each)."""
    human_steps: HumanSteps = "null"
    """Label of steps that an annotator wrote without rating them: null or good."""
    map: MapOption = ()
    """Read a field under another name, such as problem=prompt or steps=log.reasoning; may be repeated."""
    segment: Segment = "auto"
    """How to split a solution text into steps; auto chooses by its layout and keeps steps that are given."""

    def __post_init__(self) -> None:
        check_fields(self)


class Dropped(Exception):
    """A row that is deliberately skipped. The message is the reason and the key under which it is counted."""


@dataclass(frozen=True, slots=True)
class Source:
    """One row of a file. Fields that are read through its methods count as used; `trajectory` keeps the others in `meta`."""

    row: Mapping[str, Any]
    where: str
    """The file and line, for error messages."""
    options: Options = field(default_factory=Options)
    used: set[str] = field(default_factory=set)

    def get(self, key: str) -> Any:
        """The value of a field, None if it is missing."""
        self.used.add(key)
        return self.row.get(key)

    def drop(self, *keys: str) -> None:
        """Leave fields out that the format derives from others."""
        self.used.update(keys)

    def error(self, key: str, fix: str) -> InputError:
        """The error for an invalid field. `fix` says what it must be."""
        return InputError(self.where, f'"{key}" is {describe(self.row.get(key))}', fix)

    def text(self, key: str) -> str:
        """A required text. Raises InputError."""
        value = self.get(key)
        if isinstance(value, str) and value.strip():
            return value
        raise self.error(key, "it must be text")

    def steps(self, key: str = "steps") -> tuple[Step, ...]:
        """A required, non-empty list of step texts. Raises InputError."""
        value = self.get(key)
        if not isinstance(value, list) or not value:
            raise self.error(key, "it must be a list with the text of each step")
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise InputError(self.where, f'"{key}" contains {describe(item)} at step {index}', "every step is text")
        return tuple(Step(item) for item in value)

    def answer(self, key: str) -> str | None:
        """An optional answer as text; numbers are converted."""
        value = self.get(key)
        if isinstance(value, str):
            return value
        return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def id(self, key: str = "id") -> str:
        """The row's own id, "" if it has none."""
        value = self.get(key)
        return "" if value is None else str(value)

    def first_error(self, key: str, base: int, steps: int, correct: int = -1) -> int:
        """The 0-based first error from a step number counted from `base`; -1 for null or `correct`.

        Raises InputError for a value that is not a number and for a step that does not exist.
        """
        value, base = self.get(key), self.base(base)
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            value = int(value)
        if value is None or (value == correct and not isinstance(value, bool)):
            return -1
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(key, "it must be the number of the first wrong step")
        if value < base:
            fix = "are they counted from 0? (--index-base 0)" if value == 0 else f"{correct} or null means that none is wrong"
            raise InputError(self.where, f'"{key}" is {value}, but the steps are counted from {base}', fix)
        if value - base >= steps:
            fix = "are its steps counted from 1? (--index-base 1)" if base == 0 and value == steps else "check the steps"
            raise InputError(self.where, f'"{key}" is {value}, but there are {steps} steps counted from {base}', fix)
        return value - base

    def base(self, own: int) -> int:
        """The number of the first step: the option if set, else the format's `own`."""
        return own if self.options.index_base is None else self.options.index_base

    def labels(self, key: str, steps: int, meanings: Mapping[Any, StepLabel], numbers: bool = False) -> tuple[StepLabel, ...]:
        """One label per step from a list of values. `meanings` maps values to labels; with `numbers`, P(correct) is read too.

        Raises InputError for a wrong number of labels and for an unknown value.
        """
        values = self.get(key)
        if not isinstance(values, list) or len(values) != steps:
            size = len(values) if isinstance(values, list) else describe(values)
            raise InputError(self.where, f'"{key}" is {size}, but there are {steps} steps', "each step needs a label")
        return tuple(self.label(value, meanings, f"label {index} of {key!r}", numbers) for index, value in enumerate(values))

    def label(self, value: Any, meanings: Mapping[Any, StepLabel], what: str, numbers: bool = False) -> StepLabel:
        """The label that one value stands for. `what` names it. Raises InputError for an unknown value."""
        if isinstance(value, str | int | float | None) and value in meanings:
            return meanings[value]
        if numbers and isinstance(value, bool | int | float) and 0 <= value <= 1:
            return float(value)
        choices = ["null" if choice is None else str(choice) for choice in meanings] + [NUMBER] * numbers
        raise InputError(self.where, f"{what} is {describe(value)}", f"it must be one of {', '.join(choices)}")

    def unused(self) -> dict[str, Any]:
        """The fields that were not read."""
        return {key: value for key, value in self.row.items() if key not in self.used}

    def trajectory(
        self,
        problem: str,
        steps: Iterable[Step],
        *,
        id: str | None = None,
        label: int | None = None,
        step_labels: Iterable[StepLabel] | None = None,
        final_answer: str | None = None,
        gold_answer: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Trajectory:
        """The trajectory, with the row's own id unless another is given. Unused fields and `meta` are its meta data."""
        own = self.id() if id is None else id
        return Trajectory(
            id=own,
            problem=problem,
            steps=tuple(steps),
            final_answer=final_answer,
            gold_answer=gold_answer,
            label=label,
            step_labels=None if step_labels is None else tuple(step_labels),
            meta={**self.unused(), **(meta or {})},
        )


@dataclass(slots=True)
class Target:
    """A trajectory to write as a row of the format `name`. `lost` counts what the row cannot represent."""

    trajectory: Trajectory
    name: str
    format: Format
    options: Options
    lost: Counter[str]
    kept: set[str] = field(default_factory=set)
    """Further fields that the row represents, besides the format's `keeps` and `own`."""

    @property
    def own(self) -> dict[str, Any]:
        """The format's own fields that an earlier import kept in `meta` or in the extra fields."""
        both = {**self.trajectory.extra, **self.trajectory.meta}
        return {key: both[key] for key in self.format.own if key in both}

    def base(self, own: int) -> int:
        """The number of the first step: the option if set, else the format's `own`."""
        return own if self.options.index_base is None else self.options.index_base

    def count(self, what: str, number: int) -> None:
        """Count something that is lost."""
        if number:
            self.lost[what] += number

    def first_error(self, base: int, correct: Any) -> Any:
        """The first error counted from `base`, or `correct` if there is none. Other labels are counted as lost.

        Raises Dropped if the first error is unknown.
        """
        first = self.trajectory.first_error()
        if first is None:
            raise Dropped("the first error is unknown")
        implied = replace(self.trajectory, step_labels=None, label=first).gold()
        self.count("step_labels", sum(a != b for a, b in zip(self.trajectory.gold(), implied, strict=True)))
        return correct if first < 0 else first + self.base(base)

    def labels(self, neutral: bool = True) -> tuple[StepLabel, ...]:
        """The label of every step. Soft labels are counted as lost, because the format rounds them.

        Raises Dropped if no step has a label, and UsageError for a neutral step unless the format has them (`neutral`).
        """
        gold = self.trajectory.gold()
        if all(label is None for label in gold):
            raise Dropped("no step has a label")
        return self._checked(gold, neutral)

    def hard_labels(self) -> list[bool]:
        """Hard labels for the longest labelled prefix of the steps. Steps after it are counted as lost.

        Raises Dropped if the first step has no label, and UsageError for a neutral step.
        """
        gold = tuple(takewhile(lambda label: label is not None, self.trajectory.gold()))
        if not gold:
            raise Dropped("no step has a label")
        labels = [is_good(label) for label in self._checked(gold, neutral=False)]
        self.count("steps without a label", len(self.trajectory.steps) - len(labels))
        return labels

    def _checked(self, labels: tuple[StepLabel, ...], neutral: bool) -> tuple[StepLabel, ...]:
        if not neutral and "neutral" in labels:
            raise UsageError(
                f"{self.trajectory.id}: step {labels.index('neutral')} is neutral, which {self.name} cannot represent;"
                " choose --neutral good, --neutral bad or --neutral drop"
            )
        special = (0.0, 1.0, "neutral", "corrected", None)
        self.count("soft labels (rounded at 0.5)", sum(label not in special for label in labels))
        return labels

    def count_unrepresented(self) -> None:
        """Count the fields of the trajectory that the row does not represent."""
        trajectory, represented = self.trajectory, self.kept.union(self.format.keeps)
        represented.update(self.format.own, (f"meta.{key}" for key in self.format.own))
        present = {
            "id": trajectory.id,
            "observation": any(step.observation is not None for step in trajectory.steps),
            "final_answer": trajectory.final_answer is not None,
            "gold_answer": trajectory.gold_answer is not None,
            "images": trajectory.images,
            "tools": trajectory.tools,
        }
        names = [name for name, value in present.items() if value]
        self.lost.update({*names, *(f"meta.{key}" for key in trajectory.meta), *trajectory.extra} - represented)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One dataset format. The modules of this package hold them by name in `FORMATS`, and describe them in formats.toml."""

    about: str
    """Description in one line, for the list of formats."""
    sample: Mapping[str, Any]
    """A valid row, for the documentation and the tests."""
    read: Callable[[Source], Iterable[Trajectory]]
    """Parses the trajectories of one row with all labels of the source. An id of "" means the source has none."""
    gather: Callable[[Iterator[Record], Report], Iterator[Record]] | None = None
    """Joins and drops the records of a file before they are read, where a trajectory has several: the calls of a trace."""
    write: Callable[[Target], dict[str, Any]] | None = None
    """Builds the row of a trajectory; None if the format can only be read."""
    fields: tuple[str, ...] = ()
    """Fields that every row has."""
    certainty: int = 1
    """How specific these fields are. The score of a row is this, times their number."""
    score: Callable[[Mapping[str, Any]], int] | None = None
    """Score of a row, 0 if it is not in this format, if the fields alone do not tell."""
    labels: str
    """How steps are labelled, in words for the table of formats."""
    index_base: int | None = None
    """The number of the first step, None if steps have no numbers."""
    neutral: str = "not supported"
    """How a neutral step is labelled."""
    after_error: str = "not labelled"
    """How steps after the first error are labelled."""
    step_labels: tuple[StepLabel, ...] | None = None
    """The step labels that a written row represents; None if it has only the first error."""
    keeps: tuple[str, ...] = ()
    """Fields of a trajectory that a written row represents, besides problem, steps and labels."""
    own: tuple[str, ...] = ()
    """Further fields of a row, which reading keeps in `meta` or as extra fields and writing restores."""
    explicit: bool = False
    """Whether labels after the first error are intentional, and reading itself explains what is wrong with a row."""

    def matches(self, row: Mapping[str, Any]) -> int:
        """How well a row fits this format, 0 if it does not."""
        return self.score(row) if self.score is not None else self.certainty * has(row, *self.fields)


@cache
def _descriptions() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(Path(__file__).with_name("formats.toml").read_text("utf-8"))


def about(name: str) -> dict[str, Any]:
    """The fields of a `Format` that formats.toml states."""
    described = _descriptions()[name]
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in described.items()}
    fields["sample"] = json.loads(fields["sample"])
    if "step_labels" in fields:
        fields["step_labels"] = tuple(None if label == "null" else label for label in fields["step_labels"])
    return fields


@dataclass(slots=True)
class Report:
    """Statistics of a conversion, updated while it runs."""

    source: str = ""
    target: str = ""
    path: str = ""
    steps: StepCounts = field(default_factory=StepCounts)
    """Numbers of steps, and where solution texts were split."""
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
    notes: list[str] = field(default_factory=list)
    """What the reader chose by itself and the user should know."""

    def lines(self) -> list[str]:
        """The report as text, one line per part. Empty parts are omitted."""
        parts = (
            ("left out", self.dropped),
            ("hidden by the options", self.hidden),
            (f"{self.target} cannot represent", self.unsaid),
        )
        counts = [f"{what}: {', '.join(f'{n} {name}' for name, n in some.most_common())}" for what, some in parts if some]
        source = self.source or "no records"
        return [f"read {self.read} rows ({source}), wrote {self.written} ({self.target}) to {self.path}", *self.notes, *counts]


def has(row: Mapping[str, Any], *keys: str) -> int:
    """The number of `keys` if the row has all of them, else 0. A format that requires more fields is a more certain match."""
    return len(keys) if all(key in row for key in keys) else 0


def is_good(label: StepLabel) -> bool:
    """Whether a label, rounded at 0.5, says that the step is correct."""
    return isinstance(label, float) and label >= 0.5


def rating(label: StepLabel) -> int | None:
    """The rating that stands for a label."""
    if label is None or label == "neutral":
        return None if label is None else 0
    return 1 if is_good(label) else -1


def settle(trajectory: Trajectory, options: Options, hidden: Counter[str]) -> Trajectory:
    """Apply `neutral`, `corrected` and `after_error` to the step labels and update `label`. `hidden` counts the labels removed
    or flipped."""
    labels = trajectory.step_labels
    if labels is None:
        return trajectory
    chosen: dict[Neutral, StepLabel] = {"keep": "neutral", "good": 1.0, "bad": 0.0, "drop": None}
    if options.neutral != "keep" and "neutral" in labels:
        labels = tuple(chosen[options.neutral] if label == "neutral" else label for label in labels)
        trajectory = replace(trajectory, step_labels=labels, label=None)
    if options.corrected in ("flip", "drop") and "corrected" in labels:
        what = "written as incorrect" if options.corrected == "flip" else "without a label"
        hidden[f"corrected steps ({what})"] += labels.count("corrected")
        trajectory = without_corrected(trajectory, options.corrected)
        labels = trajectory.step_labels or ()
    first = trajectory.first_error()
    if first is not None and options.after_error == "null" and 0 <= first < len(labels) - 1:
        removed = sum(label is not None for label in labels[first + 1 :])
        if removed:
            hidden["labels after the first error"] += removed
            labels = (*labels[: first + 1], *((None,) * (len(labels) - first - 1)))
            trajectory = replace(trajectory, step_labels=labels)
    return trajectory if trajectory.label == first else replace(trajectory, label=first)


def without_corrected(trajectory: Trajectory, how: Corrected) -> Trajectory:
    """The trajectory with its corrected steps labelled correct (keep), incorrect (flip) or not at all (drop).

    The first error stays what it was. If that is unknown, flip removes the label, because an incorrect step would become the
    first error.
    """
    first = trajectory.first_error()
    chosen: dict[Corrected, StepLabel] = {"keep": 1.0, "flip": None if first is None else 0.0, "drop": None}
    labels = tuple(chosen[how] if label == "corrected" else label for label in trajectory.step_labels or ())
    return replace(trajectory, step_labels=labels, label=first)


def describe(value: Any) -> str:
    """Short description of an invalid value, for an error message."""
    if value is None:
        return "missing"
    try:
        shown = repr(value)
    except RecursionError:
        return f"a deeply nested {type(value).__name__}"
    return shown if len(shown) <= 60 else shown[:57] + "..."
