"""Write files atomically: under a temporary name, renamed when complete, under a lock."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from errno import ENOLCK, ENOTSUP
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Any, BinaryIO, Protocol

import orjson

from critic_prm import signals
from critic_prm.data.records.containers import delimiter_of, write_parquet
from critic_prm.errors import InputError, UsageError
from critic_prm.registry import extra

SQLITE = b"SQLite format 3"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LOCK_FILE = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a lock file is opened: a link that somebody put there is not followed, a pipe is not waited for, nothing is cut."""


before_keep: ContextVar[Callable[[Path], None] | None] = ContextVar("before_keep", default=None)
"""Called with the path of each file just before it appears under its final name, while the lock is still held."""


class Part:
    """A temporary file beside `target`. Write to `stream`; `keep` renames the file to the target, `drop` removes it.

    The target is locked until then; the kernel releases the lock if the process dies. Raises UsageError if another run is
    writing the target, InputError if the target is an SQLite database such as a cache, and OSError.
    """

    def __init__(self, target: Path, name: str = "") -> None:
        self.target, name = target, name or str(target)
        refuse_database(target, name)
        self._lock: int | None = _locked(_beside(target, "lock"), name)
        try:
            # left by a killed process: the lock shows that nobody else is writing here now
            for left in target.parent.glob(f".{escape(target.name)}.{'[0-9a-f]' * 16}.part*"):
                with suppress(OSError):
                    left.unlink()
            self.path = _beside(target, f"{token_hex(8)}.part")
            self.stream = os.fdopen(os.open(self.path, _NEW, 0o666), "wb", buffering=1 << 20)
        except BaseException:
            self._release()
            raise

    def keep(self) -> None:
        """Move the finished file to the target."""
        self.stream.close()
        if (announce := before_keep.get()) is not None:
            announce(self.target)
        self.path.replace(self.target)
        self._release()

    def drop(self) -> None:
        """Remove the temporary file, unless it was kept."""
        if self._lock is not None:
            with suppress(OSError):
                self.stream.close()
            self.path.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            _beside(self.target, "lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a small file atomically. An existing symlink is replaced, not followed. A device or pipe is written directly.
    Raises as Part does."""
    target = Path(path)
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    part = Part(target, str(path))
    try:
        part.stream.write(content)
        part.keep()
    finally:
        part.drop()


def refuse_database(target: Path, name: str) -> None:
    """Raise InputError if `target` is an SQLite database: replacing a cache would lose all its replies."""
    if not target.is_file():
        return
    with target.open("rb") as stream:
        if stream.read(len(SQLITE)) == SQLITE:
            raise InputError(
                name, "this is an SQLite database, perhaps a cache; it is not overwritten", "choose another output"
            )


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(f".{target.name}.{ending}")


def _locked(path: Path, name: str) -> int:
    """Lock the file at `path`; the holder removes it. Raises UsageError if another run holds the lock."""
    while True:
        held = os.open(path, LOCK_FILE, 0o666)
        try:
            flock(held, LOCK_EX | LOCK_NB)
            if os.path.samestat(os.fstat(held), os.lstat(path)):
                return held
        except FileNotFoundError:
            pass  # removed by its holder between opening and locking
        except BlockingIOError:
            os.close(held)
            raise UsageError(f"{name} is being written by another run; let it finish or choose another output") from None
        except OSError as error:
            if error.errno in (ENOLCK, ENOTSUP):  # a file system without locks
                return held
            os.close(held)
            raise
        os.close(held)


class _Sink(Protocol):
    def write(self, data: bytes, /) -> Any: ...
    def close(self) -> None: ...


class RecordWriter:
    """Writes rows to `path` as JSONL, or by suffix as .json (an array), .csv, .tsv, .gz, .zst or .parquet; "-" is stdout.

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
        self._delimiter = ""
        self._streams: list[_Sink] = []
        if self._name == "-":
            self._out: _Sink = sys.stdout.buffer
            return
        self._array = self._name.endswith((".json", ".json.gz", ".json.zst"))
        self._parquet = self._name.endswith(".parquet")
        self._delimiter = delimiter_of(self._name)
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

    @property
    def readable(self) -> Path | None:
        """The temporary file with the rows so far, one per line; None for compressed output, an array, a pipe and stdout.

        Its name is random, so that nobody else can put a file there before.
        """
        plain = self._part is not None and self._out is self._part.stream and not self._array
        return self._part.path if plain and self._part is not None else None

    def flush(self) -> None:
        """Write all rows so far to the file, if it can be read before it is complete. A full disk is reported by `write`."""
        if self.readable is not None and self._part is not None:
            with suppress(OSError, ValueError):
                self._part.stream.flush()

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
            if self._parquet or self._delimiter:
                self._converted(self._part)
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
            self._parquet, self._delimiter = False, ""
            return self._keep(target.open("wb"))
        if self._parquet:
            extra("pyarrow", "parquet", f"writing {self._name}")
        if self._name.endswith(".zst"):
            extra("zstandard", "zstd", f"writing {self._name}")
        self._part = Part(target, self._name)
        raw = self._keep(self._part.stream)
        return raw if self._delimiter else self._compressed(raw)

    def _compressed(self, raw: BinaryIO) -> BinaryIO:
        """The stream that compresses to `raw` as the name says; `raw` itself for other names."""
        if self._name.endswith(".gz"):
            import gzip

            # mtime 0 and no file name: equal rows give equal files
            return self._keep(gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0))
        if self._name.endswith(".zst"):
            import zstandard

            return self._keep(zstandard.ZstdCompressor(level=3, write_checksum=True).stream_writer(raw, closefd=False))
        return raw

    def _abandon(self) -> None:
        if self._part is not None:
            self._part.drop()
            self._part = None

    def _keep(self, stream: Any) -> BinaryIO:
        self._streams.append(stream)
        return stream  # type: ignore[no-any-return]

    def _converted(self, part: Part) -> None:
        """Convert the rows, which were written as JSONL, to Parquet or a table, whose columns are those of all rows."""
        columns = part.path.with_name(part.path.name + ".columns")
        try:
            if self._parquet:
                write_parquet(part.path, columns)
            else:
                from critic_prm.data.records.table import write_table

                with columns.open("wb") as raw:
                    out = self._compressed(raw)
                    write_table(part.path, out, self._delimiter)
                    for stream in reversed(self._streams):
                        stream.close()
                    self._streams = []
            columns.replace(part.path)
        finally:
            columns.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> InputError:
        missing = not self._target.parent.is_dir()
        what = f"the folder {self._target.parent} does not exist" if missing else error.strerror or str(error)
        fix = "make the folder first" if missing else "choose another output"
        return InputError(self._name, f"cannot be written: {what}", fix)


def encode(row: Any, name: str = "row") -> bytes:
    """Encode one row as a line of UTF-8 JSON. NaN and infinity become null. Raises InputError for values JSON lacks."""
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        pass  # lone surrogates and integers beyond 64 bits, which only the slower encoder supports
    try:
        return json.dumps(row, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise InputError(name, f"a row holds what JSON cannot represent: {error}") from None


def write_records(path: str | Path, rows: Iterable[Any]) -> int:
    """Write `rows` to `path` (see RecordWriter) and return their number."""
    with RecordWriter(path) as writer:
        for row in rows:
            writer.write(row)
    return writer.rows


@contextmanager
def new_folder(out: str | Path, mark: str, noun: str) -> Iterator[Path]:
    """Yield an empty folder to fill. It is renamed to `out` if the block succeeds and removed if it fails.

    An existing `out` is replaced if it is an empty folder or contains the file `mark`. Raises UsageError for anything else
    there, calling it `noun`, and InputError if `out` cannot be written.
    """
    target = Path(out)
    check_replaceable(target, mark, noun)
    place = target.absolute()
    work = place.with_name(f".{place.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    signals.note(str(target), "was not written")
    try:
        work.mkdir(parents=True)
        yield work
        _put(work, place)
        signals.note(str(target), "is complete")
    except OSError as error:
        raise InputError(str(target), f"cannot be written: {error.strerror or error}", "choose another folder") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def check_replaceable(target: Path, mark: str, noun: str) -> None:
    """Raise UsageError unless `target` is missing, an empty folder or a folder with the file `mark`, called a `noun`."""
    if target.exists() and not (target / mark).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is not {'an' if noun[0] in 'aeiou' else 'a'} {noun}; choose a new folder")


def _put(work: Path, target: Path) -> None:
    """Move the finished folder to the target. An earlier one is moved aside, and removed last or restored on failure."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    try:
        work.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
