"""What every format module shares: its convention, the options of a conversion, labels over the edge, what gets lost."""

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
    """The choices that datasets disagree on; each is made once, at the edge.

    neutral: a neutral step stays neutral ("keep"), counts as "good" or "bad", or loses its label ("drop").
    index_base: what the first step is called in the file's step numbers, 0 or 1; None is the format's own base.
    after_error: labels after the first error become unjudged ("null") or stay as the source has them ("keep").
    human_steps: steps that a labeler wrote in place of a model's are unjudged ("null") or "good" (PRM800K phase 1).
    alternatives: of several candidates for a step only the "chosen" path, or one more trajectory for each ("all").
    """

    neutral: Neutral = "keep"
    index_base: int | None = None
    after_error: AfterError = "null"
    alternatives: Alternatives = "chosen"
    human_steps: HumanSteps = "null"

    def base(self, own: int) -> int:
        return own if self.index_base is None else self.index_base


def options_from(chosen: Mapping[str, str], index_base: int | None = None) -> Options:
    """Options from words typed by a user. Raises UsageError for a word that is no choice, naming those that are."""
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
    """How a format speaks of steps, in words fit for a table. `index_base` is None where steps have no numbers."""

    labels: str
    index_base: int | None = None
    neutral: str = "cannot be said"
    after_error: str = "not labelled"


class Format(Protocol):
    """What a module in this folder offers. Formats that are only read have no `write`."""

    CONVENTION: Convention

    def score(self, row: Mapping[str, Any]) -> int:
        """How many fields of this format the row shows; 0 when it is not this format."""

    def read(self, record: Record, options: Options) -> Iterable[Trajectory]:
        """The trajectories of one record, with every label the source has; an id of "" stands for none."""


Write = Callable[[Trajectory, Options, Counter[str]], dict[str, Any]]


class Dropped(Exception):
    """A row that is left out on purpose; the message is the reason, under which it is counted."""


@dataclass(slots=True)
class Report:
    """What a conversion did, filled while it runs.

    `read` counts the source's records, `written` the rows of the target. `dropped` counts rows left out, by
    reason; `hidden` labels that the options took away; `unsaid`, by field, what the target has no place for.
    """

    source: str = ""
    target: str = ""
    path: str = ""
    read: int = 0
    written: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)
    unsaid: Counter[str] = field(default_factory=Counter)

    def lines(self) -> list[str]:
        """The report for a person, a line a part; parts with nothing to say are left out."""
        parts = (
            ("left out", self.dropped),
            ("hidden by the options", self.hidden),
            (f"{self.target} cannot say", self.unsaid),
        )
        said = [f"{what}: {', '.join(f'{n} {name}' for name, n in some.most_common())}" for what, some in parts if some]
        source = self.source or "no records"
        return [f"read {self.read} rows ({source}), wrote {self.written} ({self.target}) to {self.path}", *said]


def has(row: Mapping[str, Any], *keys: str) -> int:
    """The number of `keys` if the row has them all, else 0: the more a format asks for, the surer the match."""
    return len(keys) if all(key in row for key in keys) else 0


def rest(row: Mapping[str, Any], used: Container[str]) -> dict[str, Any]:
    """The fields of a source row that were not used, to be kept in `meta`."""
    return {key: value for key, value in row.items() if key not in used}


def id_of(row: Mapping[str, Any], key: str = "id") -> str:
    """The id of a source row, "" when it has none."""
    return "" if row.get(key) is None else str(row[key])


def text_of(row: Mapping[str, Any], key: str, where: str) -> str:
    """A text field that must be there. Raises InputError."""
    value = row.get(key)
    if isinstance(value, str) and value.strip():
        return value
    raise InputError(where, f'"{key}" is {say(value)}', "it must be text")


def texts_of(row: Mapping[str, Any], key: str, where: str) -> tuple[Step, ...]:
    """A list of step texts that must be there and hold at least one. Raises InputError."""
    value = row.get(key)
    if not isinstance(value, list) or not value:
        raise InputError(where, f'"{key}" is {say(value)}', "it must be a list with the text of each step")
    for index, item in enumerate(value):
        if not isinstance(item, str):
            raise InputError(where, f'"{key}" holds {say(item)} at step {index}', "every step is text")
    return tuple(Step(item) for item in value)


def answer_of(row: Mapping[str, Any], key: str) -> str | None:
    """An optional answer as text; numbers are written out."""
    value = row.get(key)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def first_error_from(value: Any, base: int, steps: int, where: str, key: str) -> int:
    """A step number of the source -> 0-based first error, -1 for null or a number below the base. Raises InputError."""
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
    """The first error as the target counts, `correct` when there is none. Raises Dropped when it is unknown."""
    first = trajectory.first_error()
    if first is None:
        raise Dropped("the first error is unknown")
    return correct if first < 0 else first + base


def settle(trajectory: Trajectory, options: Options, lost: Counter[str]) -> Trajectory:
    """Apply `neutral` and `after_error` to the labels of a trajectory, and let `label` follow; `lost` counts what they hid."""
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
    """One right-or-wrong per step, for the longest start that has labels; `lost` counts the steps cut and labels rounded.

    Raises Dropped when the first step has none, UsageError when a neutral step needs a choice.
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
    """Count the step labels that a target with nothing but a first error cannot say."""
    implied = replace(trajectory, step_labels=None, label=trajectory.first_error()).gold()
    count("step_labels", sum(a != b for a, b in zip(trajectory.gold(), implied, strict=True)), lost)


def unsaid(trajectory: Trajectory, said: Container[str], lost: Counter[str]) -> None:
    """Count the fields of a trajectory that are not among `said`: names of fields, "meta.<key>" and keys of extra fields."""
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
    if number:
        lost[what] += number


def known(trajectory: Trajectory, *keys: str) -> dict[str, Any]:
    """Those of `keys` that an earlier reading left in `meta` or among the extra fields."""
    both = {**trajectory.extra, **trajectory.meta}
    return {key: both[key] for key in keys if key in both}


def rating(value: Any, meanings: Mapping[Any, StepLabel], where: str, what: str) -> StepLabel:
    """The label that a rating stands for. Raises InputError for one that has no meaning."""
    if isinstance(value, int | float | None) and value in meanings:
        return meanings[value]
    choices = ", ".join("null" if choice is None else str(choice) for choice in meanings)
    raise InputError(where, f"{what} is {say(value)}", f"it must be one of {choices}")


def say(value: Any) -> str:
    """A short description of a wrong value for a message."""
    if value is None:
        return "missing"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
