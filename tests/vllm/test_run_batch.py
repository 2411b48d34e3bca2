"""`vllm run-batch` as a road, with a judge that was fine-tuned here: our export goes in, what it learned comes back, and the
rows that failed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.data.formats.convert import write_trajectories
from critic_prm.data.trajectory import Step, Trajectory
from tests.distill.sft.conftest import PROMPT, few, overfit
from tests.effort import PATIENCE
from tests.vllm.conftest import ended

HUGE = Trajectory("huge", "Add to 1." * 3000, (Step("1 + 0 = 1"), Step("1 + 1 = 2")))


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


def test_an_export_goes_through_run_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Chat template, stop tokens and context length are those of the student's folder; a greedy judge ends of itself."""
    source, asked, answered, out = (tmp_path / name for name in ("in.jsonl", "asked.jsonl", "answered.jsonl", "out.jsonl"))
    (tmp_path / "short.jinja").write_text(PROMPT, encoding="utf-8")
    solutions = few()
    tuned, _ = asyncio.run(overfit(tmp_path, solutions, tmp_path / "short.jinja"))
    write_trajectories(source, [*solutions, HUGE])
    name, db = f"vllm/{tuned.folder}", str(tmp_path / "x.db")
    style = ("--style", str(tuned.folder / "short.jinja"), "--temperature", "0", "--max-tokens", str(tuned.info["max_tokens"]))
    how = ("--judge", name, "--db", db, *style)
    assert run("batch", "export", str(source), str(asked), *how) == 0
    lines = [orjson.loads(line) for line in asked.read_bytes().splitlines()]
    assert [line["url"] for line in lines] == ["/v1/chat/completions"] * 9
    command = (
        *(sys.executable, "-m", "vllm.entrypoints.openai.run_batch", "-i", str(asked), "-o", str(answered)),
        *("--model", str(tuned.folder), "--enforce-eager", "--max-num-seqs", "16", "--dtype", "float32"),
    )
    log = tmp_path / "run-batch.log"
    with ended(command, log) as running:
        try:
            code = running.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
    assert code == 0, log.read_text("utf-8", "replace")[-3000:]
    capsys.readouterr()
    assert run("batch", "import", str(answered), "--db", db) in (0, 3)
    assert "8 replies added" in capsys.readouterr().err
    assert run("label", str(source), "-o", str(out), "--offline", *how) == 3
    rows = [orjson.loads(line) for line in out.read_bytes().splitlines()]
    assert [row["status"] for row in rows] == ["ok"] * 8 + ["provider_error"]
    assert [row["first_error"] for row in rows[:8]] == [one.label for one in solutions]
    critiques = [verdict["critique"] for row in rows[:8] for verdict in row["judgements"][0]["verdicts"]]
    assert all(critique.startswith("I add again") for critique in critiques)
    assert run("batch", "import", str(answered), "--db", db) in (0, 3)
    assert "0 replies added; 9 were there already" in capsys.readouterr().err
    assert orjson.loads((tmp_path / "out.jsonl.run.json").read_bytes())["replies"]["cached"] == 8
