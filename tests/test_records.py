"""Files of records: every container read and written, and every broken file named for what it is."""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
import tracemalloc
from collections import deque
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from critic_prm.data.records import containers
from critic_prm.data.records import reading as records
from critic_prm.data.records.reading import Record, RecordWriter, encode, read_records, write_records
from critic_prm.errors import ConfigError, InputError
from tests.effort import calls

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=8
)
ROWS = st.lists(st.dictionaries(st.text(min_size=1), VALUES, min_size=1, max_size=5), min_size=1, max_size=8)


def made(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def data(path: Path | str) -> list[Any]:
    return [record.data for record in read_records(path)]


def error_of(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        list(read_records(path))
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize("suffix", ["jsonl", "json", "jsonl.gz", "json.gz", "jsonl.zst", "odd"])
@given(rows=ROWS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read(tmp_path: Path, suffix: str, rows: list[Any]) -> None:
    path = tmp_path / f"rows.{suffix}"
    assert write_records(path, rows) == len(rows)
    assert data(path) == rows
    assert not list(tmp_path.glob(".*.part"))


@given(rows=ROWS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_parquet_keeps_everything_but_the_difference_of_null_and_absent(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    path = tmp_path / "rows.parquet"
    write_records(path, rows)
    assert data(path) == [{key: value for key, value in row.items() if value is not None} for row in rows]


def test_parquet_columns_of_one_type_are_plain_columns(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "rows.parquet"
    write_records(path, [{"id": "a", "steps": ["x"], "p": [0.5, None]}, {"id": "b", "steps": [], "p": None}])
    assert [str(kind) for kind in pq.read_schema(path).types] == ["string", "list<element: string>", "list<element: double>"]


def test_lines_are_split_on_newlines_alone(tmp_path: Path) -> None:
    odd = "a\u2028b\u2029c\x0bd\x85e\x1cf"
    path = made(tmp_path / "x.jsonl", json.dumps({"t": odd}, ensure_ascii=False).replace("\\u000b", "\\u000b") + "\r\n\n{}\r\n")
    records = list(read_records(path))
    assert [record.data for record in records] == [{"t": odd}, {}]
    assert records[1] == Record(3, f"{path}:3", {})


@pytest.mark.parametrize(
    "content",
    [
        '[{"a": 1}, {"a": [2]}]',
        '\n [\n {"a": 1},\n {"a": [2]}\n]\n',
        '{"a": 1}\n{"a": [2]}',
        '{"a": 1}\r\n{"a": [2]}\r\n',
        '{\n "a": 1\n}\n{\n "a": [\n2]\n}\n',
        '{"a":\n 1}\n{"a": [2]}\n',
        '\ufeff{"a": 1}\n{"a": [2]}\n',
        '\ufeff[{"a": 1}\n,{"a": [2]}]',
    ],
)
def test_the_container_is_told_by_the_content(tmp_path: Path, content: str) -> None:
    for name in ("x.jsonl", "x.json", "x"):
        assert data(made(tmp_path / name, content)) == [{"a": 1}, {"a": [2]}]
        assert data(made(tmp_path / name, gzip.compress(content.encode()))) == [{"a": 1}, {"a": [2]}]


def test_one_object_spread_over_lines_is_one_record(tmp_path: Path) -> None:
    assert data(made(tmp_path / "x.json", json.dumps({"a": {"b": [1, 2]}}, indent=1))) == [{"a": {"b": [1, 2]}}]
    with pytest.raises(InputError, match="the file is empty"):
        data(made(tmp_path / "y.json", "[]"))


def test_two_gzip_members_are_one_file(tmp_path: Path) -> None:
    assert data(made(tmp_path / "x.gz", gzip.compress(b'{"a":1}\n') + gzip.compress(b'{"a":2}\n'))) == [{"a": 1}, {"a": 2}]


def test_array_elements_know_their_line(tmp_path: Path) -> None:
    path = made(tmp_path / "x.json", '[\n{"a": 1},\n\n{"a":\n2}\n]')
    assert [(r.line, r.where) for r in read_records(path)] == [(2, f"{path}:2 (record 1)"), (4, f"{path}:4 (record 2)")]


def test_lone_surrogates_and_huge_integers_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    rows = [{"t": "a\ud83d b"}, {"n": 2**80}]
    write_records(path, rows)
    assert data(path)[0] == rows[0]
    assert str(2**80) in path.read_text("utf-8")


def test_not_a_number_is_never_written(tmp_path: Path) -> None:
    assert encode({"p": math.nan, "q": math.inf}) == b'{"p":null,"q":null}\n'
    with pytest.raises(InputError, match="JSON cannot represent"):
        encode({"p": math.nan, "n": 2**80})


def broken_seventh(bad: bytes) -> bytes:
    return b'{"a": 1}\n' * 6 + bad + b'\n{"a": 8}\n'


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b'{"a": 1,, "b": 2}', "broken JSON at column 9"),
        (b'{"a": "x', "broken JSON at column"),
        (b'{"a": "\xff"}', "invalid UTF-8 at byte 8"),
        (b'{"a": NaN}', "NaN is not JSON; write null"),
        (b"hello there", "this is not JSON but 'hello there'"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_broken_line_is_named_and_can_be_skipped(tmp_path: Path, bad: bytes, said: str) -> None:
    path = made(tmp_path / "x.jsonl", broken_seventh(bad))
    text = error_of(path)
    assert text.startswith(f"{path}:7: ")
    assert said in text
    complaints: list[InputError] = []
    rows = [r.line for r in read_records(path, on_error="skip", complain=complaints.append)]
    assert rows == [1, 2, 3, 4, 5, 6, 8]
    assert [error.where for error in complaints] == [f"{path}:7"]
    assert len(list(read_records(path, on_error="skip"))) == 7


def test_rows_before_the_broken_one_arrive_first(tmp_path: Path) -> None:
    source, out = made(tmp_path / "x.jsonl", broken_seventh(b"{")), tmp_path / "out.jsonl"
    with pytest.raises(InputError, match=":7:"):
        write_records(out, (r.data for r in read_records(source)))
    assert data(out) == [{"a": 1}] * 6


ZOO: list[tuple[str, bytes, str]] = [
    ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "a Git-LFS pointer, not the data; fetch"),
    ("html", b"  <!DOCTYPE html>\n<html><body>Sign in</body></html>", "an HTML page"),
    ("html2", b"<HTML><head>", "an HTML page"),
    ("xml", b"<?xml version='1.0'?><a/>", "XML or HTML"),
    ("png", b"\x89PNG\r\n\x1a\n0000", "a PNG image"),
    ("zip", b"PK\x03\x04aaaa", "a ZIP archive"),
    ("pickle", b"\x80\x04\x95aaaa", "a Python pickle, which is never opened"),
    ("sqlite", b"SQLite format 3\x00", "an SQLite database"),
    ("utf16", '{"a": 1}\n'.encode("utf-16"), "UTF-16 text; save it as UTF-8"),
    ("utf16le", '{"a": 1}\n'.encode("utf-16-le"), "a binary file"),
    ("binary", bytes(range(1, 32)) + b"\x00" * 9, "a binary file"),
    ("empty", b"", "the file is empty"),
    ("blank", b"\n \r\n\n", "the file is empty"),
    ("empty.gz", gzip.compress(b""), "the file is empty"),
    ("lfs.gz", gzip.compress(b"version https://git-lfs.github.com/spec/v1\n"), "a Git-LFS pointer"),
    ("cut.gz", gzip.compress(bytes(str(list(range(9999))), "ascii"))[:-20], "the gzip file is cut off"),
    ("bad.gz", gzip.compress(b'{"a": 1}\n')[:10] + b"\xff" * 20, "the gzip file is damaged"),
    ("parquet", b"PAR1 and nothing more", "the parquet file cannot be read"),
    ("torn", b'{"a": 1}\n{"a": [1, 2', ":2: the last line is cut off after 11 characters"),
    ("torn1", b'{"a": [1, 2', ":1: the last line is cut off"),
    ("array1", b'[{"a": 1}, {"a"', ":1: the file is cut off within a record"),
    ("array2", b'[{"a": 1},\n{"a": 2}\n', ":3: the array is not closed"),
    ("array3", b'[\n{"a": 1}\n{"a": 2}]', ":3: the array goes on with '{' instead of , or ]"),
    ("array4", b'[\n{"a": 1},\n{"a": tru}]', ":3: broken JSON at column"),
    ("array5", b'[{"a": 1}]\n[{"a": 2}]', ":2: there is '[' after the end of the array"),
    ("array6", b'[\n{"a": "' + b"\xff" + b'"}]', ":2: invalid UTF-8"),
    ("array7", b'[\n{"a": NaN}]', ":2: NaN is not JSON"),
    ("spread", b'{\n "a": 1\n "b": 2\n}', ":3: broken JSON"),
    ("text", b"The answer is 42.\nIndeed.", ":1: this is not JSON but 'The answer is 42.'"),
]


@pytest.mark.parametrize(("name", "content", "said"), ZOO, ids=[name for name, _, _ in ZOO])
def test_a_file_is_named_for_what_it_is(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = made(tmp_path / name, content)
    text = error_of(path)
    assert text.startswith(str(path))
    assert said in text


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    assert "there is no such file" in error_of(tmp_path / "none.jsonl")
    assert "this is a folder" in error_of(tmp_path)


def test_zstd_that_is_cut_or_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.zst"
    write_records(path, ({"a": i, "b": i * i % 977} for i in range(20_000)))
    whole = path.read_bytes()
    assert "the zstd file is cut off" in error_of(made(path, whole[:-30]))
    assert "the zstd file is damaged" in error_of(made(path, whole[:-4] + b"\x00" * 4))
    assert len(data(made(path, whole + whole))) == 40_000


def test_a_missing_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zstd, parquet = tmp_path / "x.zst", tmp_path / "x.parquet"
    write_records(zstd, [{"a": 1}])
    write_records(parquet, [{"a": 1}])
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for path, name, extra in ((zstd, "zstandard", "zstd"), (parquet, "pyarrow", "parquet")):
        with pytest.raises(ConfigError, match=rf"needs {name}; install it with: pip install '({name}>=|\.\[{extra}\])"):
            list(read_records(path))
        with pytest.raises(ConfigError, match=rf"needs {name}; install it with: pip install '({name}>=|\.\[{extra}\])"):
            write_records(path, [])


class Pipe:
    """Standard input or output with a buffer of bytes, as sys has them."""

    def __init__(self, content: bytes = b"") -> None:
        self.buffer = io.BufferedReader(io.BytesIO(content)) if content else io.BytesIO()


def test_standard_input_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe(b'{"a": 1}\n{"a": \n'))
    records = read_records("-")
    assert next(records) == Record(1, "stdin:1", {"a": 1})
    with pytest.raises(InputError, match=r"^stdin:2: broken JSON"):
        next(records)
    out = Pipe()
    monkeypatch.setattr(sys, "stdout", out)
    write_records("-", [{"a": 1}])
    assert isinstance(out.buffer, io.BytesIO)
    assert out.buffer.getvalue() == b'{"a":1}\n'


def test_parquet_from_a_pipe_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Pipe(b"PAR1\x00\x00\x00\x00"))
    assert "give it as a file" in error_of("-")


def test_an_output_appears_whole_or_with_the_rows_before_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with RecordWriter(path) as writer:
        writer.write({"a": 1})
        assert not path.exists()
    assert path.read_bytes() == b'{"a":1}\n'
    with pytest.raises(ZeroDivisionError):
        write_records(path, ({"a": 2 // (1 - n)} for n in range(2)))
    assert data(path) == [{"a": 2}]
    with pytest.raises(ZeroDivisionError):
        write_records(path, ({"a": 1 // n} for n in range(2)))
    assert data(path) == [{"a": 2}]
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize(
    ("place", "said"),
    [("no/such/out.jsonl", "does not exist; make the folder first"), ("", "cannot be written: it is a folder")],
)
def test_an_output_that_cannot_be_written(tmp_path: Path, place: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        write_records(tmp_path / place, [{"a": 1}])


def test_a_full_disk_is_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full on this system")
    with pytest.raises(InputError, match="/dev/full: cannot be written: No space left on device"):
        write_records("/dev/full", ({"a": "x" * 100} for _ in range(100_000)))


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = made(tmp_path / "target.jsonl", ""), tmp_path / "link.jsonl"
    link.symlink_to(target)
    write_records(link, [{"a": 1}])
    assert link.is_symlink()
    assert data(target) == [{"a": 1}]


def test_equal_rows_give_equal_gzip_files(tmp_path: Path) -> None:
    write_records(tmp_path / "a.gz", [{"a": 1}])
    write_records(tmp_path / "b.gz", [{"a": 1}])
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def row(number: int) -> dict[str, Any]:
    return {"id": f"r{number}", "problem": "What is 6*7?", "steps": ["6*7=42", "So 42"], "label": -1}


WRITERS: dict[str, Callable[[Path], object]] = {
    "x.jsonl": lambda path: write_records(path, map(row, range(200_000))),
    "x.json": lambda path: write_records(path, map(row, range(60_000))),
    "one-line.json": lambda path: path.write_text(json.dumps([row(n) for n in range(60_000)])),
    "x.jsonl.gz": lambda path: write_records(path, map(row, range(60_000))),
    "x.jsonl.zst": lambda path: write_records(path, map(row, range(200_000))),
    "x.parquet": lambda path: write_records(path, map(row, range(60_000))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_memory_does_not_grow_with_the_file(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    tracemalloc.start()
    try:
        *_, last = islice(read_records(tmp_path / name), 20_000)
        assert last.data == row(19_999)
        assert tracemalloc.get_traced_memory()[1] < 24e6
    finally:
        tracemalloc.stop()


def test_a_row_costs_a_handful_of_calls(tmp_path: Path) -> None:
    """Seven; bench/scale.py measures the time."""
    path = tmp_path / "x.jsonl"
    write_records(path, map(row, range(10_000)))
    assert calls(lambda: deque(read_records(path), maxlen=0)) < 20 * 10_000


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"id": ' + "7" * 5000 + "}\n", "in.jsonl:1: an integer has more than 4,300 digits"),
        ('{"id": 1}\n{"id": ' + "7" * 5000 + "}\n", "in.jsonl:2: an integer has more than 4,300 digits"),
        ('[{"id": ' + "7" * 5000 + "}]", "in.jsonl:1: an integer has more than 4,300 digits"),
        ("[" * 100_000, "in.jsonl:1: the JSON is nested too deeply"),
        ('{"a":' * 100_000 + "\n", "in.jsonl:1: the JSON is nested too deeply"),
        ('{"id": 1}\n' + '{"a":' * 100_000 + "\n", "in.jsonl:2: the JSON is nested too deeply"),
        ('{"id": "a\x00b"}\n', "binary file"),
        ('{"id": 1}\n' + " " * 5000 + '{"id": "a\x00b"}\n', "in.jsonl:2: broken JSON"),
        ('{"id": Infinity}\n', "Infinity is not JSON"),
    ],
)
def test_values_that_no_reader_takes_are_one_line(tmp_path: Path, content: str, says: str) -> None:
    """An integer of more than 4,300 digits in the first line was a traceback of every command."""
    assert says in error_of(made(tmp_path / "in.jsonl", content))


@pytest.mark.parametrize("kind", ["line", "later line", "array", "spread object", "blanks"])
@pytest.mark.parametrize("packed", ["gz", "zst"])
def test_a_small_file_with_a_huge_record_is_refused_in_bounded_memory(
    tmp_path: Path, kind: str, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gzip of 1 MB with one line of 1 GB took 2.6 GB of memory. Here the bound is 2 MB and the record 128 MB."""
    monkeypatch.setattr(records, "LONGEST", 1 << 21)
    monkeypatch.setattr(containers, "_SLICE", 64)
    start = {
        "line": '{"a": "',
        "later line": '{}\n{}\n{"a": "',
        "array": '[{"a": "',
        "spread object": '{\n"a": "',
        "blanks": "",
    }[kind]
    path = tmp_path / f"bomb.{packed}"
    opened = gzip.open if packed == "gz" else pytest.importorskip("zstandard").open
    with opened(path, "wb") as stream:
        stream.write(start.encode())
        for _ in range(128):
            stream.write((b" " if kind == "blanks" else b"x") * (1 << 20))
    tracemalloc.start()
    try:
        assert "the record has more than 2 MB" in error_of(path)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20  # orjson sets twelve times the text aside
    finally:
        tracemalloc.stop()


def test_a_parquet_column_that_is_marked_as_json_and_holds_none_is_named(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    marked = pa.field("meta", pa.string(), metadata={"critic_prm": "json"})
    pq.write_table(pa.table({"meta": ["{}", "no JSON"]}, schema=pa.schema([marked])), tmp_path / "in.parquet")
    assert "in.parquet:2: column 'meta' is marked as JSON and holds 'no JSON'" in error_of(tmp_path / "in.parquet")
