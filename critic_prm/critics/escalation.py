"""Write undecided trajectories to a file for a person to fill in, and turn the answers into labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from critic_prm.data.judgement import Judgement, Label, Verdict, combine
from critic_prm.data.label_rows import is_labelled, label_row, without_labels
from critic_prm.data.records.reading import encode, read_records
from critic_prm.data.trajectory import Trajectory, content_id, trajectory_from_json, trajectory_to_json
from critic_prm.errors import InputError

HUMAN = "human"
BLANK: Mapping[str, Any] = {"first_error": None, "by": "", "note": ""}
"""The fields a person fills in. `first_error` is the first incorrect step (0-based), -1 if all are correct, null if not
answered."""


@dataclass
class Escalations:
    """Appends trajectories for a person to decide to `path`. A trajectory that is already there, perhaps answered, is kept."""

    path: Path
    _there: set[str] | None = None

    def add(self, trajectory: Trajectory, facts: Mapping[str, Any]) -> bool:
        """Add a trajectory; return whether it was new. `facts` records why it was escalated."""
        if self._there is None:
            self._there = (
                {_key(row, where) for row, where in _rows(self.path)}
                if self.path.exists() and self.path.stat().st_size
                else set()
            )
        clean = without_labels(trajectory)
        key = content_id(clean.problem, clean.steps)
        if key in self._there:
            return False
        self._there.add(key)
        row = trajectory_to_json(clean) | {"escalated": dict(facts), HUMAN: dict(BLANK)}
        try:
            with self.path.open("ab") as stream:
                stream.write(encode(row, str(self.path)))
        except OSError as error:
            raise InputError(
                str(self.path), f"cannot be written: {error.strerror}", "name another file to escalate to"
            ) from None
        return True


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer for one trajectory."""

    first_error: int
    by: str = ""
    note: str = ""


@dataclass
class Answers:
    """Answers from a filled-in file, keyed by trajectory content. `used` holds the keys of answers that were used."""

    found: dict[str, Answer]
    open: int = 0
    used: set[str] = field(default_factory=set)

    def of(self, trajectory: Trajectory) -> Answer | None:
        key = content_id(trajectory.problem, trajectory.steps)
        if key in self.found:
            self.used.add(key)
        return self.found.get(key)


def read_answers(path: str | Path) -> Answers:
    """Read an escalation file. Unanswered rows are counted as `open`. Raises InputError if an answer is not a step of its
    trajectory."""
    found: dict[str, Answer] = {}
    waiting = 0
    for row, where in _rows(Path(path)):
        said = row.get(HUMAN)
        if not isinstance(said, dict):
            raise InputError(
                where, f'"{HUMAN}" is {said!r:.40}', 'it is {"first_error": ...}: a step from 0, -1 for none, or null'
            )
        first = said.get("first_error")
        if first is None:
            waiting += 1
            continue
        steps = len(trajectory_from_json(row, where).steps)
        if not isinstance(first, int) or isinstance(first, bool) or not -1 <= first < steps:
            raise InputError(where, f"the first error is {first!r}", f"it is a step, 0 to {steps - 1}, -1 for none, or null")
        found[_key(row, where)] = Answer(first, str(said.get("by") or ""), str(said.get("note") or ""))
    return Answers(found, waiting)


def human_label(answer: Answer, steps: int) -> Label:
    """Convert a person's answer to a label: steps before the first error are correct, later ones are unjudged."""
    last = steps if answer.first_error < 0 else answer.first_error + 1
    verdicts = tuple(
        Verdict(step, "incorrect" if step == answer.first_error else "correct", answer.note if step == last - 1 else "")
        for step in range(last)
    )
    judgement = Judgement("ok", verdicts, answer.first_error, judge=f"{HUMAN}/{answer.by}" if answer.by else HUMAN)
    return combine([judgement], steps)


def with_answers(rows: Iterable[tuple[dict[str, Any], str]], answers: Answers) -> Iterator[dict[str, Any]]:
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


def _rows(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    for record in read_records(path):
        if not isinstance(record.data, dict):
            raise InputError(record.where, "this is no row of escalated trajectories", "it is a JSON object a line")
        yield record.data, record.where


def _key(row: Mapping[str, Any], where: str) -> str:
    trajectory = trajectory_from_json(row, where)
    return content_id(trajectory.problem, trajectory.steps)
