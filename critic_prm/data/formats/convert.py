"""Read and write trajectories in the formats of public datasets, with format detection."""

from __future__ import annotations

import tomllib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from critic_prm import registry
from critic_prm.data.formats import text
from critic_prm.data.formats.common import Dropped, Format, Options, Report, Source, Target, settle, without_corrected
from critic_prm.data.records.containers import name_of
from critic_prm.data.records.reading import Complain, OnError, Record, RecordWriter, read_records
from critic_prm.data.segment.rows import segmented
from critic_prm.data.trajectory import KNOWN, Trajectory, content_id
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.images import from_data

if TYPE_CHECKING:
    from critic_prm.data.formats.fields import Renamer

__all__ = [
    "Dropped",
    "Format",
    "Options",
    "Report",
    "detect",
    "formats",
    "names",
    "open_format",
    "read_trajectories",
    "row_of",
    "trajectories_in",
    "writable",
    "write_trajectories",
]


@cache
def formats() -> Mapping[str, Format]:
    """All formats by name."""
    modules = (registry.load("format", module) for module in registry.names("format"))
    return dict(sorted(item for module in modules for item in module.FORMATS.items()))


def names() -> list[str]:
    """Names of all formats."""
    return list(formats())


def open_format(name: str) -> Format:
    """The format called `name`. Raises UsageError, listing the names, if there is none."""
    plain = name.replace("_", "-")
    if plain in registry.names("format") and (own := registry.load("format", plain).FORMATS.get(plain)):
        return own  # type: ignore[no-any-return]  # the other modules are not imported
    if format := formats().get(plain):
        return format
    raise UsageError(f"there is no format {name!r}; available: {', '.join(names())}")


def writable() -> list[str]:
    """Names of the formats that can be written."""
    return [name for name, format in formats().items() if format.write is not None]


def detect(path: str | Path) -> str:
    """Detect the format of a file from the fields of its first record. Raises InputError, describing the row, if no format
    matches."""
    if text.is_plain(path):
        return "text"
    record = next(read_records(path), None)
    if record is None:
        raise InputError(name_of(path), "the file contains no records")
    if _recognized(record) in (None, "text") and _implied(record):
        return "native"
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

    def skip(error: InputError) -> None:
        report.dropped["unreadable"] += 1
        if complain is not None:
            complain(error)

    def skip_line(error: InputError) -> None:
        report.read += 1
        skip(error)

    if format == "auto" and text.is_plain(path):
        format = "text"
    if format != "auto":
        open_format(format)  # an unknown name is reported before the file is read
    read = text.records if format == "text" else read_records
    records = read(path, on_error=on_error, complain=skip_line)
    yield from trajectories_in(records, format, options, report, skip if on_error == "skip" else None)


def trajectories_in(
    records: Iterator[Record],
    format: str = "auto",
    options: Options = Options(),  # noqa: B008  (frozen)
    report: Report | None = None,
    skip: Complain | None = None,
) -> Iterator[Trajectory]:
    """Stream the trajectories of records, such as the rows of a table. See `read_trajectories`.

    A record that cannot be read is passed to `skip`; without it, its InputError is raised.
    """
    report, renamer = report or Report(), _renamer(options.map, format)
    chosen = None if format == "auto" else open_format(format)
    if (first := next(records, None)) is None:
        return
    if first.columns and renamer is None:
        renamer = _renamer((), format, always=True)  # the cells of a table are texts
    start = _renamed(first, renamer)
    if chosen is None:
        if renamer is not None and {"problem", "steps"} <= renamer.names.keys():
            format = "native"
        elif _recognized(start) in (None, "text") and (names := _implied(start)):
            renamer = _renamer(options.map, format, always=True, more=names)
            report.notes += [f'"{field}" is read as the {target}' for target, field in names.items()]
            format = "native"
        else:
            format = _detect(start)
        chosen = open_format(format)
    elif not (isinstance(start.data, dict) and chosen.matches(start.data)):
        raise _wrong_format(start, format)
    if options.index_base is not None and chosen.index_base is None:
        raise UsageError(f"{format} has no step numbers, so --index-base {options.index_base} means nothing there")
    report.source = format
    if chosen.explicit:
        options = replace(options, after_error="keep")
    seen = _Ids()
    records = chain((first,), records)
    for record in records if chosen.gather is None else chosen.gather(records, report):
        report.read += 1
        try:
            yield from _trajectories(_renamed(record, renamer), chosen, options, report, seen)
        except Dropped as reason:
            report.dropped[str(reason)] += 1
        except InputError as error:
            if skip is None:
                raise
            skip(error)


def _renamer(
    given: Sequence[str], format: str, always: bool = False, more: Mapping[str, str] = MappingProxyType({})
) -> Renamer | None:
    """What renames the fields of each row as --map says, and `more`; None if nothing does, unless it is `always` wanted."""
    if not given and not always:
        return None
    from critic_prm.data.formats.fields import Renamer, parse_map

    return Renamer({**parse_map(given, () if format == "auto" else open_format(format).sample), **more})


def _renamed(record: Record, renamer: Renamer | None) -> Record:
    if renamer is None or not isinstance(record.data, dict):
        return record
    return replace(record, data=renamer(record.data, record.where, record.columns))


def _implied(record: Record) -> Mapping[str, str]:
    from critic_prm.data.formats.fields import implied

    return implied(record.data) if isinstance(record.data, dict) else {}


def _trajectories(record: Record, format: Format, options: Options, report: Report, seen: _Ids) -> Iterator[Trajectory]:
    if not isinstance(record.data, dict):
        raise InputError(record.where, f"this row is {str(record.data)[:40]!r}", "a row is a JSON object")
    if not format.explicit and not format.matches(record.data):
        raise _wrong_format(record, report.source)
    for read in format.read(Source(record.data, record.where, options)):
        trajectory = segmented(read, options.segment, report.steps, record.where)
        unique = _identified(settle(trajectory, options, report.hidden), record, seen)
        yield replace(unique, images=from_data(unique.images, record.where)) if unique.images else unique


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
    if open_format(format).write is None:
        raise UsageError(f"{format} is only read, not written; available: {', '.join(writable())}")
    report = report or Report()
    report.target, report.path = format, str(path)
    with RecordWriter(path) as writer:
        for trajectory in trajectories:
            try:
                writer.write(row_of(trajectory, format, options, report))
                report.written += 1
            except Dropped as reason:
                report.dropped[str(reason)] += 1
    return report


def row_of(trajectory: Trajectory, name: str, options: Options, report: Report) -> dict[str, Any]:
    """The row of a trajectory in the writable format `name`. `report` counts the labels and fields that are lost.

    Labels after the first error are written: they were handled when the file was read. Raises Dropped and UsageError.
    """
    format = open_format(name)
    assert format.write is not None
    settled = settle(trajectory, replace(options, after_error="keep"), report.hidden)
    labels = settled.step_labels or ()
    if "corrected" in labels and "corrected" not in (format.step_labels or ()):
        how = options.corrected or "drop"
        what = "written as correct" if how == "keep" else "without a label"
        report.unsaid[f"corrected steps ({what})"] += labels.count("corrected")
        settled = without_corrected(settled, how)
    target = Target(settled, name, format, options, report.unsaid)
    row = format.write(target)
    target.count_unrepresented()
    return row


_MISTAKEN = tomllib.loads(Path(__file__).with_name("mistaken.toml").read_text("utf-8"))["file"]
_NOT_TRAJECTORIES = tuple((file["fields"], file["holds"], file["fix"]) for file in _MISTAKEN)
"""Fields that identify a file without trajectories, what it holds, and the suggested fix."""


def _recognized(record: Record) -> str | None:
    """The format that fits a row best; None if none does or the row belongs to a known file of another kind."""
    row = record.data
    if not isinstance(row, dict) or any(all(key in row for key in keys) for keys, _, _ in _NOT_TRAJECTORIES):
        return None
    if {"problem", "steps"} <= row.keys() <= KNOWN:
        return "native"  # every other format needs a field of its own, so its module is not imported
    scores = {name: open_format(name).matches(row) for name in names()}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] else None


def _detect(record: Record) -> str:
    row = record.data
    if not isinstance(row, dict):
        problem = f"a row of this file is not an object but {str(row)[:40]!r}"
        raise InputError(record.where, problem, "a row is a JSON object with a problem and its steps")
    for keys, what, fix in _NOT_TRAJECTORIES:
        if all(key in row for key in keys):
            raise InputError(record.where, f"this holds {what}", fix)
    if best := _recognized(record):
        return best
    from critic_prm.data.formats.fields import suggestion

    shown = ", ".join(sorted(row)[:8]) + (", ..." if len(row) > 8 else "")
    raise InputError(record.where, f"no known format has the fields {shown}", suggestion(row))


def _wrong_format(record: Record, format: str) -> InputError:
    try:
        likely = _detect(record)
    except InputError as error:
        return InputError(record.where, f"this is not a {format} row: {error.problem}", error.fix)
    return InputError(record.where, f"this is not a {format} row; it looks like {likely}", f"use --from {likely}")


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
