"""`vllm run-batch` as a road: our export goes in, what comes out is imported, failed rows with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.formats import write_trajectories
from critic_prm.trajectory import Step, Trajectory
from tests.vllm.conftest import PATIENCE, SERVER, SUMS, ended
from tests.vllm.test_server import GRAMMARS

HUGE = Trajectory("huge", "What is " + "1 + " * 9000 + "1?", (Step("2."), Step("3.")))


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


def test_an_export_goes_through_run_batch(judge: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, asked, answered, out = (tmp_path / name for name in ("in.jsonl", "asked.jsonl", "answered.jsonl", "out.jsonl"))
    write_trajectories(source, [*SUMS, HUGE])
    extra = orjson.dumps({"structured_outputs": {"regex": GRAMMARS["stepwise"]}}).decode()
    name, db = f"vllm/{judge}", str(tmp_path / "x.db")
    how = ("--judge", name, "--db", db, "--max-tokens", "400", "--seed", "1", "--extra-body", extra)
    assert run("batch", "export", str(source), str(asked), *how) == 0
    lines = [orjson.loads(line) for line in asked.read_bytes().splitlines()]
    assert [line["url"] for line in lines] == ["/v1/chat/completions"] * 4
    command = (
        *(sys.executable, "-m", "vllm.entrypoints.openai.run_batch", "-i", str(asked), "-o", str(answered)),
        *("--model", str(judge), "--enforce-eager", *SERVER),
    )
    log = tmp_path / "run-batch.log"
    with ended(command, log) as running:
        try:
            code = running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
    assert code == 0, log.read_text("utf-8", "replace")[-3000:]
    assert run("batch", "import", str(answered), "--db", db) in (0, 3)
    capsys.readouterr()
    assert run("label", str(source), "-o", str(out), "--offline", *how) == 3
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["status"] for row in rows] == ["ok", "ok", "ok", "provider_error"]
    assert run("batch", "import", str(answered), "--db", db) in (0, 3)  # twice is once
    kept = orjson.loads((tmp_path / "out.jsonl.run.json").read_bytes())
    assert kept["replies"]["cached"] == 3
