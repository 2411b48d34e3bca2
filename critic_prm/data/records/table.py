"""Read and write CSV and TSV: a header, then one record per row, with lists and objects as JSON in their cells."""

from __future__ import annotations

import ast
import csv
import io
import itertools
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from critic_prm.data.records.containers import delimiter_of, rows_of
from critic_prm.errors import InputError

TEXTS = frozenset(
    {
        *("id", "problem", "question", "prompt", "query", "instruction", "input", "text"),
        *("solution", "response", "output", "answer", "final_answer", "gold_answer"),
    }
)
"""Columns whose cells are never parsed: a problem or an answer may well be "[1, 2]"."""

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_LONG_NAME = 100
_LITERAL = 1 << 20
"""Longest cell, in characters, that is parsed as a Python literal."""

Bad = Callable[[InputError], None]


def is_table(head: bytes, name: str) -> bool:
    """Whether a text that does not start like JSON is a table: by the suffix of its name, or because its first line is a list
    of distinct identifiers."""
    if delimiter_of(name):
        return True
    line = head.lstrip().partition(b"\n")[0].decode("utf-8", "replace").strip()
    cells = _cells(line, _delimiter(line))
    return len(set(cells)) == len(cells) > 1 and all(map(_NAME.fullmatch, cells))


def rows_in(lines: Iterator[bytes], name: str, longest: int, bad: Bad) -> Iterator[tuple[int, tuple[str, ...], dict[str, Any]]]:
    """Yield (line it starts on, columns, row) for each row after the header. `lines` are without their line feeds.

    Empty cells are omitted. A cell that holds a JSON list or object, or a Python one as written by pandas, becomes that value,
    except in the columns TEXTS. A row that cannot be read is passed to `bad`. Raises InputError for a missing header, and for a
    row of more than `longest` bytes.
    """
    csv.field_size_limit(max(longest, csv.field_size_limit()))
    feed = _Feed(lines, name, longest)
    first = next(feed, "")
    reader = csv.reader(_with(first, feed), delimiter=_delimiter(first), strict=True)
    try:
        header = _header(next(reader, []), f"{name}:1")
    except csv.Error as error:
        raise InputError(
            f"{name}:1", f"the header cannot be read: {error}", "write the column names on the first line"
        ) from None
    while True:
        feed.size, line = 0, feed.line + 1
        where = f"{name}:{line}"
        try:
            cells = next(reader)
            if cells:
                yield line, header, _row(header, cells, where)
        except StopIteration:
            return
        except _Fatal:
            raise
        except csv.Error as error:
            bad(
                InputError(
                    where, _broken(error), 'quote a cell with a comma, a quote or a line feed, and double its quotes ("")'
                )
            )
        except InputError as error:
            bad(error)


class _Feed:
    """The decoded lines of a table. `size` counts the bytes since it was last set to 0."""

    def __init__(self, lines: Iterator[bytes], name: str, longest: int) -> None:
        self._lines, self._name, self._longest = lines, name, longest
        self.line = self.size = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.line += 1
        self.size += len(line) + 1
        where = f"{self._name}:{self.line}"
        if self.size > self._longest:
            fix = "close the quote, or split the row"
            raise _Fatal(where, f"the row that ends here or later has more than {self._longest >> 20} MB", fix)
        try:
            return line.decode("utf-8") + "\n"
        except UnicodeDecodeError as error:
            raise InputError(where, f"invalid UTF-8 at byte {error.start + 1} of the line", "save the file as UTF-8") from None


class _Fatal(InputError):
    """An error after which the rest of the file cannot be read."""


def _with(first: str, rest: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
    yield from rest


def _delimiter(line: str) -> str:
    """The delimiter that divides a header into the most cells; a comma if none does."""
    return max(",;\t|", key=lambda mark: len(_cells(line, mark)))


def _cells(line: str, delimiter: str) -> list[str]:
    """The cells of one line; none if it is not CSV."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _header(cells: list[str], where: str) -> tuple[str, ...]:
    names = [cell.strip() for cell in cells]
    if names and not names[0]:
        names[0] = "index"  # pandas writes its index without a name
    fix = "write the names of the columns on the first line, such as id,problem,steps"
    if not names:
        raise InputError(where, "the table has no header", fix)
    for name in names:
        if not name or len(name) > _LONG_NAME or "\n" in name or name[0] in "[{" or _is_number(name):
            raise InputError(where, f"the first line is no header: it holds {_short(name)}", fix)
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InputError(where, f"two columns are called {_short(twice)}", "give every column its own name")
    return tuple(names)


def _row(header: tuple[str, ...], cells: list[str], where: str) -> dict[str, Any]:
    if len(cells) != len(header):
        problem = f"this row has {len(cells)} cells and the header {len(header)}"
        raise InputError(where, problem, "quote a cell that contains the delimiter or a line feed")
    return {name: _value(name, cell, where) for name, cell in zip(header, cells, strict=True) if cell}


def _value(name: str, text: str, where: str) -> Any:
    if text.lstrip()[:1] not in ("[", "{") or name.lower() in TEXTS:
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return _literal(name, text, where) if len(text) <= _LITERAL else text


def _literal(name: str, text: str, where: str) -> Any:
    """The list or dict that pandas wrote with repr(), or the text unchanged if it is something else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # repr() writes no invalid escapes
            value = ast.literal_eval(text.strip())
        orjson.dumps(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return text
    kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline) if token.type != tokenize.NL]
    if any(one == other == tokenize.STRING for one, other in itertools.pairwise(kinds)):
        problem = f"column {name!r} holds a NumPy array printed as text, in which the commas are missing"
        raise InputError(where, problem, "write lists as JSON: df[column] = df[column].map(list).map(json.dumps)")
    return value


def _broken(error: csv.Error) -> str:
    text = str(error)
    if "end of data" in text:
        return "a quote that opens in this row is never closed"
    if "new-line" in text:
        return "the lines end in \\r alone"
    return f"this row is not valid CSV: {text}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def write_table(lines: Path, out: BinaryIO, delimiter: str) -> None:
    """Convert a JSONL file to a table in two passes: collect the columns, then write the rows.

    Lists and objects are written as JSON, null and missing values as empty cells.
    """
    columns = list({name: None for row in rows_of(lines) for name in row})
    text = io.TextIOWrapper(out, encoding="utf-8", errors="surrogatepass", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_written(row.get(name)) for name in columns] for row in rows_of(lines))
    text.flush()
    text.detach()


def _written(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return orjson.dumps(value).decode()
