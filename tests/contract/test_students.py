"""Every student declares what it is; one of another package, with an option of its own, is distilled, stored and scored."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields, replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from critic_prm import registry
from critic_prm.cli import build
from critic_prm.errors import UsageError
from distill.settings import TrainingSettings
from distill.types import choose_student, load_scorer, open_student
from tests.distill.tiny import training_set


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy student and the toy loss, found as an installed package's are."""
    installed = registry._installed

    def with_toys(kind: str) -> dict[str, EntryPoint]:
        toys = {"student": ("steady", "steady"), "loss": ("absolute", "absolute:ABSOLUTE")}
        name, value = toys.get(kind, ("", ""))
        found = {name: EntryPoint(name, f"tests.contract.toy.{value}", "")} if name else {}
        return {**installed(kind), **found}

    monkeypatch.setattr(registry, "_installed", with_toys)


@pytest.mark.parametrize("name", registry.names("student"))
def test_a_student_declares_what_it_is(name: str, tmp_path: Path) -> None:
    student = open_student(name)
    known = {field.name for field in fields(TrainingSettings)}
    assert set(student.settings) <= known
    text = f"{name}:./base" if student.needs_base else name
    assert callable(choose_student(text).train)
    with pytest.raises(UsageError, match=r"has no base|needs a base"):
        choose_student(name if student.needs_base else f"{name}:./base")
    with pytest.raises(UsageError, match="has no option"):
        choose_student(text, options=["surely-not=1"])
    for unused in known - set(student.settings) - {"freeze", "lora"}:
        if unused == "heads":
            with pytest.raises(UsageError, match="--heads"):
                choose_student(text, replace(TrainingSettings(), heads=4))
    if not student.has_backends:
        from distill.settings import LoadOptions

        with pytest.raises(UsageError, match="--backend"):
            load_scorer(name, tmp_path, LoadOptions(dtype="fp32"))


def test_one_student_takes_a_base_alone() -> None:
    assert [name for name in registry.names("student") if open_student(name).takes_bare_base] == ["transformer"]


@pytest.mark.usefixtures("toy")
def test_a_toy_student_goes_through_distill_score_and_card(tmp_path: Path) -> None:
    data, out, source = training_set(tmp_path / "data"), tmp_path / "v", tmp_path / "in.jsonl"
    command = f"distill {data} -o {out} --student steady --option p=0.25"
    build()(command.split(), standalone_mode=False)
    info = json.loads((out / "verifier.json").read_text())
    assert info["student"] == "steady"
    assert info["training"]["solutions"] == 60
    assert "the `steady` student" in (out / "README.md").read_text()
    source.write_text(json.dumps({"problem": "1 plus 1?", "steps": ["1 + 1 = 2", "Done."]}) + "\n")
    build()(f"score {out} {source} -o {tmp_path}/scored.jsonl".split(), standalone_mode=False)
    row = json.loads((tmp_path / "scored.jsonl").read_text())
    assert len(set(row["p_correct"])) == 1
    assert (tmp_path / "scored.jsonl.run.json").is_file()


@pytest.mark.usefixtures("toy")
def test_a_toy_loss_is_listed() -> None:
    assert "absolute" in registry.names("loss")
    assert registry.load("loss", "absolute").objective == "the absolute error of P(correct)"


def test_scoring_with_a_verifier_imports_no_sdk() -> None:
    code = "import sys; import distill.store, distill.verifier; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    ours = [name for name in loaded if name.split(".")[0] in ("critic_prm", "distill")]
    assert not [
        name for name in ours if name.startswith(("critic_prm.engine", "critic_prm.providers.openai", "critic_prm.label"))
    ]
    assert not {"openai", "anthropic", "httpx2", "torch", "sklearn"} & set(loaded)
    assert len(ours) <= 35
