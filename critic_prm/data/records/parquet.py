"""Read and write Parquet files in batches; columns without a single Arrow type are stored as JSON text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from critic_prm.data.records.containers import extra
from critic_prm.errors import InputError

_BATCH = 1024
_MARK = {b"critic_prm": b"json"}
"""Field metadata of a column stored as JSON text: objects, or values of mixed types."""


def read_parquet(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet file as objects. Null values are omitted because Arrow cannot distinguish null
    from absent."""
    extra("pyarrow", "parquet", f"reading {path}")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            coded = [field.name for field in file.schema_arrow if field.metadata and _MARK.items() <= field.metadata.items()]
            number = 0
            for batch in file.iter_batches(batch_size=_BATCH):
                for row in batch.to_pylist():
                    number += 1
                    for name in coded:
                        if row[name] is not None:
                            row[name] = _decoded(row[name], name, f"{path}:{number}")
                    yield {name: value for name, value in row.items() if value is not None}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = str(error).split("\n")[0][:200]
        raise InputError(str(path), f"the parquet file cannot be read: {problem}", "it may be cut off; copy it again") from None


def _decoded(value: Any, column: str, where: str) -> Any:
    try:
        return orjson.loads(value)
    except (TypeError, ValueError):
        mend = "write the column without the mark `critic_prm: json`, or as JSON"
        raise InputError(where, f"column {column!r} is marked as JSON and holds {str(value)[:40]!r}", mend) from None


def write_parquet(lines: Path, target: Path) -> None:
    """Convert a JSONL file to Parquet in two passes: infer the column types, then write the rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds: dict[str, str | None] = {}
    for row in _rows(lines):
        for name, value in row.items():
            kinds[name] = _merge(kinds.get(name), _kind(value))
    schema = pa.schema([_field(pa, name, kind) for name, kind in kinds.items()])
    coded = {name for name, kind in kinds.items() if kind == "json"}
    rows = _rows(lines)
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH)):
            for row in batch:
                for name in coded & row.keys():
                    row[name] = orjson.dumps(row[name]).decode()
            writer.write_table(pa.Table.from_pylist(batch, schema=schema))


def _rows(lines: Path) -> Iterator[dict[str, Any]]:
    with lines.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            row = orjson.loads(line)
            if not isinstance(row, dict):
                raise InputError(f"row {number}", "parquet holds objects only", "write JSONL instead")
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
