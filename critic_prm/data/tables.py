"""Trajectories and labels as lists that a notebook shows, from and to files, pandas and `datasets`."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

import orjson

from critic_prm.data.formats.common import Options, Report
from critic_prm.data.formats.convert import read_trajectories, trajectories_in
from critic_prm.data.label_rows import LabelledTrajectory, label_row
from critic_prm.data.records.containers import columns_as_text
from critic_prm.data.records.reading import Record, write_records
from critic_prm.data.trajectory import Method, Trajectory, trajectory_to_json
from critic_prm.errors import InputError
from critic_prm.registry import extra

if TYPE_CHECKING:
    import datasets
    import pandas

AS_TEXT = ("critic", "judgements", "meta", "step_labels", "steps", "tools", "votes")
"""Lists and objects that a column of a table may hold as JSON text."""


class Trajectories(tuple[Trajectory, ...]):
    """Trajectories in memory. A notebook shows the first ones with their gold labels."""

    def __repr__(self) -> str:
        gold = sum(one.first_error() is not None for one in self)
        return f"Trajectories({_steps(self)}{f', {gold:,} with a gold label' if gold else ''})"

    def _repr_html_(self) -> str:
        from critic_prm.data.html import MOST_ROWS, rows_html

        return rows_html(repr(self), ((one, None) for one in self[:MOST_ROWS]), len(self))


class Labels(tuple[LabelledTrajectory, ...]):
    """Labelled trajectories in memory. A notebook shows the first ones with their steps coloured by P(correct)."""

    def __repr__(self) -> str:
        statuses = Counter(row.label.status for row in self)
        shown = "".join(f", {status} {count:,}" for status, count in statuses.most_common())
        return f"Labels({_steps([row.trajectory for row in self])}{shown})"

    def _repr_html_(self) -> str:
        from critic_prm.data.html import MOST_ROWS, rows_html

        return rows_html(repr(self), ((row.trajectory, row.label) for row in self[:MOST_ROWS]), len(self))


def trajectories_from(
    source: Any, format: str = "auto", map: Mapping[str, str] | None = None, segment: Method = "auto"
) -> Trajectories:
    """Read trajectories from a file, a pandas DataFrame, a `datasets.Dataset`, or rows (mappings, or trajectories).

    The columns are the fields of any format that `read_trajectories` reads; `format` names it if it is not recognized, and
    `map` says which field has other names: {"problem": "prompt", "steps": "reasoning"}. Solutions of one text are split
    into steps by `segment`; a warning says if many remain whole. Arrays are read as lists, and missing values (NaN, NaT, NA) as
    absent fields. Raises InputError naming the row, UsageError for an unknown format or field.
    """
    options = Options(map=tuple(f"{target}={field}" for target, field in (map or {}).items()), segment=segment)
    report = Report()
    if isinstance(source, str | Path):
        return _warned(Trajectories(read_trajectories(source, format, options, report=report)), report)
    if isinstance(source, Trajectory | LabelledTrajectory | Mapping):
        raise InputError("trajectories_from", f"this is one {type(source).__name__}", "give a list")
    table = source.to_dict("records") if callable(getattr(source, "to_dict", None)) and hasattr(source, "columns") else source
    rows = list(table)
    if all(isinstance(row, Trajectory | LabelledTrajectory) for row in rows):
        return Trajectories(row.trajectory if isinstance(row, LabelledTrajectory) else row for row in rows)
    return _warned(Trajectories(trajectories_in(_records(rows), format, options, report)), report)


def _warned(rows: Trajectories, report: Report) -> Trajectories:
    """The rows, after a warning if they were probably split too coarsely or too finely."""
    for line in report.steps.lines():
        if line.startswith("warning: "):
            said = (
                line.removeprefix("warning: ")
                .replace("--segment ", "segment=")
                .replace("sentences, thoughts or llm", "sentences or thoughts")
            )
            warnings.warn(said, stacklevel=3)
    return rows


def to_rows(rows: Iterable[Trajectory | LabelledTrajectory]) -> list[dict[str, Any]]:
    """The JSON rows of trajectories or labels, as files have them."""
    return [
        label_row(row.trajectory, row.label, row.critic) if isinstance(row, LabelledTrajectory) else trajectory_to_json(row)
        for row in rows
    ]


def write_labels(path: str | Path, rows: Iterable[LabelledTrajectory]) -> int:
    """Write a label file, for `critic-prm dataset build` and other commands, and return the number of its rows."""
    return write_records(path, to_rows(rows))


def to_pandas(
    rows: Iterable[Trajectory | LabelledTrajectory], per: Literal["trajectory", "step"] = "trajectory"
) -> pandas.DataFrame:
    """A DataFrame of trajectories or labels: one row per trajectory, with the columns of a file, or one row per step.

    A step has the columns `id`, `step` (0-based), `text`, `observation` and `gold` (P(correct) or None), and of a label
    `p_correct` (None: not judged), `correct_votes`, `votes`, `first_error` (whether it is this step) and `critique`.
    """
    frame: Any = extra("pandas", "pandas", "a DataFrame").DataFrame
    return frame(to_rows(rows) if per == "trajectory" else [step for row in rows for step in _step_rows(row)])


def to_dataset(rows: Iterable[Trajectory | LabelledTrajectory]) -> datasets.Dataset:
    """A `datasets.Dataset` of trajectories or labels, with the columns of a file. A column of objects, such as `judgements`, or
    of values of different types is JSON text; `trajectories_from` reads it."""
    dataset: Any = extra("datasets", "hf", "a Dataset").Dataset
    return dataset.from_list(columns_as_text(to_rows(rows)))


def _steps(trajectories: Sequence[Trajectory]) -> str:
    """ "26 solutions, 2 to 7 steps, median 5"."""
    counts = [len(one.steps) for one in trajectories]
    if not counts:
        return "no solutions"
    few, many = min(counts), max(counts)
    spread = f"{many} step{'s' * (many > 1)}" if few == many else f"{few} to {many} steps, median {median(counts):g}"
    return f"{len(counts):,} solution{'s' * (len(counts) > 1)}, {spread}"


def _records(rows: Iterable[Any]) -> Iterator[Record]:
    for number, row in enumerate(rows, 1):
        where = f"row {number}"
        if not isinstance(row, Mapping):
            raise InputError(where, f"this is a {type(row).__name__}", "a row is a mapping with a problem and its steps")
        plain = {str(name): _cell(str(name), value) for name, value in row.items()}
        yield Record(number, where, {name: value for name, value in plain.items() if value is not None})


def _cell(column: str, value: Any) -> Any:
    """The value of a column as a file has it."""
    if isinstance(value, str) and column in AS_TEXT and value[:1] in ("[", "{"):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(value)
    plain = _plain(value)
    # pandas turns integers into floats where a value of the column is missing
    return int(plain) if isinstance(plain, float) and plain.is_integer() else plain


def _plain(value: Any) -> Any:
    """A table's value as JSON has it: an array is a list, a missing value None."""
    if callable(getattr(value, "tolist", None)):  # an array, or a number of numpy
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and isnan(value):
        return None
    if isinstance(value, str | bool | int | float) or value is None:
        return value
    return None if type(value).__name__ in ("NAType", "NaTType") else str(value)


def _step_rows(row: Trajectory | LabelledTrajectory) -> Iterator[dict[str, Any]]:
    trajectory, label = (row.trajectory, row.label) if isinstance(row, LabelledTrajectory) else (row, None)
    for index, (step, gold) in enumerate(zip(trajectory.steps, trajectory.gold(), strict=True)):
        found = {"id": trajectory.id, "step": index, "text": step.text, "observation": step.observation, "gold": gold}
        if label is not None:
            said = [v.critique for judgement in label.judgements for v in judgement.verdicts if v.step == index]
            good, total = label.votes[index]
            found |= {
                "p_correct": label.p_correct[index],
                "correct_votes": good,
                "votes": total,
                "first_error": label.first_error == index,
                "critique": next(filter(None, said), ""),
            }
        yield found
