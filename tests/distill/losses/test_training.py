"""Every loss through the whole loop: it goes down, and tells right steps from wrong ones that it was not shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from critic_prm.registry import names
from distill.data import Row, TrainingSet
from distill.settings import TrainingSettings
from distill.students.transformer import Transformer
from tests.distill.tiny import sums, tiny_base

SETTINGS = TrainingSettings(epochs=6, lr=4e-3, batch_tokens=300, device="cpu", dtype="fp32", patience=0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base"))


def rows(count: int, seed: int) -> tuple[Row, ...]:
    """Labels, four votes a step and outcomes: a solution is right when all its steps are."""
    found = []
    for row in sums(count, seed, most=3):
        labels = row["labels"]
        votes = tuple((0, 0) if p is None else (4, 4) if p else (0, 4) for p in labels)
        outcome = float(0.0 not in labels)
        found.append(Row(row["id"], row["prompt"], tuple(row["completions"]), tuple(labels), 1.0, votes, "sums", outcome))
    return tuple(found)


@pytest.mark.parametrize("name", names("loss"))
def test_it_learns(name: str, base: Path, tmp_path: Path) -> None:
    data = TrainingSet("d", rows(60, 1), rows(30, 2), ())
    settings = replace(SETTINGS, loss=name)
    looks: list[float] = []

    def say(line: str) -> None:
        if line.startswith("dev after"):
            looks.append(float(line.split("loss ")[1].split()[0]))

    found = Transformer(str(base), settings).train(data, seed=0, say=say)
    assert looks[-1] < looks[0]
    assert found.summary["best"]["auroc"] > 0.8
    found.scorer.save(tmp_path)
    scores = found.scorer.score([("Add them up.", ["1 + 2 = 3", "3 + 4 = 7 wrong"])])[0]
    assert scores[0] > scores[1]
