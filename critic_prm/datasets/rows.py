"""Read rows of any dataset file, spool them, and report what a step does to them."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, get_args

import orjson

from critic_prm.data.label_rows import is_labelled, label_from_json
from critic_prm.data.records.reading import Record, encode, read_records
from critic_prm.data.trajectory import Trajectory, content_id, trajectory_from_json, trajectory_to_json
from critic_prm.errors import InputError

Shape = Literal["label file", "training row", "trajectory"]
Class = Literal["erroneous", "correct", "partial", "unlabelled"]
CLASSES: tuple[Class, ...] = get_args(Class)


@dataclass(frozen=True, slots=True)
class Row:
    """One row in a dataset step."""

    where: str
    """The file and line, for error messages."""
    data: dict[str, Any]
    """The JSON object that is written back."""
    shape: Shape
    trajectory: Trajectory
    labels: tuple[float | None, ...]
    """P(correct) per step according to the row, None if unknown."""
    first_error: int | None
    """The first error according to the critic (label file) or the row's own labels; None if unknown."""
    gold: int | None = None
    """The gold first error of a label-file row; None if unknown."""

    @property
    def id(self) -> str:
        """The trajectory's id."""
        return self.trajectory.id

    @property
    def kind(self) -> Class:
        """The class of the row, by its gold label if there is one, else by its own label."""
        if self.gold is not None:
            return class_of(self.gold)
        return class_of(self.first_error, any(p is not None for p in self.labels))

    @property
    def content(self) -> str:
        """An id derived from the problem and steps."""
        return content_id(self.trajectory.problem, self.trajectory.steps)


def class_of(first_error: int | None, labelled: bool = False) -> Class:
    """The class for a first error. If that is unknown, `labelled` says whether some steps are labelled."""
    if first_error is None:
        return "partial" if labelled else "unlabelled"
    return "erroneous" if first_error >= 0 else "correct"


def read_rows(path: str | Path) -> Iterator[Row]:
    """Stream the rows of a label file, of trajectories in any format, or of a training set. Raises InputError.

    Rows in foreign formats other than ProcessBench are converted to native rows.
    """
    records = read_records(path)
    first = next(records, None)
    if first is None:
        return
    if _shape(first.data) is not None:
        for record in chain((first,), records):
            yield row_of(record)
        return
    if str(path) == "-":
        raise InputError(first.where, "stdin contains no native rows, labels or training rows", "convert it first")
    from critic_prm.data.formats.convert import read_trajectories

    for trajectory in read_trajectories(path):
        yield _plain(str(path), trajectory_to_json(trajectory), trajectory)


def row_of(record: Record) -> Row:
    """The row of one native, label-file or training record. Raises InputError for other records."""
    data, where = record.data, record.where
    shape = _shape(data)
    if shape is None:
        raise InputError(where, "this is not a row like the first one of its file", "it needs problem and steps, or prompt")
    if shape == "training row":
        return _training(data, where)
    trajectory = trajectory_from_json(data, where)
    if shape == "trajectory":
        return _plain(where, data, trajectory)
    label = label_from_json({**data, "judgements": None}, len(trajectory.steps), where)
    first = label.first_error if label.status == "ok" else None
    known = label.p_correct if label.status == "ok" else (None,) * len(trajectory.steps)
    return Row(where, data, shape, trajectory, known, first, trajectory.first_error())


def _shape(data: Any) -> Shape | None:
    if not isinstance(data, dict):
        return None
    if "problem" in data and "steps" in data:
        return "label file" if is_labelled(data) else "trajectory"
    return "training row" if {"prompt", "completions", "labels"} <= data.keys() else None


def _plain(where: str, data: dict[str, Any], trajectory: Trajectory) -> Row:
    labels = tuple(p if isinstance(p, float) else None for p in trajectory.gold())
    return Row(where, data, "trajectory", trajectory, labels, trajectory.first_error())


def _training(data: Mapping[str, Any], where: str) -> Row:
    texts, seen = data["completions"], data.get("observations")
    if not isinstance(texts, list) or not isinstance(seen, list | None) or (seen is not None and len(seen) != len(texts)):
        raise InputError(where, '"completions" or "observations" is not a list of texts for the steps', "fix or delete the row")
    steps = [{"text": text, "observation": None if seen is None else seen[i]} for i, text in enumerate(texts)]
    row = {"problem": data["prompt"], "steps": steps, "step_labels": data["labels"]}
    if data.get("id") is not None:
        row["id"] = data["id"]
    kept = {name: data[name] for name in ("source", "weight", "votes") if name in data}
    trajectory = trajectory_from_json({**row, **kept}, where)
    labels = tuple(p if isinstance(p, float) else None for p in trajectory.gold())
    if data.get("first_error") is not None:  # it does not follow from the labels, because of corrected steps
        return Row(where, dict(data), "training row", trajectory, labels, _stated(data["first_error"], len(labels), where))
    # a training set has no labels after the first error, so a missing label before it means an unjudged step
    bad = next((step for step, p in enumerate(labels) if p is not None and p < 0.5), None)
    first = bad if bad is not None else None if None in labels else -1
    return Row(where, dict(data), "training row", trajectory, labels, first)


def _stated(first: Any, steps: int, where: str) -> int:
    if isinstance(first, int) and not isinstance(first, bool) and -1 <= first < steps:
        return first
    raise InputError(where, f'"first_error" is {first!r:.40}', f"it is a step, 0 to {steps - 1}, -1 or null")


@contextmanager
def spool(beside: str | Path) -> Iterator[Spool]:
    """Temporary storage for rows between two passes: an unnamed file in the folder of the output, deleted afterwards."""
    folder = None if str(beside) == "-" else Path(beside).resolve().parent
    if folder is not None and not folder.is_dir():
        raise InputError(str(beside), f"cannot be written: the folder {folder} does not exist", "make the folder first")
    with tempfile.TemporaryFile(dir=folder) as stream:
        yield Spool(stream)


class Spool:
    """Rows on disk, in order. A row can be read again by its byte offset."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def write(self, row: Any) -> int:
        """Append one row and return its offset."""
        at = self._stream.tell()
        self._stream.write(encode(row))
        return at

    def rows(self) -> Iterator[Any]:
        """All rows, from the start."""
        self._stream.seek(0)
        return map(_decode, self._stream)

    def at(self, offset: int) -> Any:
        """The row at `offset`."""
        self._stream.seek(offset)
        return _decode(self._stream.readline())


def _decode(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return json.loads(line)  # values that only json supports, such as lone surrogates


FORMAT = "critic-prm dataset step 1"


@dataclass(slots=True)
class DatasetStats:
    """Counts of one dataset step, updated while it runs: rows read and written by class, and rows left out by reason and
    class."""

    step: str
    rows_in: Counter[str] = field(default_factory=Counter)
    rows_out: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)
    files: list[dict[str, Any]] = field(default_factory=list)

    def read(self, path: str | Path) -> Iterator[Row]:
        """Read and count the rows of an input file, which is listed in the report when it has been read."""
        before = self.rows_in.total()
        for row in read_rows(path):
            self.rows_in[row.kind] += 1
            yield row
        self.file(path, self.rows_in.total() - before)

    def keep(self, kind: str) -> None:
        """Count a row written."""
        self.rows_out[kind] += 1

    def drop(self, reason: str, kind: str) -> None:
        """Count a row left out for `reason`."""
        self.dropped.setdefault(reason, Counter())[kind] += 1

    def file(self, path: str | Path, rows: int) -> None:
        """Record an input file with its row count and SHA-256."""
        self.files.append({"name": Path(path).name, "rows": rows, "sha256": fingerprint(path)})

    def report(self, out: str | Path, options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """Write the report of the step to `<out>.report.json`, with the SHA-256 of the output, and return it. No file is
        written for stdout. Raises InputError."""
        report = self.summary(options, more)
        if str(out) != "-":
            path = Path(f"{out}.report.json")
            output = {"output": {"name": Path(out).name, "sha256": fingerprint(out)}}
            try:
                path.write_bytes(orjson.dumps(report | output, option=orjson.OPT_INDENT_2) + b"\n")
            except OSError as error:
                problem = f"cannot be written: {error.strerror or error}"
                raise InputError(str(path), problem, "choose another folder") from None
        return report

    def summary(self, options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """The report: the options of the step and its counts."""
        from importlib.metadata import version

        return {
            "format": FORMAT,
            "step": self.step,
            "version": version("critic-prm"),
            "options": dict(options),
            "inputs": self.files,
            "rows_in": self.rows_in.total(),
            "rows_out": self.rows_out.total(),
            "by_class": {
                kind: {"in": self.rows_in[kind], "out": self.rows_out[kind]}
                for kind in CLASSES
                if self.rows_in[kind] or self.rows_out[kind]
            },
            "left_out": {reason: dict(sorted(kinds.items())) for reason, kinds in sorted(self.dropped.items())},
            **more,
        }


def lines(report: Mapping[str, Any], out: str | Path) -> Iterable[str]:
    """The report as text: one line with the rows read and written, one with the rows left out."""
    shown = ", ".join(f"{kind} {n['out']:,} of {n['in']:,}" for kind, n in report["by_class"].items())
    place = "stdout" if str(out) == "-" else str(out)
    yield f"{report['step']}: {report['rows_in']:,} rows in, {report['rows_out']:,} out to {place} ({shown or 'no rows'})"
    if left := report["left_out"]:
        ranked = sorted(left.items(), key=lambda item: -sum(item[1].values()))
        yield "left out: " + ", ".join(f"{sum(kinds.values()):,} {reason}{_of(kinds)}" for reason, kinds in ranked)


def _of(kinds: Mapping[str, int]) -> str:
    known = [f"{n:,} {kind}" for kind, n in kinds.items() if kind in ("erroneous", "correct")]
    return f" ({', '.join(known)})" if known else ""


def share(numbers: Mapping[str, float], name: str, among: Sequence[str] = ("erroneous", "correct")) -> float | None:
    """The fraction of one class among some classes; None if those have no rows."""
    total = sum(numbers.get(kind, 0) for kind in among)
    return numbers.get(name, 0) / total if total else None


def fingerprint(path: str | Path) -> str | None:
    """The SHA-256 of a file; None for anything else, such as standard input."""
    if not Path(path).is_file():
        return None
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
