"""A transformer verifier's folder in vLLM's pooling runner: the scores that it gives here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file, save_file

from critic_prm.cli import main
from distill.run import distill
from distill.settings import TrainingSettings
from distill.students.transformer import Transformer
from distill.verifier import fingerprint, load_verifier
from tests.distill.tiny import sums, training_set
from tests.vllm.conftest import vllm_pooling_server


@pytest.fixture(scope="module")
def verifier(judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained for a moment, so that its scores differ from step to step."""
    folder = tmp_path_factory.mktemp("verifier")
    settings = TrainingSettings(epochs=1, dtype="fp32", lr=1e-3)
    return distill(training_set(folder / "data"), folder / "v", student=Transformer(str(judge), settings)).folder


@pytest.fixture(scope="module")
def server(verifier: Path) -> Iterator[str]:
    with vllm_pooling_server(verifier) as address:
        yield address


def test_scores_are_ours(server: str, verifier: Path) -> None:
    ours, theirs = load_verifier(verifier), load_verifier(verifier, backend="vllm", base_url=server)
    items = [(row["prompt"], row["completions"]) for row in sums(40, seed=9, most=6)]
    here, there = (np.concatenate(one.scorer.score(items)) for one in (ours, theirs))
    assert np.ptp(here) > 0.01
    assert np.abs(here - there).max() < 1e-4


def test_the_command_scores_with_the_server(server: str, verifier: Path, tmp_path: Path) -> None:
    rows, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows.write_bytes(orjson.dumps({"id": "1", "problem": "Add them up.", "steps": ["1 + 1 = 2", "2 + 3 = 5"]}) + b"\n")
    with pytest.raises(SystemExit) as stopped:
        main(["score", str(verifier), str(rows), "-o", str(out), "--backend", "vllm", "--base-url", server])
    assert not stopped.value.code
    assert orjson.loads(out.read_bytes())["p_correct"] == pytest.approx(
        load_verifier(verifier).score("Add them up.", ["1 + 1 = 2", "2 + 3 = 5"]), abs=1e-4
    )


def test_the_doctor_compares_scores(server: str, verifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def doctor(folder: Path, address: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stopped:
            main(["doctor", str(folder), "--base-url", address])
        return int(stopped.value.code or 0), capsys.readouterr().out

    code, said = doctor(verifier, server)
    assert code == 0
    assert "ok    golden" in said
    other = Path(shutil.copytree(verifier, tmp_path / "other"))
    weights = load_file(other / "model.safetensors")
    save_file(weights | {"score.weight": -weights["score.weight"]}, other / "model.safetensors", {"format": "pt"})
    info = orjson.loads((other / "verifier.json").read_bytes())
    (other / "verifier.json").write_bytes(orjson.dumps(info | {"fingerprint": fingerprint(other)}))
    code, said = doctor(other, server)
    assert code == 4
    assert "it serves another model" in said
