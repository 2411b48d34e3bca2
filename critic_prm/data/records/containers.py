"""Open record files: stream their bytes decompressed, identify files without records, and read and write Parquet."""

from __future__ import annotations

import io
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from critic_prm.errors import InputError
from critic_prm.registry import extra

CHUNK = 1 << 20
PARQUET = b"PAR1"
_SLICE = 1 << 10
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"

# File types recognized by their first bytes, and how to fix the problem.
_NOT_RECORDS: tuple[tuple[bytes, str, str], ...] = (
    (b"version https://git-lfs", "a Git-LFS pointer, not the data", "fetch the file itself with: git lfs pull"),
    (PARQUET, "a parquet file, which cannot be read from a pipe", "give it as a file"),
    (b"\x89PNG", "a PNG image", ""),
    (b"\xff\xd8\xff", "a JPEG image", ""),
    (b"%PDF", "a PDF document", "copy its text into a .txt file"),
    (b"PK\x03\x04", "a ZIP archive (or an .xlsx, .docx or .npz file)", "unpack it and give the JSON inside"),
    (b"7z\xbc\xaf", "a 7-Zip archive", "unpack it"),
    (b"BZh", "a bzip2 file", "unpack it with: bunzip2"),
    (b"\xfd7zXZ", "an xz file", "unpack it with: unxz"),
    (b"SQLite format 3", "an SQLite database", "a cache is read with: critic-prm cache export"),
    (b"\x89HDF", "an HDF5 file", "export it as JSONL"),
    (b"ARROW1", "an Arrow file", "export it as parquet or JSONL"),
    (b"Obj\x01", "an Avro file", "export it as JSONL"),
    (b"\x7fELF", "a program", ""),
    (b"\x80\x02", "a Python pickle, which is never opened", "export it as JSONL"),
    (b"\x80\x03", "a Python pickle, which is never opened", "export it as JSONL"),
    (b"\x80\x04", "a Python pickle, which is never opened", "export it as JSONL"),
    (b"\x80\x05", "a Python pickle, which is never opened", "export it as JSONL"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8, for example with: iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8, for example with: iconv -f UTF-16 -t UTF-8"),
)


def name_of(path: str | Path) -> str:
    """Name of a path for messages."""
    return "stdin" if str(path) == "-" else str(path)


DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""The delimiter that is written, by the suffix of the file. Reading also accepts `;` and `|`, whatever the suffix."""


def delimiter_of(name: str) -> str:
    """The delimiter of an output called `name`, "" if its suffix is not that of a table."""
    return next((mark for suffix, mark in DELIMITERS.items() if name.endswith((suffix, f"{suffix}.gz", f"{suffix}.zst"))), "")


_REPOSITORY = re.compile(r"[A-Za-z0-9][\w-]*/[A-Za-z0-9][\w-]*")


@contextmanager
def open_input(path: str | Path) -> Iterator[BinaryIO]:
    """Open `path` ("-" is stdin) for reading bytes. Raises InputError for a missing file, a directory or denied access."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(path).open("rb")  # noqa: SIM115  (closed below; opening apart keeps errors of the body out)
    except FileNotFoundError:
        fix = "check the path; - reads stdin"
        if _REPOSITORY.fullmatch(str(path)):
            fix += f"; a data set of the Hugging Face Hub is hf:{path}"
        raise InputError(str(path), "there is no such file", fix) from None
    except IsADirectoryError:
        from critic_prm.data.formats.mistaken import mistaken

        raise mistaken(path, "solutions") or InputError(str(path), "this is a folder", "name one file in it") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be opened: {error.strerror or error}") from None
    with stream:
        yield stream


def chunks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Yield the bytes of `stream` in chunks of about 1 MB, decompressed if gzip or zstd, without a UTF-8 byte order mark.

    Raises InputError that names the file type if the stream is empty, binary, UTF-16, HTML, a Git-LFS pointer or truncated.
    """
    raw = _raw(stream)
    first = _head(raw)
    if first.startswith(_GZIP):
        raw = _gunzip(first, raw, name)
        first = _head(raw)
    elif first.startswith(_ZSTD):
        raw = _unzstd(first, raw, name)
        first = _head(raw)
    refuse(first, name)
    yield first.removeprefix(b"\xef\xbb\xbf")
    yield from raw


def peek(path: str | Path) -> bytes:
    """The first bytes of a file, not decompressed, to recognize Parquet before streaming; empty for stdin."""
    if str(path) == "-":
        return b""
    with open_input(path) as stream:
        try:
            return stream.read(64)
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None


def refuse(head: bytes, name: str) -> None:
    """Raise InputError if the first bytes of the content show that the file does not contain records."""
    if not head:
        raise InputError(name, "the file is empty")
    for magic, what, fix in _NOT_RECORDS:
        if head.startswith(magic):
            raise InputError(name, f"this is {what}", fix)
    start = head.removeprefix(b"\xef\xbb\xbf")[:4096].lstrip()
    if start[:14].lower().startswith((b"<!doctype html", b"<html", b"<head")):
        if b"critic-prm" in start:
            raise InputError(name, "this is a report of critic-prm, not data", "give the label file that it shows")
        raise InputError(name, "this is an HTML page, not data", "download the raw file; this may be a login or error page")
    if b"\x00" in head[:4096]:
        raise InputError(name, "this is a binary file", "records are JSONL, JSON, CSV, their .gz or .zst, or parquet")
    if start.startswith(b"<"):
        raise InputError(name, "this is XML or HTML, not data", "export it as JSONL")


def _raw(stream: BinaryIO) -> Iterator[bytes]:
    # read1 returns what a pipe has available; read would wait for a full megabyte
    read = stream.read1 if isinstance(stream, io.BufferedReader) else stream.read
    while chunk := read(CHUNK):
        yield chunk


def _head(raw: Iterator[bytes]) -> bytes:
    """At least the first 4096 bytes or a full line, so that a slow pipe cannot hide what the content is."""
    head = b""
    for chunk in raw:
        head += chunk
        if len(head) >= 4096 or b"\n" in head:
            break
    return head


def _gunzip(first: bytes, rest: Iterator[bytes], name: str) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=31)
    feed = iter((first,))
    data = b""
    try:
        while True:
            data = data or next(feed, b"") or next(rest, b"")
            if not data:
                if not member.eof:
                    raise InputError(name, "the gzip file is cut off", "copy it again; it ends before its end mark")
                return
            if member.eof:
                if not data.strip(b"\x00"):  # padding after the last member
                    data = b""
                    continue
                member = zlib.decompressobj(wbits=31)
            out = member.decompress(data, CHUNK)
            data = member.unused_data if member.eof else member.unconsumed_tail
            if out:
                yield out
    except zlib.error as error:
        raise InputError(name, f"the gzip file is damaged: {error}", "copy it again") from None


def _unzstd(first: bytes, rest: Iterator[bytes], name: str) -> Iterator[bytes]:
    zstandard = extra("zstandard", "zstd", f"reading {name}")
    # Small slices bound the output per call: four bytes can decompress to a block of 128 KB, so one slice to 32 MB.
    slices = (data[at : at + _SLICE] for data in chain(first, rest) for at in range(0, len(data), _SLICE))
    try:
        for data in slices:
            while data:
                frame = zstandard.ZstdDecompressor().decompressobj()
                while True:
                    if out := frame.decompress(data):
                        yield out
                    if frame.eof:
                        data = frame.unused_data
                        break
                    data = next(slices, b"")
                    if not data:
                        raise InputError(name, "the zstd file is cut off", "copy it again; it ends before its end mark")
    except zstandard.ZstdError as error:
        raise InputError(name, f"the zstd file is damaged: {error}", "copy it again") from None


def chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    """Yield `first`, then the chunks of `rest`."""
    yield first
    yield from rest


_BATCH = 1024
_MARK = {b"critic_prm": b"json"}
"""Field metadata of a column stored as JSON text: objects, or values of mixed types."""


def read_parquet(path: str | Path) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the columns of a Parquet file and each row as an object. Null values are omitted because Arrow cannot distinguish
    null from absent, and columns with bytes, such as images, because JSON has none."""
    extra("pyarrow", "parquet", f"reading {path}")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            coded = [field.name for field in file.schema_arrow if field.metadata and _MARK.items() <= field.metadata.items()]
            number, columns = 0, tuple(file.schema_arrow.names)
            texts = [field.name for field in file.schema_arrow if not is_binary(field.type)]
            for batch in file.iter_batches(batch_size=_BATCH, columns=None if len(texts) == len(columns) else texts):
                for row in batch.to_pylist():
                    number += 1
                    for name in coded:
                        if row.get(name) is not None:
                            row[name] = _decoded(row[name], name, f"{path}:{number}")
                    yield columns, {name: value for name, value in row.items() if value is not None}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = str(error).split("\n")[0][:200]
        raise InputError(str(path), f"the parquet file cannot be read: {problem}", "it may be cut off; copy it again") from None


def is_binary(kind: Any) -> bool:
    """Whether values of an Arrow type hold bytes, also within lists and structs."""
    import pyarrow.types as types

    inner = any(is_binary(kind.field(index).type) for index in range(kind.num_fields)) if kind.num_fields else False
    return inner or types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def _decoded(value: Any, column: str, where: str) -> Any:
    try:
        return orjson.loads(value)
    except (TypeError, ValueError):
        fix = "write the column without the metadata `critic_prm: json`, or as JSON"
        raise InputError(where, f"column {column!r} is marked as JSON and holds {str(value)[:40]!r}", fix) from None


def write_parquet(lines: Path, target: Path) -> None:
    """Convert a JSONL file to Parquet in two passes: infer the column types, then write the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = _kinds(rows_of(lines))
    schema = pa.schema([_field(pa, name, kind) for name, kind in kinds.items()])
    coded = {name for name, kind in kinds.items() if kind == "json"}
    rows = rows_of(lines)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            for row in batch:
                for name in coded & row.keys():
                    row[name] = orjson.dumps(row[name]).decode()
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def columns_as_text(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as tables with typed columns need them: each has all columns, and columns of objects or of mixed types are JSON."""
    kinds = _kinds(rows)
    coded = {name for name, kind in kinds.items() if kind == "json"}

    def cell(row: Mapping[str, Any], name: str) -> Any:
        return orjson.dumps(row[name]).decode() if name in coded & row.keys() else row.get(name)

    return [{name: cell(row, name) for name in kinds} for row in rows]


def _kinds(rows: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """The column types of rows, by column."""
    kinds: dict[str, str | None] = {}
    for row in rows:
        for name, value in row.items():
            kinds[name] = _merge(kinds.get(name), _kind(value))
    return kinds


def rows_of(lines: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSONL file that this package wrote."""
    with lines.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            row = orjson.loads(line)
            if not isinstance(row, dict):
                raise InputError(f"row {number}", "a table holds objects only", "write JSONL instead")
            yield row


def _kind(value: Any) -> str | None:
    """The column type of one value: "bool", "int", "float", "text", "list <kind>", "json", or None for null."""
    if isinstance(value, list):
        kind: str | None = None
        for item in value:
            kind = _merge(kind, _kind(item))
        return "json" if kind == "json" else f"list {kind or ''}".rstrip()
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "json"
    names = {float: "float", str: "text", type(None): None}
    return names.get(type(value), "json")


def _merge(one: str | None, other: str | None) -> str | None:
    if one == other or other is None:
        return one
    if one is None:
        return other
    if one.startswith("list") and other.startswith("list"):
        inner = _merge(one[5:] or None, other[5:] or None)
        return "json" if inner == "json" else f"list {inner or ''}".rstrip()
    return "json"


def _field(pa: Any, name: str, kind: str | None) -> Any:
    return pa.field(name, _arrow(pa, kind), metadata=_MARK if kind == "json" else None)


def _arrow(pa: Any, kind: str | None) -> Any:
    if kind is not None and kind.startswith("list"):
        return pa.list_(_arrow(pa, kind[5:] or None))
    types = {"bool": pa.bool_, "int": pa.int64, "float": pa.float64, "text": pa.string, "json": pa.string, None: pa.string}
    return types[kind]()
