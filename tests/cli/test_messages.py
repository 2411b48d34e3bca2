"""What --quiet leaves out and --verbose adds on stderr, before the command's name and after it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import critic_prm
from bench.server import Behaviour, serving
from critic_prm.cli import main
from critic_prm.engine import retries
from critic_prm.label.progress import RunStats, watch
from critic_prm.terminal import verbosity, with_verbosity
from tests.command import invoke


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text('{"id": "a", "problem": "1 + 1?", "steps": ["1 + 1 = 2."]}\n')


LABEL = ("label", "in.jsonl", "-o", "out.jsonl")
NOTE, SUMMARY = "no --judge: judged by `rules`", "1 rows in "


@pytest.mark.parametrize("words", [("--quiet", *LABEL), ("-q", *LABEL), (*LABEL, "--quiet"), (*LABEL, "-q")])
def test_quiet_prints_the_summary_only(words: tuple[str, ...]) -> None:
    assert NOTE in invoke(*LABEL).stderr
    lines = invoke(*words).stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(SUMMARY)


def test_quiet_prints_errors(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.jsonl").write_text('{"id": "a", "problem": "?", "steps": ["4"]}\n{"id": "b", "problem": "?", "steps": 5}\n')
    with pytest.raises(SystemExit):
        main(["-q", "label", "bad.jsonl", "-o", "out.jsonl"])
    assert "error: bad.jsonl:2" in capsys.readouterr().err
    shown = invoke("-q", "label", "bad.jsonl", "-o", "out.jsonl", "--skip-bad", "--overwrite")
    assert shown.exit_code == 3
    assert "skipped: bad.jsonl:2" in shown.stderr


def test_quiet_shows_no_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("critic_prm.label.progress.EVERY", 0)
    monkeypatch.setattr("critic_prm.label.progress.TICK", 0)

    async def some() -> None:
        watching = asyncio.create_task(watch(RunStats(), None))
        for _ in range(5):
            await asyncio.sleep(0)
        watching.cancel()

    asyncio.run(some())
    assert "none labelled" in capsys.readouterr().err
    with with_verbosity("quiet"):
        asyncio.run(some())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [("--verbose", *LABEL), (*LABEL, "-v")])
def test_verbose_prints_the_options_that_are_not_defaults(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRITIC_PRM_LABEL_LIMIT", "7")
    first = invoke(*words, "--skip-bad").stderr.splitlines()[0]
    options = "in.jsonl; --out out.jsonl; --skip-bad; --limit 7 (environment)"
    assert first == f"options: {options}; everything else is a default"
    assert verbosity() == "normal", "it holds for one command"


def test_verbose_prints_every_failed_request_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr(retries, "backoff", lambda state: 0.01)
    broken = (500, "", {"error": {"message": "the engine is on fire"}})
    with serving(Behaviour(latency=0.0, told={"broken": broken}, faults={"broken": 1.0})) as server:
        words = (*LABEL, "--judge", "openai/m", "--base-url", server.url, "--max-retries", "1")
        plain, shown = invoke(*words).stderr, invoke("-v", *words, "--overwrite").stderr
    assert "the engine is on fire" not in plain.partition(SUMMARY)[0]
    assert shown.count("failed (transient, HTTP 500)") == 2
    assert shown.count("the engine is on fire") >= 2
    assert shown.count("openai/m: trying again in ") == 1
    assert "sk-secret" not in shown


def test_the_two_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*LABEL, "-q", "-v"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: --quiet and --verbose exclude each other; give one\n"


def test_the_package_has_a_version() -> None:
    assert invoke("--version").stdout == f"critic-prm {critic_prm.__version__}\n"
    assert critic_prm.__version__[0].isdecimal()
