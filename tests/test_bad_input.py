"""An error of the user is one line that names the place and the fix, with its exit code; the rows before it are kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from critic_prm.cli import main

GOOD = {"problem": "2 + 2?", "steps": ["2 + 2 = 4.", "So 4."]}


def rows(*changes: dict[str, Any] | str) -> str:
    """Six good rows, then the given ones, then one more good row."""
    lines = [json.dumps({"id": str(i), **GOOD}) for i in range(6)]
    lines += [change if isinstance(change, str) else json.dumps({**GOOD, **change}) for change in changes]
    return "\n".join([*lines, json.dumps({"id": "last", **GOOD})]) + "\n"


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code, and the last line of stderr."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert isinstance(stop.value.code, int)
    return stop.value.code, capsys.readouterr().err.strip().split("\n")[-1]


@pytest.fixture(autouse=True)
def without_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (rows('{"problem": "2 + 2?", "steps": ["2 + 2'), ["in.jsonl:7", "JSON"]),
        (rows({"id": "3"}), ["in.jsonl:7", "'3'", "line 4", "unique"]),
        (rows({"id": "x", "steps": ["fine", 5]}), ["in.jsonl:7", "step 1", "5", "string"]),
        (rows({"id": "x", "steps": []}), ["in.jsonl:7", "steps", "at least one"]),
        (rows({"id": "x", "steps": "2 + 2 = 4"}), ["in.jsonl:7", "steps", "list"]),
        (rows({"id": "x", "problem": None}), ["in.jsonl:7", "problem"]),
        (rows({"id": "x", "label": 9}), ["in.jsonl:7", "label", "9"]),
        (rows("[1, 2, 3]"), ["in.jsonl:7", "object"]),
    ],
)
def test_a_broken_row_is_named_and_the_rows_before_it_are_written(
    text: str, says: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.jsonl").write_text(text)
    code, line = run(["label", "in.jsonl", "-o", "out.jsonl", "--judge", "rules"], capsys)
    assert code == 1
    assert line.startswith("error: ")
    for word in says:
        assert word in line
    assert [json.loads(row)["id"] for row in Path("out.jsonl").read_text().splitlines()] == ["0", "1", "2", "3", "4", "5"]


def test_broken_rows_can_be_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.jsonl").write_text(rows("{oops", {"id": "x", "steps": 7}))
    code, _ = run(["label", "in.jsonl", "-o", "out.jsonl", "--judge", "rules", "--skip-bad"], capsys)
    assert code == 3
    assert json.loads(Path("out.jsonl.run.json").read_text())["exit_code"] == 3
    assert len(Path("out.jsonl").read_text().splitlines()) == 7


def test_invalid_utf8_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.jsonl").write_bytes(rows().encode() + b'{"problem": "\xff\xfe", "steps": ["a"]}\n')
    code, line = run(["label", "in.jsonl", "-o", "out.jsonl", "--judge", "rules"], capsys)
    assert code == 1
    assert "in.jsonl:8" in line
    assert "UTF-8" in line


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "LFS"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>", "HTML"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(100), "PNG image"),
        (b"", "empty"),
    ],
)
def test_what_is_no_data_is_named_as_what_it_is(content: bytes, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.jsonl").write_bytes(content)
    code, line = run(["label", "in.jsonl", "-o", "out.jsonl", "--judge", "rules"], capsys)
    assert code == 1
    assert says.lower() in line.lower()
    assert not Path("out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["label", "missing.jsonl", "-o", "out.jsonl", "--judge", "rules"], 1, "missing.jsonl: there is no such file"),
        (["label", "in.jsonl", "-o", "no/such/folder/out.jsonl", "--judge", "rules"], 1, "folder"),
        (["label", "in.jsonl", "-o", "out.jsonl", "--judge", "openai/gpt-5.4-mini"], 4, "OPENAI_API_KEY"),
        (["label", "in.jsonl", "-o", "out.jsonl", "--judge", "anthropic/claude-haiku-5-5"], 4, "ANTHROPIC_API_KEY"),
        (["label", "in.jsonl", "-o", "out.jsonl", "--judge", "nobody/model"], 2, "there is no provider 'nobody'"),
        (["label", "in.jsonl", "-o", "out.jsonl", "--judge", "nonsense"], 2, "'nonsense'"),
        (["label", "in.jsonl", "-o", "out.jsonl", "--judge", "recorded/x", "--style", "nope"], 2, "stepwise"),
        (["label", "in.jsonl", "-o", "out.jsonl", "--judge", "rules", "--from", "nope"], 2, "processbench"),
        (["label", "in.jsonl", "-o", "out.jsonl", "--judge", "recorded/x"], 1, "name it with --db"),
        (["evaluate", "rules", "in.jsonl"], 1, "gold"),
        (["distill", ".", "-o", "verifier"], 1, "train.jsonl"),
        (["dataset", "build", "in.jsonl", "-o", "dataset"], 1, "label"),
        (["cache", "stats", "--db", "missing.db"], 1, "no such cache"),
    ],
)
def test_a_command_that_cannot_work_says_why(
    arguments: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("in.jsonl").write_text(rows())
    found, line = run(arguments, capsys)
    assert line.startswith("error: ")
    assert says in line
    assert found == code


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_that_may_not_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.jsonl").write_text(rows())
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    code, line = run(["label", "in.jsonl", "-o", str(locked / "out.jsonl"), "--judge", "rules"], capsys)
    assert code == 1
    assert "locked" in line


PART = '[mixture]\n[[mixture.part]]\ncritic = "rules"\n'
BAND = '[cascade]\nfirst = "rules"\njudges = ["openai/x"]\n'
STAGE = '[[stages]]\nname = "n"\nrun = ["label", "{input}"]\nout = "o.jsonl"\n'
ABOUT = 'about = "a"\npaper = "p"\nneeds = "solutions"\n'
MALFORMED_CRITICS = {
    "nested too deeply": "a = " + "[" * 3000 + "]" * 3000,
    "an integer of 5,000 digits": PART + "weight = 1" + "0" * 5000,
    "a number that no float holds": PART + "weight = 1" + "0" * 400,
    "a date for a bound": BAND + "low = 1979-05-27\nhigh = 1",
    "a list for a bound": BAND + "low = []\nhigh = 1",
    "a text for a weight": PART + 'weight = "x"',
    "a number for a part": "[mixture]\npart = [5]",
    "a critic within itself": '[mixture]\n[[mixture.part]]\ncritic = "x.toml"',
    "more than a megabyte": "# " + "x" * (1 << 20),
}
MALFORMED_RECIPES = {
    "nested too deeply": ABOUT + "x = " + "[" * 3000 + "]" * 3000,
    "an integer of 5,000 digits": ABOUT + "x = 1" + "0" * 5000,
    "stages that are a number": ABOUT + "stages = 5",
    "a stage that is a number": ABOUT + "stages = [5]",
    "stages that are a text": ABOUT + 'stages = "ab"',
    "a command that is a number": ABOUT + '[[stages]]\nname = "n"\nrun = 5\nout = "o"',
    "parameters that are a list": ABOUT + "parameters = [1]\n" + STAGE,
    "assumptions that are a number": ABOUT + "assumed = 5\n" + STAGE,
    "requests that are a number": ABOUT + STAGE + 'asks = "judge"\nrequests = 5',
    "requests of an unknown name": ABOUT + STAGE + 'asks = "judge"\nrequests = ["zzz"]',
    "endlessly many requests": ABOUT
    + "[assumed]\njudge_prompt = 1\njudge_reply = 1\n"
    + STAGE
    + 'asks = "judge"\nrequests = [inf]',
    "a NUL in an output": ABOUT + STAGE.replace("o.jsonl", "o\\u0000"),
}


@pytest.mark.parametrize("text", MALFORMED_CRITICS.values(), ids=MALFORMED_CRITICS)
def test_a_malformed_critic_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each ended in a traceback."""
    Path("in.jsonl").write_text(rows())
    Path("x.toml").write_text(text)
    code, said = run(["label", "in.jsonl", "--judge", "./x.toml"], capsys)
    assert code == 1
    assert said.startswith("error: ")
    assert "x.toml" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("text", MALFORMED_RECIPES.values(), ids=MALFORMED_RECIPES)
def test_a_malformed_recipe_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each ended in a traceback."""
    Path("in.jsonl").write_text(rows())
    Path("r.toml").write_text(text)
    words = ["generate", "recipe", "./r.toml", "in.jsonl", "-o", "made", "--judge", "openai/x", "--dry-run"]
    code, said = run(words, capsys)
    assert code == 1
    assert said.startswith("error: ")
    assert "r.toml" in said
    assert len(said.splitlines()) == 1
