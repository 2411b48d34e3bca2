"""`critic-prm label` as a process: exit codes, signals, crashes, many at once, full disks, and what is never written down."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.crash import crash
from bench.runs import Forked, command, trajectories, write_input
from bench.server import Behaviour, Judge, serving
from tests.effort import PATIENCE, until

KEY = "sk-test-key-000000"


@pytest.fixture(scope="module")
def server() -> Iterator[Judge]:
    with serving() as judge:
        yield judge


class Run:
    """One command line in a folder of its own, to be run as often as a test likes."""

    def __init__(self, folder: Path, rows: int, url: str, *options: str, judge: str = "openai/bench") -> None:
        self.out, self.db = folder / "labels.jsonl", folder / "cache.db"
        self.line = command(write_input(folder / "in.jsonl", rows), self.out, self.db, url, *options, judge=judge)

    def start(self, *options: str, file_size: int | None = None) -> Forked:
        return Forked([*self.line, *options], self.out.with_name("said.txt"), file_size=file_size)

    def finish(self, *options: str, file_size: int | None = None) -> tuple[int, str]:
        process = self.start(*options, file_size=file_size)
        return process.wait(PATIENCE), process.said.read_text()

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(Path(f"{self.out}.run.json").read_bytes())
        return found

    def rows(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.out.read_bytes().splitlines()]

    def kept(self) -> int:
        return int(sqlite3.connect(self.db).execute("SELECT count(*) FROM reply").fetchone()[0])


def says(process: Forked, text: str) -> None:
    """Wait until a process says `text`."""

    def said() -> bool:
        over = process.poll() is not None
        return process.says(text) or (over and pytest.fail(f"it ended without {text!r}: {process.said.read_text()}"))

    until(said, text)


def test_a_run_and_what_it_says_of_itself(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0.002))
    run = Run(tmp_path, 30, server.url, "--prices", "1,2")
    code, said = run.finish()
    assert code == 0
    assert "30 rows in" in said
    assert "ok 30" in said
    assert "\r" not in said
    assert "\x1b" not in said
    report = run.report()
    assert (report["exit_code"], report["rows"], report["requests"]) == (0, 30, 30)
    tokens = report["tokens"]
    assert report["cost_usd"] == pytest.approx((tokens["input"] + 2 * tokens["output"]) / 1e6)
    assert report["cost_usd_per_label"] == pytest.approx(report["cost_usd"] / 30)
    code, said = run.finish()
    assert (code, run.report()["requests"], run.report()["replies"]["cached"]) == (0, 0, 30)


def test_an_unknown_price_is_never_nothing(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0))
    run = Run(tmp_path, 2, server.url)
    assert "price unknown" in run.finish()[1]
    assert run.report()["cost_usd"] is None
    code, said = run.finish("--budget-usd", "1")
    assert code == 2
    assert "--prices IN,OUT" in said


def test_rows_that_failed_are_counted_and_the_exit_code_says_so(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0, marked={"Order 3:": "refusal", "Order 7:": "413"}))
    run = Run(tmp_path, 10, server.url)
    code, said = run.finish()
    assert code == 3
    assert run.report()["labels"] == {"ok": 8, "refused": 1, "provider_error": 1}
    assert [row["status"] for row in run.rows() if row["status"] != "ok"] == ["refused", "provider_error"]
    assert "refused 1" in said


@pytest.mark.parametrize(
    ("fault", "options", "code", "says"),
    [
        ("401", (), 4, "the key was refused"),
        ("404", (), 4, "no such model"),
        ("quota", (), 5, "add some"),
        (None, ("--max-requests", "12"), 5, "--max-requests"),
        (None, ("--prices", "1,2", "--budget-usd", "0.05"), 5, "--budget-usd"),
    ],
)
def test_a_stop_has_its_exit_code_one_line_and_keeps_what_was_paid(
    server: Judge, tmp_path: Path, fault: str | None, options: tuple[str, ...], code: int, says: str
) -> None:
    server.behave(Behaviour(latency=0.002))
    run = Run(tmp_path, 60, server.url)
    run.finish("--limit", "5")
    server.behave(Behaviour(latency=0.002, faults={fault: 1.0} if fault else {}))
    found, said = run.finish(*options)
    assert found == code
    assert says in said
    assert sum(line.startswith("error: ") for line in said.splitlines()) == 1
    assert "Traceback" not in said
    report = run.report()
    assert report["exit_code"] == code
    assert says in report["stopped_by"]
    assert len(run.rows()) >= 5
    kept = run.kept()
    assert kept == 5 + server.seen.answers["ok"]
    server.behave(Behaviour(latency=0.002))
    assert run.finish()[0] == 0
    assert server.seen.bodies.total() == 60 - kept


def test_an_interrupt_brings_in_what_is_out_and_running_again_goes_on(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0))
    server.hold()
    run = Run(tmp_path, 100, server.url, "--max-connections", "16")
    process = run.start()
    until(lambda: server.seen.out == 16)
    process.send_signal(signal.SIGINT)
    says(process, "brought in")
    server.release(all_later=True)
    assert process.wait(PATIENCE) == 130
    assert run.kept() == server.seen.answers["ok"] == server.seen.bodies.total()
    assert run.report()["exit_code"] == 130
    server.behave(Behaviour(latency=0.002))
    kept = run.kept()
    assert run.finish()[0] == 0
    assert server.seen.bodies.total() == 100 - kept
    assert [row["id"] for row in run.rows()] == [f"order-{i}" for i in range(100)]


def test_a_second_interrupt_stops_at_once(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0))
    server.hold()
    process = Run(tmp_path, 20, server.url).start()
    until(lambda: server.seen.out == 20)
    process.send_signal(signal.SIGINT)
    says(process, "press Ctrl-C again")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130
    assert not server.seen.answers


def test_an_interrupt_ends_a_wait_for_the_rate_limit(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0.001, rate=0.01, burst=1, retry_after="seconds"))
    process = Run(tmp_path, 20, server.url).start()
    until(lambda: server.seen.answers["429"] > 0)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 130


def test_the_number_of_connections_can_be_changed_while_running(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0))
    server.hold()
    process = Run(tmp_path, 1000, server.url, "--max-connections", "4").start()
    until(lambda: server.seen.out == 4)
    for most in (8, 16, 32):
        process.send_signal(signal.SIGUSR1)
        says(process, f"at most {most} connections from now on")
        while (out := server.seen.out) < most:  # each round of answers lets more requests out than the one before
            server.release()
            until(lambda: server.seen.out > out)
    process.send_signal(signal.SIGUSR2)
    says(process, "at most 16 connections from now on")
    server.release()
    until(lambda: server.seen.out == 16)
    process.send_signal(signal.SIGINT)
    says(process, "brought in")
    server.release(all_later=True)
    assert process.wait(PATIENCE) == 130
    assert server.seen.most_out == 32


def test_killed_at_any_moment_nothing_is_lost_and_nothing_bought_twice(tmp_path: Path) -> None:
    """The short form of bench/crash.py."""
    found = list(crash(tmp_path, kills=3, rows=120, seed=int.from_bytes(os.urandom(2), "big")))
    assert "byte for byte the same" in found[0]


def test_eight_processes_on_one_cache(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0.02))
    source = write_input(tmp_path / "in.jsonl", 200)
    rows = source.read_bytes().splitlines(keepends=True)
    drawn, runs = random.Random(5), []
    for k in range(8):
        own = tmp_path / f"in{k}.jsonl"
        own.write_bytes(b"".join(drawn.sample(rows, len(rows))))
        line = command(own, tmp_path / f"out{k}.jsonl", tmp_path / "cache.db", server.url, "--max-connections", "8")
        runs.append(Forked(line, tmp_path / f"said{k}.txt"))
    for run in runs:
        assert run.wait(PATIENCE) == 0, run.said.read_text()
        assert "locked" not in run.said.read_text()
    labels = [
        {row["id"]: row["first_error"] for row in map(orjson.loads, (tmp_path / f"out{k}.jsonl").read_bytes().splitlines())}
        for k in range(8)
    ]
    assert all(len(each) == 200 and each == labels[0] for each in labels)
    kept = sqlite3.connect(tmp_path / "cache.db").execute("SELECT count(*) FROM reply").fetchone()[0]
    assert kept == 200
    # Bought twice is only what two of them asked for at the same moment, before either had it.
    assert server.seen.bodies.total() < 200 * 8 / 2
    again = command(source, tmp_path / "again.jsonl", tmp_path / "cache.db", server.url, "--offline")
    assert Forked(again, tmp_path / "again.txt").wait(PATIENCE) == 0


def test_a_disk_that_fills_up_stops_the_run_and_damages_nothing(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0.001))

    run = Run(tmp_path, 300, server.url, "--max-connections", "4")
    code, said = run.finish(file_size=400_000)
    assert code == 1
    assert "error: " in said
    assert "Traceback" not in said
    assert sqlite3.connect(run.db).execute("PRAGMA integrity_check").fetchone() == ("ok",)
    kept = run.kept()
    assert 0 < kept < 300
    server.behave(Behaviour(latency=0.001))
    assert run.finish()[0] == 0
    assert server.seen.bodies.total() == 300 - kept
    assert len(run.rows()) == 300


def test_no_key_and_no_prompt_in_any_log_or_file(server: Judge, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the libraries below say about their work: at INFO and above nothing of a prompt, and never the key."""
    from critic_prm.critics.llm import with_provider
    from critic_prm.engine.options import JudgeOptions
    from critic_prm.label.run import label
    from critic_prm.providers.anthropic import AnthropicProvider
    from critic_prm.providers.openai import OpenAIProvider
    from critic_prm.providers.provider import Provider

    key = "sk-secret-of-this-test-1234"
    server.behave(Behaviour(latency=0, faults={"500": 0.2, "reset": 0.1, "400": 0.1}))

    async def run() -> None:
        providers: list[Provider] = [
            OpenAIProvider("bench", server.url, key, direct=True),
            OpenAIProvider("bench", server.url, key, direct=False),
            AnthropicProvider("claude-test", server.url.removesuffix("/v1"), key),
        ]
        for k, provider in enumerate(providers):
            critic = with_provider(provider, JudgeOptions(db=tmp_path / f"{k}.db"))
            found = [row async for row in label(trajectories(20), critic)]
            assert len(found) == 20
            await critic.close()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(run())
    for record in caplog.records:
        said = record.getMessage()
        assert key not in said
        assert "authorization" not in said.lower() or "redacted" in said.lower()
        if record.levelno > logging.DEBUG:
            assert "boxes more each week" not in said
    for path in tmp_path.iterdir():
        assert key.encode() not in path.read_bytes()


def test_a_password_in_the_address_is_not_stored(server: Judge, tmp_path: Path) -> None:
    server.behave(Behaviour(latency=0))
    address = server.url.replace("http://", "http://me:hunter2secret@")
    run = Run(tmp_path, 2, address)
    code, said = run.finish()
    assert code == 0, said
    assert "hunter2secret" not in said
    for path in tmp_path.iterdir():
        assert b"hunter2secret" not in path.read_bytes()
