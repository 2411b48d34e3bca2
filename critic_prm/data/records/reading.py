"""Stream records with line numbers from JSONL, JSON, CSV and Parquet files, data sets of the Hugging Face Hub, or stdin."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import orjson

from critic_prm.data.records.containers import PARQUET, chain, chunks, name_of, open_input, peek
from critic_prm.data.records.writing import RecordWriter, encode, write_records, write_whole
from critic_prm.errors import InputError

__all__ = [
    "Complain",
    "OnError",
    "Record",
    "RecordWriter",
    "encode",
    "read_records",
    "records_in",
    "write_records",
    "write_whole",
]

LONGEST = 1 << 26
"""Maximum size of a record in bytes. A compressed file of one megabyte may contain a line of one gigabyte."""

EMPTY = "the file is empty"
HUB = "hf:"
"""Starts the name of a data set of the Hugging Face Hub."""

OnError = Literal["stop", "skip"]
Complain = Callable[[InputError], None]


@dataclass(frozen=True, slots=True)
class Record:
    """One record and its location. `line` is 1-based: the line it starts on, or the row of a Parquet file."""

    line: int
    where: str
    data: Any
    columns: tuple[str, ...] = ()
    """The columns of a table (CSV, Parquet), in whose rows null values are missing; () for JSON."""


def read_records(path: str | Path, *, on_error: OnError = "stop", complain: Complain | None = None) -> Iterator[Record]:
    """Stream the records of a file in bounded memory. The file type is detected from the content, not from the name.

    Supports JSONL, JSON arrays (element by element), JSON objects (one or several) and CSV, each also as gzip or zstd, and
    Parquet. "-" is stdin, and "hf:owner/name" a data set of the Hugging Face Hub (see `hub`). Raises InputError with file, line
    and suggested fix, also for a file without records. With on_error="skip", a broken line is passed to `complain` and skipped.
    Only lines can be skipped: a broken JSON array or multi-line object ends the stream.
    """
    name = name_of(path)
    if name.startswith(HUB):
        from critic_prm.data.records.hub import read_hub

        yield from _numbered(read_hub(name), name)
        return
    if peek(path).startswith(PARQUET):
        from critic_prm.data.records.containers import read_parquet

        yield from _numbered(read_parquet(path), name)
        return
    tell = complain or (lambda error: None)
    with open_input(path) as stream:
        source = chunks(stream, name)
        yield from records_in(source, name, on_error, tell)


def _numbered(rows: Iterable[tuple[tuple[str, ...], dict[str, Any]]], name: str) -> Iterator[Record]:
    """The rows of a table, which come with its columns. Raises InputError if there are none."""
    number = 0
    for number, (columns, row) in enumerate(rows, 1):
        yield Record(number, f"{name}:{number}", row, columns)
    if not number:
        raise InputError(name, EMPTY)


def records_in(source: Iterator[bytes], name: str, on_error: OnError, complain: Complain) -> Iterator[Record]:
    """Parse the records of a text that arrives in chunks. `name` identifies it in messages. See `read_records`."""
    head = b""
    while chunk := next(source, b""):
        first, head = not head, head + chunk
        # only the end of a line can settle an undecided case, so a long line is not parsed again for every chunk
        if len(head) > LONGEST or (not chunk.isspace() and (first or b"\n" in chunk) and _decided(head)):
            break
    if not head.strip() and len(head) <= LONGEST:
        raise InputError(name, EMPTY)
    if _is_document(head):
        yield from _document(head, source, name)
    elif _is_table(head, name):
        yield from _table(head, source, name, on_error, complain)
    else:
        yield from _lines(head, source, name, on_error, complain)


def _is_table(head: bytes, name: str) -> bool:
    """Whether the text is CSV or TSV. JSON starts with a bracket, as no header does."""
    if head.lstrip().startswith((b"{", b"[")):
        return False
    from critic_prm.data.records.table import is_table

    return is_table(head, name)


def _table(head: bytes, source: Iterator[bytes], name: str, on_error: OnError, complain: Complain) -> Iterator[Record]:
    from critic_prm.data.records.table import rows_in

    skipped: list[InputError] = []

    def bad(error: InputError) -> None:
        if on_error == "stop":
            raise error
        skipped[:] = [error]
        complain(error)

    empty = True
    for line, columns, row in rows_in(_split(head, source, name), name, LONGEST, bad):
        empty = False
        yield Record(line, f"{name}:{line}", row, columns)
    if empty and not skipped:
        raise InputError(name, "the table has a header and no rows")


def _decided(head: bytes) -> bool:
    """Whether `head` is enough to tell a document from lines: an opening bracket, one complete record, or two lines."""
    text = head.lstrip()
    first, *others = text.split(b"\n", 2)
    return text.startswith(b"[") or len(others) == 2 or (len(others) == 1 and _parses(first))


def _is_document(head: bytes) -> bool:
    """Whether the text is an array or a multi-line object, rather than one record per line."""
    text = head.lstrip()
    if text.startswith(b"["):
        return True
    first, *others = text.split(b"\n", 2)
    if not text.startswith(b"{") or not others or _parses(first):
        return False
    # `{"a": 1,` may start a multi-line object or be a torn line; a complete record on the next line means it is torn
    return _unfinished(first) and not (_parses(others[0]) and not first.rstrip().endswith((b"[", b":")))


def _parses(line: bytes) -> bool:
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        return False
    return True


def _unfinished(line: bytes) -> bool:
    """Whether a line ends where JSON allows a line break (so not within a string)."""
    text = line.decode("utf-8", "replace").rstrip()
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos >= len(text) and not error.msg.startswith("Unterminated")
    except (ValueError, RecursionError):  # an integer with too many digits, or brackets nested too deeply
        return False
    return False


def _lines(head: bytes, source: Iterator[bytes], name: str, on_error: OnError, complain: Complain) -> Iterator[Record]:
    loads = orjson.loads
    number = 0
    for number, line in enumerate(_split(head, source, name, _CUT), 1):
        if not line or line.isspace():
            continue
        try:
            data = loads(line)
        except orjson.JSONDecodeError:
            try:
                data = _second_opinion(line, f"{name}:{number}")
            except InputError as error:
                if on_error == "stop":
                    raise
                complain(error)
                continue
        yield Record(number, f"{name}:{number}", data)


_CUT = b"\x00cut"
"""Appended to a last line without a newline that is not JSON; JSON text cannot contain an unescaped NUL."""


def _split(head: bytes, source: Iterator[bytes], name: str, cut: bytes = b"") -> Iterator[bytes]:
    """Split into lines at b"\\n" only: U+2028, form feeds and the like are content. `cut` is appended to a torn last line."""
    pending, size, number = list[bytes](), 0, 1
    for chunk in chain(head, source):
        first, *parts = chunk.split(b"\n")
        pending.append(first)
        size += len(first)
        if size > LONGEST:
            raise _too_long(f"{name}:{number}")
        if not parts:
            continue
        yield b"".join(pending)
        pending = [parts.pop()]
        yield from parts
        size, number = len(pending[0]), number + 1 + len(parts)
    last = b"".join(pending)
    if last:
        yield last if not cut or _parses(last) else last + cut


def _too_long(where: str) -> InputError:
    return InputError(where, f"the record has more than {LONGEST >> 20} MB", "split it, or check that the file is not corrupt")


def _second_opinion(line: bytes, where: str) -> Any:
    """Parse a line that orjson rejected. Returns the value if it is valid (lone surrogates as escapes), else raises an
    InputError that says what is wrong."""
    cut = line.endswith(_CUT)
    line = line.removesuffix(_CUT)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(where, f"invalid UTF-8 at byte {error.start + 1} of the line", "save the file as UTF-8") from None
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _say_broken(text, error, where, cut) from None
    except (ValueError, RecursionError) as error:
        raise InputError(where, _numbers(error), NUMBER_MEND) from None


def _say_broken(text: str, error: json.JSONDecodeError, where: str, cut: bool) -> InputError:
    if cut and text.lstrip().startswith(("{", "[")):
        return InputError(
            where, f"the last line is cut off after {len(text)} characters", "the file was not written or copied to its end"
        )
    if text.lstrip()[:1] not in ("{", "["):
        shown = text.strip()[:40]
        return InputError(
            where,
            f"this is not JSON but {shown!r}",
            "a record is one JSON object per line; a table has the suffix .csv or .tsv",
        )
    near = text[max(0, error.pos - 10) : error.pos + 15]
    return InputError(where, f"broken JSON at column {error.pos + 1} (near {near!r}): {error.msg}", "fix or delete the line")


def _numbers(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply to be read"
    return "an integer has more than 4,300 digits" if "digits" in str(error) else str(error)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_PARTIAL = re.compile(r"[\w.+\\-]*\s*")  # empty, or the start of a number, a literal or an escape
_SPACE = re.compile(r"[ \t\r\n]*")


def _document(head: bytes, source: Iterator[bytes], name: str) -> Iterator[Record]:
    """Yield the elements of one array, or one or several multi-line objects."""
    text = _Text(head, source, name)
    if text.peek() != "[":
        while text.peek():
            line = text.line
            yield Record(line, f"{name}:{line}", text.value())
        return
    text.skip(1)
    count = 0
    while (mark := text.peek()) != "]":
        if count and mark != ",":
            raise InputError(text.where, f"the array goes on with {mark!r} instead of , or ]" if mark else CUT_ARRAY, CUT_MEND)
        if count:
            text.skip(1)
            text.peek()
        line, count = text.line, count + 1
        yield Record(line, f"{name}:{line} (record {count})", text.value())
    text.skip(1)
    if not count:
        raise InputError(name, EMPTY)
    if mark := text.peek():
        raise InputError(text.where, f"there is {mark!r} after the end of the array", "write one array, or one object a line")


CUT_ARRAY = "the array is not closed: the file is cut off"
NUMBER_MEND = "write null or leave the field out"
CUT_MEND = "the file was not written or copied to its end"


class _Text:
    """A sliding window over the text of a document: values are consumed from the front, and more text is read as needed."""

    def __init__(self, head: bytes, source: Iterator[bytes], name: str) -> None:
        self._decode = getincrementaldecoder("utf-8")()
        self._source, self._name = source, name
        self._text, self._pos, self.line, self._ended = "", 0, 1, False
        self._take(head)

    @property
    def where(self) -> str:
        return f"{self._name}:{self.line}"

    def peek(self) -> str:
        """The next non-space character, "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._pos)
            self._advance(match.end() if match else self._pos)
            if self._pos < len(self._text):
                return self._text[self._pos]
            if not self._fill(1):
                return ""

    def skip(self, length: int) -> None:
        self._advance(self._pos + length)

    def value(self) -> Any:
        """Parse the JSON value at the front. Raises InputError if it is broken or the file ends within it."""
        want = 1 << 16
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._pos)
            except json.JSONDecodeError as error:
                # only an error at the end of the window, or within an open string, can be caused by text not yet read
                early = error.pos < len(self._text) - 16 and not error.msg.startswith("Unterminated")
                if not early and len(self._text) - self._pos > LONGEST:
                    raise _too_long(self.where) from None
                if not early and self._fill(want):
                    want = len(self._text)
                    continue
                line = self.line + self._text.count("\n", self._pos, error.pos)
                where = f"{self._name}:{line}"
                cut = error.msg.startswith("Unterminated") or _PARTIAL.fullmatch(self._text, error.pos)
                if cut:
                    raise InputError(where, "the file is cut off within a record", CUT_MEND) from None
                column = error.pos - self._text.rfind("\n", 0, error.pos)
                raise InputError(where, f"broken JSON at column {column}: {error.msg}", "fix the file") from None
            except (ValueError, RecursionError) as error:
                raise InputError(self.where, _numbers(error), NUMBER_MEND) from None
            if end < len(self._text) or not self._fill(1):  # a number at the very end may continue
                self._advance(end)
                return value

    def _advance(self, position: int) -> None:
        self.line += self._text.count("\n", self._pos, position)
        self._pos = position

    def _fill(self, length: int) -> bool:
        """Read at least `length` more bytes. False at the end of the file."""
        if self._pos > 1 << 16:
            self._text, self._pos = self._text[self._pos :], 0
        read = 0
        while read < length and not self._ended:
            chunk = next(self._source, b"")
            self._ended = not chunk
            read += len(chunk)
            self._take(chunk)
        return read > 0

    def _take(self, chunk: bytes) -> None:
        try:
            self._text += self._decode.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            line = self.line + self._text.count("\n", self._pos) + chunk.count(b"\n", 0, error.start)
            raise InputError(f"{self._name}:{line}", "invalid UTF-8", "save the file as UTF-8") from None
