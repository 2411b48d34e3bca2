"""`vllm run-batch` as a road, with a generative student as the judge: our export goes in, what comes out is imported, with the
rows that failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from critic_prm.cli import main
from critic_prm.formats import write_trajectories
from critic_prm.prompt import open_style, render
from critic_prm.trajectory import Step, Trajectory
from distill.settings import Settings
from distill.sft.run import distill_sft
from tests.vllm.conftest import PATIENCE, SERVER, SUMS, ended

STYLE = """{# reader: boxed-index | per: trajectory | base: 0 | stops: yes | max_tokens: 40 #}
{% block system %}Find the first error.{% endblock %}
{% block user %}{{ problem }}
{% for step in steps %}{{ step.text }}
{% endfor %}{% endblock %}
"""
ANSWER = "Step 1: It is wrong.\n\\boxed{1}"
HUGE = Trajectory("huge", "What is " + "1 + " * 9000 + "1?", (Step("2."), Step("3.")))


@pytest.fixture(scope="module")
def student(judge: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of `distill --objective sft`, trained for a moment on critiques in a style of its own, and the style."""
    folder = tmp_path_factory.mktemp("student")
    (folder / "short.jinja").write_text(STYLE, "utf-8")
    style = open_style(folder / "short.jinja")
    for name, count in (("train", 8), ("dev", 4)):
        chats = []
        for number in range(count):
            one = Trajectory("x", f"What is {number} + 3?", (Step(f"{number} + 3 = {number + 3}."), Step("So that is it.")))
            asked = [{"role": message.role, "content": message.content} for message in render(style, one)]
            chats.append({"messages": [*asked, {"role": "assistant", "content": ANSWER}]})
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(map(orjson.dumps, chats)))
    settings = Settings(epochs=1, dtype="fp32", max_length=2048)
    return distill_sft(folder, folder / "judge", str(judge), settings).folder, folder / "short.jinja"


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    return int(stopped.value.code or 0)


def test_an_export_goes_through_run_batch(
    student: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judge, style = student
    source, asked, answered, out = (tmp_path / name for name in ("in.jsonl", "asked.jsonl", "answered.jsonl", "out.jsonl"))
    write_trajectories(source, [*SUMS, HUGE])
    extra = orjson.dumps({"structured_outputs": {"regex": r"Step 1: [a-z]{3,9}\n\\boxed\{1\}"}}).decode()
    name, db = f"vllm/{judge}", str(tmp_path / "x.db")
    how = ("--judge", name, "--db", db, "--style", str(style), "--seed", "1", "--extra-body", extra)
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
    assert [row["first_error"] for row in rows[:3]] == [1] * 3
    assert run("batch", "import", str(answered), "--db", db) in (0, 3)  # twice is once
    kept = orjson.loads((tmp_path / "out.jsonl.run.json").read_bytes())
    assert kept["replies"]["cached"] == 3
