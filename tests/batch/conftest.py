"""A server with both batch APIs, and the commands that a test of batches runs in this process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.batch import JUDGES
from bench.batch_server import Fate, Office, serving
from bench.runs import write_input
from critic_prm.cli import main
from critic_prm.engine.batch import manager
from critic_prm.label import batch_job as job


@pytest.fixture(scope="session")
def shared_office() -> Iterator[Office]:
    with serving() as opened:
        yield opened


@pytest.fixture
def office(shared_office: Office, monkeypatch: pytest.MonkeyPatch) -> Office:
    shared_office.begin(Fate(0.04))
    for name in ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-key-000000")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test-key-000000")
    monkeypatch.setattr(job, "FIRST_POLL", 0.02)
    monkeypatch.setattr(manager, "NEAR_GRACE", 0.05)
    monkeypatch.setattr(manager, "FIRST_WAIT", 0.02)
    return shared_office


class Bench:
    """Commands over one input and one cache. `said` is what the last one wrote to stderr."""

    def __init__(self, folder: Path, office: Office, capsys: pytest.CaptureFixture[str], provider: str, rows: int) -> None:
        self.office, self.folder, self._capsys = office, folder, capsys
        self.source, self.out, self.db = write_input(folder / "in.jsonl", rows), folder / "out.jsonl", folder / "cache.db"
        self.judge, path = JUDGES[provider]
        self.address = office.url + path
        self.said = self.printed = ""

    def label(self, *options: str) -> int:
        at = ("--base-url", self.address) if self.address else ()
        return self.run("label", str(self.source), "-o", str(self.out), "--judge", self.judge, *at, *options)

    def run(self, *words: str) -> int:
        with pytest.raises(SystemExit) as stopped:
            main([*words, "--db", str(self.db)])
        self.printed, self.said = self._capsys.readouterr()
        return int(stopped.value.code or 0)

    def rows(self) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in self.out.read_bytes().split(b"\n") if line]

    def sql(self, query: str) -> list[Any]:
        conn = sqlite3.connect(self.db)
        try:
            return [row[0] if len(row) == 1 else row for row in conn.execute(query)]
        finally:
            conn.close()


@pytest.fixture(params=["openai", "anthropic"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, office: Office, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, office, capsys, request.param, 30)


@pytest.fixture
def openai(tmp_path: Path, office: Office, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, office, capsys, "openai", 30)


@pytest.fixture
def claude(tmp_path: Path, office: Office, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, office, capsys, "anthropic", 30)
