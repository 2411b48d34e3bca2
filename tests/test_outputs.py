"""Outputs: written under a name that nobody can guess, by one run at a time, and never over something that would be lost."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.data.records.reading import RecordWriter, read_records, write_records, write_whole
from critic_prm.errors import InputError, UsageError

ROWS = b"".join(
    orjson.dumps({"id": str(i), "problem": f"{i} + 1?", "steps": [f"{i} + 1 = {i + 1}."]}) + b"\n" for i in range(5)
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_bytes(ROWS)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(list(arguments))
    return int(stop.value.code or 0), capsys.readouterr().err.strip().split("\n")[-1]


def test_a_second_writer_of_one_output_is_told_at_once_and_the_first_one_loses_nothing() -> None:
    """Two runs with one output shared a part file: the one that said 0 left the rows of the other."""
    with RecordWriter("out.jsonl") as first:
        first.write({"id": "mine"})
        with pytest.raises(UsageError, match=r"out.jsonl is being written by another run"):
            RecordWriter("out.jsonl")
        RecordWriter("other.jsonl").close()
        first.write({"id": "also mine"})
    assert [record.data["id"] for record in read_records("out.jsonl")] == ["mine", "also mine"]
    write_records("out.jsonl", [{"id": "next"}])
    assert sorted(os.listdir()) == ["in.jsonl", "other.jsonl", "out.jsonl"], "no lock and no part is left"


HOLD = """
import sys, time
from critic_prm.data.records.reading import RecordWriter
writer = RecordWriter("out.jsonl")
writer.write({"id": "theirs"})
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_of_a_killed_run_holds_nobody_up_and_what_it_left_is_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        code, said = run(capsys, "score", "rules", "in.jsonl", "-o", "out.jsonl")
        assert (code, said) == (2, "error: out.jsonl is being written by another run; let it finish or choose another output")
        other.kill()
        other.wait()
    assert len(list(Path().glob(".out.jsonl.*.part"))) == 1
    assert run(capsys, "score", "rules", "in.jsonl", "-o", "out.jsonl")[0] == 0
    assert not list(Path().glob(".out.jsonl.*"))
    assert len(list(read_records("out.jsonl"))) == 5


@pytest.mark.parametrize("name", [".out.jsonl.part", ".out.jsonl.lock", "out.jsonl.run.json"])
def test_a_planted_link_is_not_followed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A link with the name of the part file led a run to overwrite another file of the user."""
    Path("victim").write_text("precious")
    Path(name).symlink_to("victim")
    run(capsys, "label", "in.jsonl", "-o", "out.jsonl", "--judge", "rules")
    assert Path("victim").read_text() == "precious"


def test_a_planted_pipe_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe with the name of the lock held a run up for ever."""
    os.mkfifo(".out.jsonl.lock")
    assert run(capsys, "score", "rules", "in.jsonl", "-o", "out.jsonl")[0] == 0


def test_the_part_file_is_new_and_its_name_is_another_each_time() -> None:
    names = set()
    for _ in range(3):
        with RecordWriter("out.jsonl") as writer:
            (part,) = Path().glob(".out.jsonl.*.part")
            names.add(part.name)
            writer.write({})
    assert len(names) == 3
    assert all(len(name) == len(".out.jsonl.") + 16 + len(".part") for name in names)


COMMANDS = {
    "label": ("label", "in.jsonl", "--judge", "rules", "-o", "OUT"),
    "score": ("score", "rules", "in.jsonl", "-o", "OUT"),
    "convert": ("convert", "in.jsonl", "-o", "OUT"),
    "generate": ("generate", "arithmetic", "-n", "3", "-o", "OUT"),
    "report": ("report", "labels.jsonl", "-o", "OUT"),
    "dedupe": ("dataset", "dedupe", "labels.jsonl", "-o", "OUT"),
    "cache export": ("cache", "export", "--db", "c.db", "-o", "OUT"),
}


@pytest.fixture
def made(capsys: pytest.CaptureFixture[str]) -> None:
    from critic_prm.engine.cache import Cache

    assert run(capsys, "label", "in.jsonl", "--judge", "rules", "-o", "labels.jsonl")[0] == 0
    Cache("c.db").close()


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_exists_is_replaced_only_when_asked_for(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = "page.html" if command == "report" else "out.jsonl"
    arguments = [out if word == "OUT" else word for word in COMMANDS[command]]
    Path(out).write_text("a letter\n")
    code, said = run(capsys, *arguments)
    assert (code, said) == (
        2,
        f"error: {out} exists and is not the output of an earlier run of this command; --overwrite replaces it",
    )
    assert Path(out).read_text() == "a letter\n"
    assert run(capsys, *arguments, "--overwrite")[0] == 0
    assert Path(out).read_bytes() != b"a letter\n"


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_is_never_an_output(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`-o` that named the cache replaced every reply in it by rows."""
    with closing(sqlite3.connect("notes.db")) as conn, conn:
        conn.execute("CREATE TABLE note (text)")
    before = Path("notes.db").read_bytes()
    arguments = ["notes.db" if word == "OUT" else word for word in COMMANDS[command]]
    for options in ((), ("--overwrite",)):
        code, said = run(capsys, *arguments, *options)
        assert code == 1
        assert said.startswith("error: notes.db: this is an SQLite database")
    assert Path("notes.db").read_bytes() == before
    with pytest.raises(InputError, match="SQLite"):
        write_records("notes.db", [{}])
    with pytest.raises(InputError, match="SQLite"):
        write_whole("notes.db", b"")


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"generate", "cache export"}))
@pytest.mark.parametrize("linked", [False, True])
def test_an_input_is_never_the_output(command: str, linked: bool, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(word for word in COMMANDS[command] if word.endswith(".jsonl"))
    if linked:
        Path("link.jsonl").symlink_to(source)
    before = Path(source).read_bytes()
    out = "link.jsonl" if linked else source
    code, said = run(capsys, *(out if word == "OUT" else word for word in COMMANDS[command]), "--overwrite")
    assert code == 2
    assert said == f"error: {out} is also what this command reads ({source}); choose another output"
    assert Path(source).read_bytes() == before


def test_the_cache_is_not_the_output_even_before_it_exists(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "label", "in.jsonl", "--judge", "rules", "-o", "y.db", "--db", "y.db")
    assert (code, said) == (2, "error: y.db is also what this command reads (y.db); choose another output")
    assert not Path("y.db").exists()


def test_the_same_run_goes_on_without_being_asked(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("label", "in.jsonl", "--judge", "rules", "-o", "out.jsonl")
    assert run(capsys, *given, "--limit", "2")[0] == 0
    assert run(capsys, *given)[0] == 0
    assert len(list(read_records("out.jsonl"))) == 5
    Path("in2.jsonl").write_bytes(ROWS)
    code, said = run(capsys, "label", "in2.jsonl", "--judge", "rules", "-o", "out.jsonl")
    assert code == 2
    assert "--overwrite" in said
    assert len(list(read_records("out.jsonl"))) == 5


BENCH = b"".join(
    orjson.dumps({"id": str(i), "problem": f"{i} + 1?", "steps": [f"{i} + 1 = {i + 1}."], "label": -1}) + b"\n"
    for i in range(5)
)

STOPPED = {
    "label": (("label", "in.jsonl", "--judge", "rules", "-o", "out.jsonl"), True),
    "score": (("score", "rules", "in.jsonl", "-o", "out.jsonl"), True),
    "evaluate --save": (("evaluate", "rules", "bench.jsonl", "--save", "out.jsonl", "--resamples", "100"), False),
}


@pytest.mark.parametrize("how", ["interrupted", "killed"])
@pytest.mark.parametrize("name", STOPPED)
def test_a_run_that_was_stopped_goes_on_without_being_asked(
    name: str, how: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`evaluate --save` left its rows and no run.json when it was interrupted, and a run killed between the
    renaming of its output and the writing of run.json left an output that it would not touch again."""
    given, reports = STOPPED[name]
    Path("bench.jsonl").write_bytes(BENCH)
    with monkeypatch.context() as patch:
        if how == "interrupted":
            write, rows = RecordWriter.write, iter(range(2))

            def interrupted(self: RecordWriter, row: object) -> None:
                if next(rows, None) is None:
                    raise KeyboardInterrupt
                write(self, row)

            patch.setattr(RecordWriter, "write", interrupted)
            assert run(capsys, *given)[0] == 130
        else:
            replace = Path.replace

            def killed(self: Path, target: Path) -> None:
                replace(self, target)
                if target.name == "out.jsonl":
                    os._exit(9)

            child = os.fork()
            if not child:
                patch.setattr(Path, "replace", killed)
                run(capsys, *given)
                os._exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert Path("out.jsonl").is_file()
    other = tuple("other.jsonl" if word in ("in.jsonl", "bench.jsonl") else word for word in given)
    Path("other.jsonl").write_bytes(BENCH)
    assert run(capsys, *other)[0] == 2, "another command is still refused"
    assert run(capsys, *given)[0] == 0
    assert len(list(read_records("out.jsonl"))) == 5
    assert Path("out.jsonl.run.json").exists() == reports


def test_a_run_json_does_not_describe_another_file(capsys: pytest.CaptureFixture[str]) -> None:
    """After `evaluate --save --overwrite` on a label file, `report` read the cost from the label run's run.json beside it."""
    Path("bench.jsonl").write_bytes(BENCH)
    assert run(capsys, "label", "in.jsonl", "--judge", "rules", "-o", "out.jsonl")[0] == 0
    assert Path("out.jsonl.run.json").exists()
    evaluation = ("evaluate", "rules", "bench.jsonl", "--save", "out.jsonl", "--resamples", "100")
    assert run(capsys, *evaluation, "--overwrite")[0] == 0
    assert not Path("out.jsonl.run.json").exists()


def test_empty_files_devices_and_pipes_are_written_to_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").touch()
    assert run(capsys, "score", "rules", "in.jsonl", "-o", "empty")[0] == 0
    assert run(capsys, "score", "rules", "in.jsonl", "-o", "/dev/null")[0] == 0
    os.mkfifo("pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_bytes()), daemon=True)
    reader.start()
    assert run(capsys, "score", "rules", "in.jsonl", "-o", "pipe")[0] == 0
    reader.join(timeout=30)
    assert read[0].count(b"\n") == 5
