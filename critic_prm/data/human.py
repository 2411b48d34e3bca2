"""Answers of people: the rows they are read from, and the labels they become."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from critic_prm.data.judgement import Judgement, Label, Verdict, VerdictValue, combine, verdict_to_json
from critic_prm.data.label_rows import is_labelled, label_row, without_labels
from critic_prm.data.records.reading import read_records
from critic_prm.data.trajectory import StepLabel, Trajectory, content_id, trajectory_from_json
from critic_prm.errors import InputError

HUMAN = "human"
"""The field of a row that holds the answer of a person."""

BLANK: Mapping[str, Any] = {"first_error": None, "by": "", "note": ""}
"""The fields a person fills in. `first_error` is the first incorrect step (0-based), -1 if all are correct, null if not
answered."""

VERDICTS: tuple[VerdictValue, ...] = get_args(VerdictValue)
GOLD: Mapping[VerdictValue, StepLabel] = {"correct": 1.0, "incorrect": 0.0, "corrected": "corrected", "neutral": "neutral"}
"""The gold label of a step that a person gave this verdict."""


@dataclass(frozen=True, slots=True)
class HumanAnswer:
    """A person's answer for one trajectory."""

    first_error: int | None
    """0-based; -1 if every step is correct, None if not answered."""
    by: str = ""
    note: str = ""
    """A comment on the whole solution."""
    verdicts: tuple[Verdict, ...] = ()
    """The verdicts per step, in step order, with comments as critiques; empty if only the first error is known."""
    comments: Mapping[int, str] = field(default_factory=dict)
    """Comments on steps without a verdict."""
    skipped: bool = False
    """Whether the person declined to decide."""
    seen: tuple[str, ...] = ()
    """What was shown when the person last changed a verdict: "judge" (what judges say), "people" (what other people say) and
    "reference" (the reference answer)."""
    looked: tuple[str, ...] = ()
    """What was shown at any time."""
    at: str = ""
    """Time of the answer in ISO 8601; empty if it was filled in by hand."""

    def said(self, steps: int) -> tuple[Verdict, ...]:
        """The verdicts, or what the first error alone says about them: steps before it are correct, later ones are unjudged."""
        if self.verdicts or self.first_error is None:
            return self.verdicts
        last = steps if self.first_error < 0 else self.first_error + 1
        return tuple(Verdict(step, "incorrect" if step == self.first_error else "correct") for step in range(last))


@dataclass(frozen=True, slots=True)
class Annotated:
    """A trajectory and the answer of a person."""

    trajectory: Trajectory
    answer: HumanAnswer


@dataclass
class HumanAnswers:
    """The answers in a file, keyed by trajectory content. `used` holds the keys of answers that were used."""

    answers: dict[str, HumanAnswer]
    open: int = 0
    """Number of trajectories without an answer."""
    used: set[str] = field(default_factory=set)

    def of(self, trajectory: Trajectory) -> HumanAnswer | None:
        if (key := answer_key(trajectory)) in self.answers:
            self.used.add(key)
        return self.answers.get(key)


def read_answers(path: str | Path) -> HumanAnswers:
    """Read the answers in a file (see `read_annotations`). Trajectories without one are counted as `open`."""
    return answered(read_annotations(path))


def answered(rows: Mapping[str, Annotated]) -> HumanAnswers:
    """The answers among annotated trajectories; the others are counted as `open`."""
    answers = {key: row.answer for key, row in rows.items() if row.answer.first_error is not None}
    return HumanAnswers(answers, len(rows) - len(answers))


def read_annotations(path: str | Path) -> dict[str, Annotated]:
    """Read a file with people's answers: a filled-in escalation file, or what `annotate` writes. Keyed by trajectory content.

    A row is a trajectory with the field "human". If a trajectory occurs several times, the last answer counts; later rows may
    name it by "key" instead of repeating its text. Raises InputError if an answer is not valid for its trajectory.
    """
    found: dict[str, Annotated] = {}
    for row, where in answer_rows(Path(path)):
        if "key" in row and "problem" not in row:
            key = str(row["key"])
            if key not in found:
                raise InputError(where, f"no earlier row has the key {key!r}", "the file may have lost its first lines")
            trajectory = found[key].trajectory
        else:
            trajectory = trajectory_from_json({name: value for name, value in row.items() if name != HUMAN}, where)
            key = answer_key(trajectory)
        found[key] = Annotated(trajectory, answer_from_json(row.get(HUMAN), len(trajectory.steps), where))
    return found


def answer_rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the rows of a file with answers, each with its place. Raises InputError for a row that is not an object."""
    for record in read_records(path):
        if not isinstance(record.data, dict):
            raise InputError(record.where, "this is not a row of an escalation file", "write one JSON object per line")
        yield record.data, record.where


def answer_key(trajectory: Trajectory) -> str:
    """The key by which an answer finds its trajectory: its content."""
    return content_id(trajectory.problem, trajectory.steps)


def answer_from_json(row: Any, steps: int, where: str) -> HumanAnswer:
    """Parse the field "human" of a trajectory with `steps` steps. Raises InputError."""
    if not isinstance(row, dict):
        raise InputError(where, f'"{HUMAN}" is {row!r:.40}', 'it is {"first_error": ...}: a step from 0, -1 for none, or null')
    first = row.get("first_error")
    if first is not None and (not isinstance(first, int) or isinstance(first, bool) or not -1 <= first < steps):
        raise InputError(where, f"the first error is {first!r}", f"it is a step, 0 to {steps - 1}, -1 for none, or null")
    verdicts, comments = _verdicts(row.get("verdicts"), steps, where)
    said = first_error_in({verdict.step: verdict.value for verdict in verdicts}, steps)
    if first is not None and verdicts and said != first:
        raise InputError(where, f"the first error is {first}, but the verdicts say {said}", "correct one of the two")
    by, note, at = (str(row.get(name) or "") for name in ("by", "note", "at"))
    seen, looked = (tuple(map(str, row[name])) if isinstance(row.get(name), list) else () for name in ("seen", "looked"))
    return HumanAnswer(first, by, note, verdicts, comments, row.get("skipped") is True, seen, looked, at)


def _verdicts(rows: Any, steps: int, where: str) -> tuple[tuple[Verdict, ...], dict[int, str]]:
    """The verdicts of an answer, and the comments on steps without one."""
    if rows is None:
        return (), {}
    if not isinstance(rows, list):
        raise InputError(where, f'"verdicts" is {rows!r:.40}', 'it is a list of {"step": ..., "verdict": ...}')
    verdicts, comments = dict[int, Verdict](), dict[int, str]()
    for row in rows:
        step, value, comment = (row.get(name) if isinstance(row, dict) else None for name in ("step", "verdict", "critique"))
        problem = f"a verdict is {row!r:.60}"
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < steps or step in (verdicts | comments):
            raise InputError(where, problem, f'"step" is a step, 0 to {steps - 1}, and each has one verdict')
        if value not in (*VERDICTS, None) or not isinstance(comment, str | None):
            raise InputError(where, problem, f'"verdict" is one of {", ".join(VERDICTS)}, or null')
        if value is not None:
            verdicts[step] = Verdict(step, value, comment or "")
        elif comment:
            comments[step] = comment
    return tuple(verdicts[step] for step in sorted(verdicts)), comments


def answer_to_json(answer: HumanAnswer) -> dict[str, Any]:
    """The field "human" of an answer. Optional parts are omitted if they are empty."""
    row: dict[str, Any] = {"first_error": answer.first_error, "by": answer.by, "note": answer.note}
    verdicts = [verdict_to_json(verdict) for verdict in answer.verdicts]
    verdicts += [{"step": step, "verdict": None, "critique": text} for step, text in answer.comments.items()]
    if verdicts:
        row["verdicts"] = sorted(verdicts, key=lambda verdict: int(verdict["step"]))
    if answer.skipped:
        row["skipped"] = True
    for name, shown in (("seen", answer.seen), ("looked", answer.looked)):
        if shown:
            row[name] = list(shown)
    if answer.at:
        row["at"] = answer.at
    return row


def first_error_in(verdicts: Mapping[int, str], steps: int) -> int | None:
    """The first error that verdicts by step establish: -1 if all of `steps` steps have one and none is incorrect, None if a
    step before the first incorrect one, or any step of a solution without one, has none."""
    for step in range(steps):
        if step not in verdicts:
            return None
        if verdicts[step] == "incorrect":
            return step
    return -1


def human_label(answer: HumanAnswer, steps: int) -> Label:
    """Convert a person's answer to a label. Steps without a verdict are unjudged.

    The note is the critique of the last step that has a verdict, unless that has a comment of its own."""
    verdicts = list(answer.said(steps))
    if verdicts and not verdicts[-1].critique:
        verdicts[-1] = replace(verdicts[-1], critique=answer.note)
    judge = f"{HUMAN}/{answer.by}" if answer.by else HUMAN
    return combine([Judgement("ok", tuple(verdicts), answer.first_error, judge=judge)], steps)


def with_gold(trajectory: Trajectory, answer: HumanAnswer) -> Trajectory:
    """The trajectory with a person's answer as its gold labels. Raises ValueError for a trajectory without an answer."""
    if answer.first_error is None:
        raise ValueError(f"{trajectory.id} has no answer")
    labels: list[StepLabel] = [None] * len(trajectory.steps)
    for verdict in answer.said(len(labels)):
        labels[verdict.step] = GOLD[verdict.value]
    return replace(trajectory, label=answer.first_error, step_labels=tuple(labels))


def with_answers(rows: Iterable[tuple[dict[str, Any], str]], answers: HumanAnswers) -> Iterator[dict[str, Any]]:
    """Replace the labels of rows that a person answered; the previous label is kept under "before_human"."""
    for row, where in rows:
        trajectory = trajectory_from_json(row, where)
        answer = answers.of(trajectory)
        if answer is None:
            yield row
            continue
        labelled = label_row(trajectory, human_label(answer, len(trajectory.steps)), {"provider": HUMAN, "by": answer.by})
        if is_labelled(row):
            labelled["before_human"] = {name: row.get(name) for name in ("p_correct", "first_error", "status", "critic")}
        yield labelled


def asked(trajectory: Trajectory) -> Trajectory:
    """The trajectory that a person is asked about: without the label of a critic and without gold labels."""
    return replace(without_labels(trajectory), label=None, step_labels=None)
