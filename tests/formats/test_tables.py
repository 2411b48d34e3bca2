"""CSV, TSV and Parquet: what pandas and spreadsheets write is read, and what cannot be read is named with its line."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from critic_prm.data.formats.convert import Options, read_trajectories
from critic_prm.data.records import reading
from critic_prm.data.records.reading import Record, read_records, write_records
from critic_prm.data.records.table import _header
from critic_prm.errors import InputError
from tests.command import invoke

STEPS = ["2 + 2 = 4, of course.", 'So "4".\nDone.']


def file(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def data(path: Path) -> list[Any]:
    return [record.data for record in read_records(path)]


def error(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        list(read_trajectories(path))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_delimiters_line_ends_and_a_byte_order_mark(tmp_path: Path, delimiter: str, ending: str) -> None:
    lines = [["id", "problem", "steps"], ["1", '"2 + 2, or; so|?"', '"one"'], [], ["2", "b", ""]]
    text = "\ufeff" + ending.join(delimiter.join(line) for line in lines)
    for path in (file(tmp_path / "x.csv", text), file(tmp_path / "x.csv.gz", gzip.compress(text.encode()))):
        assert data(path) == [{"id": "1", "problem": "2 + 2, or; so|?", "steps": "one"}, {"id": "2", "problem": "b"}]


def test_a_row_has_the_line_it_starts_on_and_the_columns(tmp_path: Path) -> None:
    path = file(tmp_path / "x.csv", 'id,text\n1,"a\nb\n\nc"\n\n2,d\n')
    columns = ("id", "text")
    assert list(read_records(path)) == [
        Record(2, f"{path}:2", {"id": "1", "text": "a\nb\n\nc"}, columns),
        Record(7, f"{path}:7", {"id": "2", "text": "d"}, columns),
    ]


def test_what_pandas_writes_is_read(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"problem": ["2 + 2?", "[1, 2]"], "steps": [STEPS, ["a\\frac"]], "label": [1, None]})
    frame.to_csv(tmp_path / "list.csv")
    frame.assign(steps=frame.steps.map(json.dumps)).to_csv(tmp_path / "json.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "list.parquet")
    frame.assign(steps=frame.steps.map(json.dumps)).to_parquet(tmp_path / "json.parquet")
    frame.to_json(tmp_path / "lines.json", orient="records", lines=True)
    for name in ("list.csv", "json.tsv", "list.parquet", "json.parquet", "lines.json"):
        first, second = read_trajectories(tmp_path / name)
        assert (first.problem, first.texts, first.label) == ("2 + 2?", STEPS, 1), name
        assert (second.problem, second.texts, second.label) == ("[1, 2]", ["a\\frac"], None), name


def test_parquet_with_structs_and_images_is_read(tmp_path: Path) -> None:
    row = {
        "request": {"prompt": "2 + 2?"},
        "trace": [{"thought": "a", "cost": 1.5}, {"thought": "b", "cost": None}],
        "image": {"bytes": b"\x89PNG", "path": "a.png"},
    }
    pandas.DataFrame([row]).to_parquet(tmp_path / "x.parquet")
    (found,) = read_trajectories(tmp_path / "x.parquet", options=Options(map=("problem=request.prompt,steps=trace.thought",)))
    assert (found.problem, found.texts) == ("2 + 2?", ["a", "b"])
    assert "image" not in found.extra


def test_a_numpy_array_printed_as_text_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path / "x.csv", "problem,steps\np,\"['a' 'b'\n 'c']\"\n")
    assert error(path).startswith(
        ":2: column 'steps' holds a NumPy array printed as text, in which the commas are missing; write"
    )


def test_cells_of_texts_are_never_parsed(tmp_path: Path) -> None:
    path = file(tmp_path / "x.csv", 'problem,answer,steps\n"[1, 2]","{""a"": 1}","[""a"", ""b""]"\n')
    assert data(path) == [{"problem": "[1, 2]", "answer": '{"a": 1}', "steps": ["a", "b"]}]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("1,2 + 2?,So 4.\n", ":1: the first line is no header: it holds '1'; write the names of the columns on the first line"),
        ('q,"[""a""]"\n', ":1: the first line is no header: it holds"),
        ("problem,,steps\np,,s\n", ":1: the first line is no header: it holds ''"),
        ("problem,problem\na,b\n", ":1: two columns are called 'problem'; give every column its own name"),
        ("problem,steps\n", ": the table has a header and no rows"),
        ("problem,steps\na,b\nc,d,e\n", ":3: this row has 3 cells and the header 2; quote a cell"),
        ('problem,steps\na,b\nc,"d\ne,f\n', ":3: a quote that opens in this row is never closed; quote a cell"),
        ('problem,steps\nc,"d"e\n', ":2: this row is not valid CSV"),
        (b"problem,steps\na,b\nc,\xff\n", ":3: invalid UTF-8 at byte 3 of the line; save the file as UTF-8"),
        ("problem,steps\ra,b\r", ":1: the header cannot be read"),
    ],
)
def test_a_table_that_cannot_be_read_is_named_with_its_line(tmp_path: Path, content: str | bytes, says: str) -> None:
    assert error(file(tmp_path / "x.csv", content)).startswith(says)


def test_bad_rows_are_skipped_and_the_others_read(tmp_path: Path) -> None:
    path, complaints = file(tmp_path / "x.csv", "problem,steps\na,b\nc\nd,e,f\ng,h\n"), list[InputError]()
    found = read_records(path, on_error="skip", complain=complaints.append)
    assert [record.line for record in found] == [2, 5]
    assert [one.where for one in complaints] == [f"{path}:3", f"{path}:4"]


def test_a_row_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST", 1 << 20)
    path = file(tmp_path / "x.csv", 'problem,steps\na,"' + "b\n" * (1 << 20))
    assert "more than 1 MB; close the quote, or split the row" in error(path)


def test_a_table_on_stdin_is_recognized_by_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = list(feed("id,problem\n1,a\n", monkeypatch))
    assert [row.data for row in rows] == [{"id": "1", "problem": "a"}]
    with pytest.raises(
        InputError, match="this is not JSON but 'Hello, world'; a record is one JSON object per line; a table has"
    ):
        list(feed("Hello, world\n1, 2\n", monkeypatch))


def feed(text: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    return read_records("-")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".tsv.zst"])
def test_rows_are_written_as_a_table_and_read_back(tmp_path: Path, suffix: str) -> None:
    rows = [
        {"id": "a", "problem": '2, 2\r\n"2"', "steps": STEPS, "label": 1},
        {"id": "b", "problem": "[2]", "steps": ["x"], "meta": {"k": [1, None]}, "ok": True},
    ]
    path = tmp_path / f"x{suffix}"
    write_records(path, rows)
    assert data(path) == [{**rows[0], "label": "1"}, {**rows[1], "ok": "true"}]
    assert [(t.id, t.problem, t.texts, t.label, dict(t.meta)) for t in read_trajectories(path)] == [
        ("a", rows[0]["problem"], STEPS, 1, {}),
        ("b", "[2]", ["x"], None, {"k": [1, None]}),
    ]
    again = tmp_path / f"y{suffix}"
    write_records(again, rows)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.jsonl"])
def test_a_table_can_be_read_as_texts(tmp_path: Path, name: str) -> None:
    write_records(tmp_path / name, [{"question": "p", "response": "a\n\nb"}])
    (found,) = read_trajectories(tmp_path / name, "text")
    assert (found.problem, found.texts) == ("p", ["a", "b"])


def test_a_command_takes_and_writes_tables(tmp_path: Path) -> None:
    path = file(tmp_path / "in.csv", 'question,response\n"2 + 2?","2 + 2 = 5.\n\nSo 5."\n')
    result = invoke("label", path, "--judge", "rules", "-o", tmp_path / "out.csv")
    assert result.exit_code == 0
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0].startswith("id,problem,steps,p_correct,")
    assert '"[""2 + 2 = 5."",""So 5.""]"' in lines[1]


def test_a_header_of_many_columns_is_read_in_one_pass() -> None:
    """Every name was counted in the whole header, which is quadratic. A str that is compared says so."""

    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

        def strip(self, *_: object) -> Name:
            return self

    assert len(_header([Name(f"c{n}") for n in range(1000)], "in.csv:1")) == 1000
    assert Name.compared < 5000
