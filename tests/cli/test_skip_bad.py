"""A broken row that --skip-bad passes over is told, and the exit code says that the run is not whole."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from critic_prm.cli import main

GOOD = {
    "id": "a", "problem": "7 boxes of 12 eggs, 4 break.", "steps": ["7 * 12 = 84 eggs.", "84 - 4 = 80. The answer is 80"],
    "label": -1, "gold_answer": "80", "final_answer": "80", "reward": 1.0,
}  # fmt: skip

COMMANDS = [
    "generate perturb {file}",
    "generate agent {file}",
    "generate sample {file} -k 1 --keep all --policy scripted/{script}",
    "generate rollout {file} -k 1 --policy scripted/{script}",
    "generate tree {file} -k 1 --searches 1 --policy scripted/{script}",
    "search {file} --method best-of-n --policy scripted/{script} --critic rules -n 1",
    "refine {file} --policy scripted/{script} --critic rules",
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.split()[:2]))
def test_a_row_passed_over_shows_in_the_exit_code(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.jsonl"
    script.write_bytes(orjson.dumps({"text": "7 * 12 = 84\n\n84 - 4 = 80. The answer is 80"}))
    for name, lines, code in (("whole", [GOOD], 0), ("broken", [GOOD, {"problem": ""}], 3)):
        file = tmp_path / f"{name}.jsonl"
        file.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
        words = [*command.format(file=file, script=script).split(), "-o", f"{name}.out.jsonl", "--skip-bad"]
        with pytest.raises(SystemExit) as done:
            main(words)
        said = capsys.readouterr().err
        assert (int(done.value.code or 0), said.count("skipped: ")) == (code, len(lines) - 1), said
        assert (tmp_path / f"{name}.out.jsonl").is_file()
