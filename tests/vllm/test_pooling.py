"""A transformer verifier's folder in vLLM's pooling runner: the scores that it gives here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file, save_file

from critic_prm.cli import main
from distill.run import distill
from distill.settings import Settings
from distill.students.transformer import Transformer
from distill.verifier import fingerprint, load_verifier
from tests.distill.tiny import sums, training_set
from tests.vllm.conftest import vllm_pooling_server


@pytest.fixture(scope="module")
def verifier(judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained for a moment, so that its scores differ from step to step."""
    folder = tmp_path_factory.mktemp("verifier")
    settings = Settings(epochs=1, dtype="fp32", lr=1e-3)
    return distill(training_set(folder / "data"), folder / "v", student=Transformer(str(judge), settings)).folder


@pytest.fixture(scope="module")
def server(verifier: Path) -> Iterator[str]:
    with vllm_pooling_server(verifier) as address:
        yield address


def post(address: str, body: dict[str, Any]) -> Any:
    sent = Request(address, orjson.dumps(body), {"Content-Type": "application/json"})
    with urlopen(sent, timeout=60) as answer:
        return orjson.loads(answer.read())


def test_scores_are_ours(server: str, verifier: Path) -> None:
    scorer: Any = load_verifier(verifier).scorer
    items = [(row["prompt"], row["completions"]) for row in sums(40, seed=9, most=6)]
    ours = scorer.score(items)
    encoded = scorer.encoder.encode_many(items)
    body = {"model": str(verifier), "input": [one.ids.tolist() for one in encoded], "task": "token_classify"}
    rows = post(server.removesuffix("/v1") + "/pooling", body)["data"]
    theirs = [np.array(row["data"])[one.ends, 1] for row, one in zip(rows, encoded, strict=True)]
    assert np.ptp(np.concatenate(ours)) > 0.01
    assert max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True)) < 1e-4


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
