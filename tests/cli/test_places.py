"""Where a command's output goes is checked before the command does any work."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from critic_prm.cli import build
from critic_prm.cli.outputs import FOLDERS, OUTPUTS, PLACES, check_writable
from critic_prm.errors import InputError, UsageError
from tests.cli.test_help import leaves
from tests.command import invoke, on_a_terminal
from tests.test_docs import documented

COMMANDS = dict(leaves(build(), "critic-prm"))
WRITING = {name: command for name, command in COMMANDS.items() if any("-o" in one.opts for one in command.params)}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def started(name: str, command: Any, *more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a command with the arguments of its own example, whose work is replaced by a failure."""
    example = command.help.split("\n\n")[-1].removeprefix("Example: ")
    words = shlex.split(re.sub(r" -o \S+| [|>] .*", "", example).removeprefix(name))

    def work(**_: Any) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(command.built, "callback", work)
    command.invoke(command.make_context(name.rpartition(" ")[2], [*words, *more]))


@pytest.mark.parametrize("name", WRITING)
def test_an_output_that_cannot_be_written_stops_a_command_before_it_works(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`distill -o v` in a read-only folder trained for minutes, and then said so."""
    Path("file").write_text("")
    with pytest.raises(InputError, match=r"^file/out: cannot be written: ") as error:
        started(name, COMMANDS[name], "-o", "file/out", monkeypatch=monkeypatch)
    assert str(error.value).endswith("; choose another output")


@pytest.mark.parametrize("name", WRITING)
def test_an_output_that_can_be_written_is_no_hindrance(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AssertionError, match="the work began"):
        started(name, COMMANDS[name], "-o", "out", monkeypatch=monkeypatch)
    assert os.listdir() == []


def test_a_folder_is_made_with_those_above_it_and_a_file_is_not() -> None:
    check_writable("a/b/c", folder=True)
    with pytest.raises(InputError, match="a/b does not exist; make the folder first"):
        check_writable("a/b/c")
    Path("a").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        check_writable("a")
    check_writable("/dev/null")
    os.mkfifo("pipe")
    check_writable("pipe")


def test_the_superuser_is_told_what_permissions_hide() -> None:
    """Root may write anywhere by permissions, but not in /proc, and nobody below a file."""
    if not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    with pytest.raises(InputError, match=r"^/proc/v: cannot be written"):
        check_writable("/proc/v", folder=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes where permissions forbid it")
def test_a_folder_without_permission_is_refused(folder: Path) -> None:
    Path("closed").mkdir(mode=0o555)
    with pytest.raises(InputError, match=r"^closed/v: cannot be written: Permission denied"):
        check_writable("closed/v", folder=True)


def test_without_an_output_the_folder_that_is_changed_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("this system has no /proc")
    Path("verifier").symlink_to("/proc")
    for name in ("critic-prm calibrate", "critic-prm export"):
        with pytest.raises(InputError, match=r"^verifier: cannot be written"):
            started(name, COMMANDS[name], monkeypatch=monkeypatch)


def test_every_output_of_a_command_is_among_those_that_are_checked() -> None:
    """By what their help says."""
    writes = re.compile(r"^(Also )?([Ww]rite|[Ff]ile (of \w+ )?to write|Folder (for all output|to write))|to write", re.ASCII)
    named = {
        one.name
        for command in COMMANDS.values()
        for one in command.params
        if one.metavar in ("FILE", *FOLDERS) and writes.search(one.help or "")
    }
    assert named <= set(PLACES), "add it to PLACES in critic_prm/cli/outputs.py"
    assert set(OUTPUTS) <= set(PLACES)


def test_rows_go_to_a_terminal_only_when_it_is_named() -> None:
    """Without -o, `dataset dedupe` filled the terminal with 30 kB of JSON."""
    Path("in.jsonl").write_text('{"id": "a", "problem": "1 + 1?", "steps": ["1 + 1 = 2."]}\n')
    refused = "error: the output is rows of JSON, and stdout is a terminal; write them to a file with -o FILE (or -o -)\n"
    assert on_a_terminal("convert", "in.jsonl") == (2, refused)
    code, shown = on_a_terminal("convert", "in.jsonl", "-o", "-")
    assert code == 0
    assert '"problem":"1 + 1?"' in shown
    code, shown = on_a_terminal("convert", "--list")
    assert code == 0
    assert "reads and writes" in shown


ROWS = sorted(
    name for name, command in WRITING.items() if any(one.name == "out" and one.default == "-" for one in command.params)
)


@pytest.mark.parametrize("name", ROWS)
def test_every_command_that_writes_rows_to_stdout_refuses_a_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = COMMANDS[name]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(UsageError, match="stdout is a terminal"):
        started(name, command, monkeypatch=monkeypatch)
    with pytest.raises(AssertionError, match="the work began"):
        started(name, command, "-o", "-", monkeypatch=monkeypatch)


def test_there_are_such_commands() -> None:
    assert {"critic-prm label", "critic-prm score", "critic-prm convert", "critic-prm dataset dedupe"} <= set(ROWS)
    assert len(ROWS) > 15


def test_every_file_that_rank_writes_is_kept_unless_overwritten() -> None:
    """--kept and --escalate replaced existing files without a word."""
    for option in ("--kept", "--escalate"):
        Path("mine").write_text("precious")
        with pytest.raises(UsageError, match="--overwrite replaces it"):
            invoke("rank", "candidates.jsonl", option, "mine", "--floor", "0.5")
    assert Path("mine").read_text() == "precious"


def test_a_documented_command_says_where_its_rows_go() -> None:
    """A reader types it at a terminal."""
    silent = []
    for document, line in documented():
        words = shlex.split(line, comments=True)
        name = next((name for name in ROWS if line.startswith(f"{name} ")), None)
        placed = {"-o", "--out", "|", ">", "--dry-run", "--list", "--help", "-h"} & set(words)
        if name is not None and not placed and document != "options.md":
            silent.append(f"{document}: {line}")
    assert silent == []
