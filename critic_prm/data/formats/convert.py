"""Read and write trajectories in the formats of public datasets, with format detection."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from critic_prm import registry
from critic_prm.data.formats import text
from critic_prm.data.formats.common import Convention, Dropped, Options, Report, options_from, settle
from critic_prm.data.formats.not_trajectories import refusal, refused
from critic_prm.data.records.containers import name_of
from critic_prm.data.records.reading import Complain, OnError, Record, RecordWriter, read_records
from critic_prm.data.trajectory import Trajectory, content_id
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.images import from_data

__all__ = [
    "Convention",
    "Options",
    "Report",
    "detect",
    "names",
    "options_from",
    "read_trajectories",
    "table",
    "write_trajectories",
]


def names() -> list[str]:
    """Names of all formats."""
    return registry.names("format")


def table() -> list[tuple[str, str, bool, Convention]]:
    """For each format: its name, one-line description, whether it can be written, and its conventions."""
    modules: list[tuple[str, Any]] = [(name, registry.load("format", name)) for name in names()]
    return [(name, str(m.__doc__).split("\n")[0], hasattr(m, "write"), m.CONVENTION) for name, m in modules]


def detect(path: str | Path) -> str:
    """Detect the format of a file from the fields of its first record. Raises InputError, describing the row, if no format
    matches."""
    if text.is_plain(path):
        return "text"
    record = next(read_records(path), None)
    if record is None:
        raise InputError(name_of(path), "the file holds no records")
    return _detect(record)


def read_trajectories(
    path: str | Path,
    format: str = "auto",
    options: Options = Options(),  # noqa: B008  (frozen)
    on_error: OnError = "stop",
    complain: Complain | None = None,
    report: Report | None = None,
) -> Iterator[Trajectory]:
    """Stream the trajectories of a file ("-" is stdin). `format` is one of `names()`, or "auto" to detect it from the first
    record.

    Ids are unique: a duplicate id raises InputError naming both lines, and a trajectory without an id gets one derived from its
    content. With on_error="skip", unreadable rows are passed to `complain` and skipped. `report` is updated during the read.
    """
    report = report or Report()

    def tell(error: InputError) -> None:
        report.dropped["unreadable"] += 1
        if complain is not None:
            complain(error)

    def broken(error: InputError) -> None:
        report.read += 1
        tell(error)

    if format == "auto" and text.is_plain(path):
        format = "text"
    module: Any = None if format == "auto" else registry.load("format", format)
    if format == "text":
        records = text.records(path, on_error, broken)
    else:
        records = read_records(path, on_error=on_error, complain=broken)
    if (first := next(records, None)) is not None:
        if module is None:
            format = _detect(first)
            module = registry.load("format", format)
        elif not (isinstance(first.data, dict) and module.score(first.data)):
            raise _wrong_format(first, format)
        if options.index_base is not None and module.CONVENTION.index_base is None:
            raise UsageError(f"{format} has no step numbers, so --index-base {options.index_base} means nothing there")
        report.source = format
        # Native rows are explicit: labels after the first error were written intentionally.
        if module.__name__.endswith(".native"):
            options = replace(options, after_error="keep")
        yield from _trajectories(chain((first,), records), module, options, on_error, tell, report)


def _trajectories(
    records: Iterable[Record], module: Any, options: Options, on_error: OnError, complain: Complain, report: Report
) -> Iterator[Trajectory]:
    seen = _Ids()
    native = module.__name__.endswith(".native")  # its own errors name the missing field
    for record in records:
        report.read += 1
        try:
            if not isinstance(record.data, dict):
                raise InputError(record.where, f"this row is {str(record.data)[:40]!r}", "a row is a JSON object")
            if not native and not module.score(record.data):
                raise _wrong_format(record, report.source)
            for found in module.read(record, options):
                trajectory = _identified(settle(found, options, report.hidden), record, seen)
                if trajectory.images:
                    trajectory = replace(trajectory, images=from_data(trajectory.images, record.where))
                yield trajectory
        except Dropped as reason:
            report.dropped[str(reason)] += 1
        except InputError as error:
            if on_error == "stop":
                raise
            complain(error)


def write_trajectories(
    path: str | Path,
    trajectories: Iterable[Trajectory],
    format: str = "native",
    options: Options = Options(),  # noqa: B008  (frozen)
    report: Report | None = None,
) -> Report:
    """Write trajectories to `path` in a writable format. The report counts what the format could not represent.

    If an error occurs, the rows written so far stay in the file. Raises UsageError for read-only formats, and for a neutral
    step if `options` does not say how to map it.
    """
    module: Any = registry.load("format", format)
    if not hasattr(module, "write"):
        writable = [name for name in names() if hasattr(registry.load("format", name), "write")]
        raise UsageError(f"{format} is only read, not written; there are: {', '.join(writable)}")
    report = report or Report()
    report.target, report.path = format, str(path)
    options = replace(options, after_error="keep")  # labels after the first error were handled when the file was read
    with RecordWriter(path) as writer:
        for trajectory in trajectories:
            try:
                row = module.write(settle(trajectory, options, report.hidden), options, report.unsaid)
            except Dropped as reason:
                report.dropped[str(reason)] += 1
                continue
            writer.write(row)
            report.written += 1
    return report


def _detect(record: Record) -> str:
    row = record.data
    if isinstance(row, dict) and not refused(row):
        scores = {name: registry.load("format", name).score(row) for name in names()}
        best = max(scores, key=lambda name: scores[name])
        if scores[best]:
            return best
    reason, mend = refusal(row)
    raise InputError(record.where, reason, mend)


def _wrong_format(record: Record, format: str) -> InputError:
    try:
        likely = _detect(record)
    except InputError as error:
        return InputError(record.where, f"this is no {format} row: {error.problem}", error.mend)
    return InputError(record.where, f"this is no {format} row; it looks like {likely}", f"use --from {likely}")


def _identified(trajectory: Trajectory, record: Record, seen: _Ids) -> Trajectory:
    """Return the trajectory with a unique id. Raises InputError if its own id was already used."""
    if trajectory.id:
        if earlier := seen.add(trajectory.id, record.line):
            raise InputError(
                record.where, f"the id {trajectory.id!r} was already used on line {earlier}", "ids must be unique in a file"
            )
        return trajectory
    derived = content_id(trajectory.problem, trajectory.steps)
    identity, turn = derived, 0
    while seen.add(identity, record.line):
        turn += 1
        identity = f"{derived}-{record.line}" if turn == 1 else f"{derived}-{record.line}.{turn}"
    return replace(trajectory, id=identity)


class _Ids:
    """The ids of a file and their line numbers: 64-bit hashes in an open-addressing table, 24 MB per million ids."""

    def __init__(self) -> None:
        self._size, self._used = 1 << 10, 0
        self._hashes, self._lines = array("Q", bytes(8 * self._size)), array("I", bytes(4 * self._size))

    def add(self, identity: str, line: int) -> int:
        """Add an id. Returns 0 if it is new, else the line where it first occurred."""
        key = (hash(identity) & 0xFFFFFFFFFFFFFFFF) or 1
        place = self._place(key)
        if self._hashes[place]:
            return self._lines[place]
        self._hashes[place], self._lines[place] = key, line
        self._used += 1
        if 3 * self._used > 2 * self._size:
            self._grow()
        return 0

    def _place(self, key: int) -> int:
        hashes, mask = self._hashes, self._size - 1
        place = key & mask
        while hashes[place] and hashes[place] != key:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        old = zip(self._hashes, self._lines, strict=True)
        self._size *= 2
        self._hashes, self._lines = array("Q", bytes(8 * self._size)), array("I", bytes(4 * self._size))
        for key, line in old:
            if key:
                place = self._place(key)
                self._hashes[place], self._lines[place] = key, line
