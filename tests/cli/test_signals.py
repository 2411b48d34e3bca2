"""Ctrl-C, SIGTERM and SIGHUP at any moment of any command: one line that says what is left, exit code 130, no traceback."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.runs import environment, write_input
from bench.server import Behaviour, Judge, serving
from critic_prm.cli import build
from tests.effort import PATIENCE, until

SCRIPT = Path(__file__).with_name("interrupting.py")
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def hangups_arrive() -> Iterator[None]:
    """Under nohup SIGHUP is ignored, in all child processes, too; here only the test about that is to see it so."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def outcomes(jobs: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        check=True,
        timeout=PATIENCE,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def check(job: dict[str, Any], outcome: dict[str, Any]) -> None:
    said = outcome["said"].splitlines()
    assert outcome["code"] == 130, (job, outcome)
    assert said[-1].startswith("interrupted: "), (job, outcome)
    assert "run the same command again" in said[-1], (job, outcome)
    for word in ("Traceback", "Exception ignored", "error: ", "Warning"):
        assert word not in outcome["said"], (job, outcome)


def lines_of(command: Any, path: tuple[str, ...] = ()) -> Iterator[list[str]]:
    """A command line for each command of the tree, with something for all that it needs."""
    for name, child in getattr(command, "commands", {}).items():
        yield from lines_of(child, (*path, name))
    if not hasattr(command, "commands"):
        given: list[str] = []
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                given += ["1"] * max(parameter.nargs, 1)
            elif parameter.required:
                given += [parameter.opts[0], "1"]
        yield [*path, *given]


def test_every_command_ends_in_one_line_when_it_is_stopped_as_it_begins(tmp_path: Path) -> None:
    """During its first import, as a person does who sees a mistake in the line; many ended in a traceback, or in silence."""
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text("{}\n")
    given = {
        "dataset card": ["dataset", "card", str(tmp_path / "set")],
        "labels export": ["labels", "export", "1", "--to", "argilla", "-o", "1"],
        "cascade tune": ["cascade", "tune", "1", "--first", "1", "--judge", "1"],
    }
    lines = [given.get(" ".join(line[:2]), line) for line in lines_of(build())]  # these check their arguments first
    lines.remove(["calibrate", "1", "1"])  # it opens the verifier before it imports anything; `score` opens one, too
    assert len(lines) > 60
    jobs = [{"line": line, "signal": int(NUMBERS[at % 3]), "at": 1, "within": True} for at, line in enumerate(lines)]
    for job, outcome in zip(jobs, outcomes(jobs, tmp_path), strict=True):
        assert outcome["sent"], (job, outcome)
        check(job, outcome)


LINES = {
    "label": "label in.jsonl -o out.jsonl --judge rules",
    "score": "score rules in.jsonl -o out.jsonl",
    "convert": "convert in.jsonl -o out.jsonl",
    "evaluate": "evaluate rules in.jsonl",
    "rank": "rank in.jsonl --critic rules -o out.jsonl",
    "report": "report labels.jsonl -o out.html",
    "dataset": "dataset build labels.jsonl -o out",
    "generate": "generate arithmetic -n 20 -o out.jsonl",
    "cache": "cache stats --db cache.db",
    "distill": "distill set -o verifier",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs for all of LINES."""
    folder = tmp_path_factory.mktemp("files")

    def make(*line: str) -> None:
        done = subprocess.run([sys.executable, "-m", "critic_prm", *line], cwd=folder, capture_output=True, env=environment())
        assert done.returncode == 0, done.stderr

    make("generate", "arithmetic", "-n", "60", "-o", "in.jsonl")
    make("label", "in.jsonl", "-o", "labels.jsonl", "--judge", "rules", "--db", "cache.db")
    make("dataset", "build", "in.jsonl", "--gold", "-o", "set", "--split", "0.6,0.2,0.2")
    shutil.copyfile(Path(__file__).parents[2] / "cache.db.example", folder / "cache.db")
    return folder


@pytest.mark.parametrize("name", LINES)
def test_a_command_can_be_stopped_at_any_point(files: Path, name: str) -> None:
    """While it imports what it needs, opens its files and works."""
    points = (4, 16, 64, 128, 512)[:: 2 if name == "distill" else 1]
    jobs = [
        {"line": LINES[name].split(), "signal": int(NUMBERS[place % 3]), "at": point, "within": place % 2 == 0}
        for place, point in enumerate(points)
    ]
    sent = 0
    for job, outcome in zip(jobs, outcomes(jobs, files), strict=True):
        if outcome["sent"] and outcome["code"] != 0:  # behind the last file that is opened a command may still end well
            check(job, outcome)
            sent += 1
    assert sent >= 2, name


def test_a_hangup_that_the_parent_ignores_stays_ignored(files: Path) -> None:
    """As under nohup."""
    job = {
        "line": [*LINES["convert"].split(), "--overwrite"],
        "signal": int(signal.SIGHUP),
        "at": 3,
        "within": True,
        "ignored": True,
    }
    (outcome,) = outcomes([job], files)
    assert (outcome["code"], outcome["sent"]) == (0, True), outcome


@pytest.fixture(scope="module")
def server() -> Iterator[Judge]:
    with serving() as judge:
        yield judge


SILENT = {
    "label": "label in.jsonl -o out.jsonl --db {db} --judge openai/bench {at}",
    "label to stdout": "label in.jsonl --db {db} --judge openai/bench {at}",
    "evaluate": "evaluate openai/bench in.jsonl --db {db} {at}",
    "rank": "rank in.jsonl --critic openai/bench --db {db} {at}",
    "doctor": "doctor openai/bench {at}",
    "sample": "generate sample in.jsonl --policy openai/bench -o out.jsonl --db {db} {at}",
    "search": "search in.jsonl --policy openai/bench --critic rules -o out.jsonl --db {db} {at}",
}


@pytest.mark.parametrize("name", SILENT)
def test_a_server_that_says_nothing_is_given_the_grace_and_no_more(server: Judge, tmp_path: Path, name: str) -> None:
    """One Ctrl-C waited for --timeout, 600 seconds by default. `communicate` fails long before that."""
    write_input(tmp_path / "in.jsonl", 6)
    if name in ("evaluate", "rank", "sample", "search"):
        rows = [
            orjson.loads(line) | {"label": -1, "gold_answer": "1"} for line in (tmp_path / "in.jsonl").read_bytes().splitlines()
        ]
        (tmp_path / "in.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    server.behave(Behaviour(latency=3600))
    line = SILENT[name].format(db=tmp_path / "c.db", at=f"--base-url {server.url} --grace 0.3")
    process = subprocess.Popen(
        [sys.executable, "-m", "critic_prm", *line.split()],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: server.seen.out > 0)
    process.send_signal(NUMBERS[list(SILENT).index(name) % 3])
    said = process.communicate(timeout=PATIENCE)[1]
    check({"line": line}, {"code": process.returncode, "said": said})
    if name == "label":
        assert "6 requests not waited for, perhaps billed" in said
        report = orjson.loads((tmp_path / "out.jsonl.run.json").read_bytes())
        assert (report["exit_code"], report["replies"]["abandoned"]) == (130, 6)
        tried = subprocess.run(
            [sys.executable, "-m", "critic_prm", "cache", "stats", "--db", "c.db"],
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        assert b"transient" in tried.stdout
    if name != "doctor":
        assert f"replies received so far are stored in {tmp_path / 'c.db'}" in said


@pytest.mark.parametrize(
    ("error", "code", "said"), [("KeyboardInterrupt", 130, "interrupted: nothing"), ("ValueError", 1, "Trace")]
)
def test_ctrl_c_during_the_imports_is_one_line(error: str, code: int, said: str, tmp_path: Path) -> None:
    """In the first half second, it was a traceback of 30 lines."""
    program = tmp_path / "critic-prm"
    program.write_text(f"from critic_prm.cli import interrupt\nraise {error}\n")
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=os.environ | paths)
    assert run.returncode == code
    assert run.stderr.startswith(said)
    assert len(run.stderr.splitlines()) == 1 or error != "KeyboardInterrupt"
