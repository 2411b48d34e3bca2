"""Write JSON records to a file that appears under its name only when it is complete or the run ends early."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol

import orjson

from critic_prm import signals
from critic_prm.data.records.containers import extra
from critic_prm.data.records.parts import Part
from critic_prm.errors import InputError


class _Sink(Protocol):
    def write(self, data: bytes, /) -> Any: ...
    def close(self) -> None: ...


class RecordWriter:
    """Writes rows to `path` as JSONL, or by suffix as .json (an array), .gz, .zst or .parquet; "-" is stdout.

    Rows go to a temporary file that is renamed on close. If an error leaves the `with` block, the rows written so far are kept
    under the final name, unless there are none. NaN and infinity, which JSON lacks, are written as null. Raises InputError if
    the path cannot be written or is an SQLite database, UsageError if another run is writing it.
    """

    def __init__(self, path: str | Path) -> None:
        self.rows = 0
        self._name = str(path)
        self._part: Part | None = None
        self._target = Path(os.path.realpath(path))
        self._array = self._parquet = False
        self._streams: list[_Sink] = []
        if self._name == "-":
            self._out: _Sink = sys.stdout.buffer
            return
        self._array = self._name.endswith((".json", ".json.gz", ".json.zst"))
        self._parquet = self._name.endswith(".parquet")
        signals.note(self._name, "is not finished, and what was there before is untouched")
        try:
            self._out = self._open()
            if self._array:
                self._out.write(b"[")
        except BaseException as error:
            self._abandon()
            if isinstance(error, OSError):
                raise self._unwritable(error) from None
            raise

    def write(self, row: Any) -> None:
        """Append one row. Raises InputError for a row that JSON cannot represent or if the disk is full."""
        line = encode(row, self._name)
        try:
            if self._array:
                self._out.write((b",\n" if self.rows else b"\n") + line[:-1])
            else:
                self._out.write(line)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            raise self._unwritable(error) from None
        self.rows += 1

    def close(self, failed: bool = False) -> None:
        """Finish the file and rename it. After a failure without a single row, keep the previous file."""
        if self._name == "-":
            sys.stdout.buffer.flush()
            return
        try:
            if self._array:
                self._out.write(b"\n]\n" if self.rows else b"]\n")
            for stream in reversed(self._streams):
                stream.close()
            self._streams = []
            if self._part is None:
                return
            if failed and not self.rows:
                signals.note(self._name, "was not written")
                return
            if self._parquet:
                self._to_parquet(self._part)
            self._part.keep()
            signals.note(self._name, f"holds the {self.rows:,} rows before the stop" if failed else "is complete")
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            self._abandon()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(failed=kind is not None)

    def _open(self) -> _Sink:
        target = self._target
        if target.is_dir():
            raise IsADirectoryError(21, "it is a folder")
        if target.exists() and not target.is_file():  # /dev/null or a named pipe: nothing to rename over
            self._parquet = False
            return self._keep(target.open("wb"))
        if self._parquet:
            extra("pyarrow", "parquet", f"writing {self._name}")
        if self._name.endswith(".zst"):
            zstandard = extra("zstandard", "zstd", f"writing {self._name}")
        self._part = Part(target, self._name)
        raw = self._keep(self._part.stream)
        if self._name.endswith(".gz"):
            import gzip

            # mtime 0 and no file name: equal rows give equal files
            return self._keep(gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
        if self._name.endswith(".zst"):
            return self._keep(zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(raw, closefd=False))
        return raw

    def _abandon(self) -> None:
        if self._part is not None:
            self._part.drop()
            self._part = None

    def _keep(self, stream: Any) -> BinaryIO:
        self._streams.append(stream)
        return stream  # type: ignore[no-any-return]

    def _to_parquet(self, part: Part) -> None:
        from critic_prm.data.records.parquet import write_parquet

        columns = part.path.with_name(part.path.name + ".parquet")
        try:
            write_parquet(part.path, columns)
            columns.replace(part.path)
        finally:
            columns.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> InputError:
        missing = not self._target.parent.is_dir()
        what = f"the folder {self._target.parent} does not exist" if missing else error.strerror or str(error)
        mend = "make the folder first" if missing else "choose another output"
        return InputError(self._name, f"cannot be written: {what}", mend)


def encode(row: Any, name: str = "row") -> bytes:
    """Encode one row as a line of UTF-8 JSON. NaN and infinity become null. Raises InputError for values JSON lacks."""
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        pass  # lone surrogates and integers beyond 64 bits, which only the slower encoder supports
    try:
        return json.dumps(row, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise InputError(name, f"a row holds what JSON cannot say: {error}") from None


def write_records(path: str | Path, rows: Iterable[Any]) -> int:
    """Write `rows` to `path` (see RecordWriter) and return their number."""
    with RecordWriter(path) as writer:
        for row in rows:
            writer.write(row)
    return writer.rows
