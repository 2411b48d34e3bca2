"""One model, many ways to the same scores: in packs, alone, remembered, in plain transformers, in ONNX."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from critic_prm.cli import main
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import CriticPrmError, InputError, UsageError
from distill.run import distill
from distill.scoring import onnx
from distill.scoring.attention import grow, packs
from distill.scoring.model import Packed, PrefixCachedRunner, Rows
from distill.scoring.onnx import export_onnx, items_to_check
from distill.settings import TrainingSettings
from distill.students.transformer import Transformer
from distill.types import Item
from distill.verifier import Verifier, load_verifier
from tests.distill.tiny import known, sums, tiny_base, training_set

ITEMS: list[Item] = [(row["prompt"], row["completions"]) for row in sums(30, seed=9, most=6)]
BRANCHES: list[Item] = [("Add them up.", ["1 + 2 = 3", "3 + 4 = 7", f"7 + {n} = {7 + n}", "So it is done."]) for n in range(8)]


@pytest.fixture(scope="module", params=["qwen2", "llama", "bert"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp(request.param)
    base = tiny_base(place / "base", request.param, layers=1 if request.param == "qwen2" else 2)  # ONNX: 7 s a layer
    settings = TrainingSettings(epochs=1, dtype="fp32", lr=1e-3, heads=3, device="cpu")
    return distill(training_set(place / "data"), place / "v", student=Transformer(str(base), settings)).folder


@pytest.fixture(scope="module")
def causal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("causal")
    settings = TrainingSettings(epochs=1, dtype="fp32", lr=1e-3, device="cpu")
    student = Transformer(str(tiny_base(place / "base", "llama")), settings)
    return distill(training_set(place / "data"), place / "v", student=student).folder


def scores(verifier: Verifier, items: Sequence[Item]) -> Any:
    return np.concatenate(verifier.scorer.score(items))


def test_plain_transformers_gives_the_same(folder: Path) -> None:
    from transformers import AutoModelForTokenClassification

    verifier = load_verifier(folder)
    scorer: Any = verifier.scorer
    model = AutoModelForTokenClassification.from_pretrained(folder).eval()
    theirs = []
    for problem, steps in ITEMS:
        one = scorer.encoder.encode(problem, steps)
        with torch.no_grad():
            p = model(input_ids=torch.from_numpy(one.ids.astype(np.int64))[None]).logits[0].double().softmax(-1)
        theirs.append(p[torch.from_numpy(one.ends.astype(np.int64)), 1].numpy())
    ours = scores(verifier, ITEMS)
    assert np.ptp(ours) > 0.005
    assert np.abs(ours - np.concatenate(theirs)).max() < 1e-6


def test_a_score_does_not_depend_on_its_company(folder: Path) -> None:
    verifier = load_verifier(folder)
    for items in (ITEMS, BRANCHES):
        alone = np.concatenate([scores(verifier, [item]) for item in items])
        assert np.abs(scores(verifier, items) - alone).max() < 1e-6
        backwards = np.concatenate(verifier.scorer.score(items[::-1])[::-1])
        assert np.abs(backwards - alone).max() < 1e-6


def test_causal_models_score_in_packs_and_encoders_in_rows(folder: Path) -> None:
    scorer: Any = load_verifier(folder).scorer
    assert isinstance(scorer.runner, Packed if scorer.causal else Rows)
    assert scorer.causal == ("bert" not in str(folder))


def test_what_candidates_share_is_computed_once() -> None:
    shared = np.arange(100, dtype=np.int32)
    sequences = [np.concatenate([shared, np.full(10, 200 + n, dtype=np.int32)]) for n in range(16)]
    tree = grow(sequences)
    assert len(tree.ids) == 100 + 16 * 10
    assert all((tree.ids[places] == ids).all() for places, ids in zip(tree.places, sequences, strict=True))
    assert all((tree.positions[places] == np.arange(110)).all() for places in tree.places)
    assert packs(sequences, 300) == [list(range(16))]


def test_several_heads_say_how_far_they_disagree(folder: Path) -> None:
    verifier = load_verifier(folder)
    spread = verifier.spread_many(ITEMS)
    assert [len(s) for s in spread] == [len(steps) for _, steps in ITEMS]
    assert all(0 < s < 0.5 for row in spread for s in known(row))


def test_one_head_cannot(causal: Path) -> None:
    with pytest.raises(UsageError, match="one head"):
        load_verifier(causal).spread_many(ITEMS)


async def test_the_spread_reaches_verdicts(folder: Path) -> None:
    (judgement,) = await load_verifier(folder).judge([Trajectory("1", "Add them up.", (Step("1 + 1 = 2"), Step("2 + 2 = 4")))])
    assert [verdict.spread is not None for verdict in judgement.verdicts] == [True, True]


def test_a_step_that_is_appended_costs_that_step(causal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, growing = load_verifier(causal), load_verifier(causal).with_prefix_cache()
    runner: Any = growing.scorer.runner  # type: ignore[attr-defined]
    assert isinstance(runner, PrefixCachedRunner)
    computed: list[int] = []
    real = type(runner.machine).packed

    def packed(machine: Any, ids: Any, *rest: Any) -> Any:
        computed.append(len(ids))
        return real(machine, ids, *rest)

    problem, steps = "Add them up." * 5, ["1 + 2 = 3", "3 + 4 = 7", "7 + 1 = 8", "8 + 9 = 17"]
    encoder = growing.scorer.encoder  # type: ignore[attr-defined]
    lengths = [len(encoder.encode(problem, steps[:n]).ids) for n in range(1, 5)]
    monkeypatch.setattr(type(runner.machine), "packed", packed)
    found = [growing.scorer.score([(problem, steps[:n])])[0] for n in range(1, 5)]
    assert computed == [lengths[0], *np.diff(lengths)]
    monkeypatch.undo()
    whole = scores(plain, [(problem, steps)])
    for n, p in enumerate(found, 1):
        assert np.abs(p - whole[:n]).max() < 1e-6


def test_growing_trees_are_remembered_and_forgotten(causal: Path) -> None:
    plain, growing = load_verifier(causal), load_verifier(causal).with_prefix_cache()
    runner: Any = growing.scorer.runner  # type: ignore[attr-defined]
    for depth in range(1, 5):
        items = [(problem, steps[:depth]) for problem, steps in [*BRANCHES, *ITEMS]]
        assert np.abs(scores(growing, items) - scores(plain, items)).max() < 1e-6
    assert runner.traces
    small = PrefixCachedRunner(runner.machine, max_bytes=1000)
    assert [f.p.tolist() for f in small.run(growing.scorer.encoder.encode_many(ITEMS[:3]))]  # type: ignore[attr-defined]
    assert sum(trace.bytes for trace in small.traces) <= 1000


def test_onnx_gives_the_same(folder: Path) -> None:
    path, drift = export_onnx(folder, ITEMS)
    assert path == folder / "model.onnx"
    assert drift.largest < 1e-4
    exported = load_verifier(folder, backend="onnx")
    assert np.abs(scores(exported, ITEMS) - scores(load_verifier(folder), ITEMS)).max() < 1e-4
    with pytest.raises(UsageError, match="one head"):
        exported.spread_many(ITEMS)


def test_int8_stands_behind_a_gate(
    causal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, export = tmp_path / "whole.onnx", onnx.write_onnx

    def once(model: Any, path: Path) -> None:
        """The slow part, the same each time."""
        if not whole.exists():
            export(model, whole)
        shutil.copy(whole, path)

    monkeypatch.setattr(onnx, "write_onnx", once)
    before = sorted(p.name for p in causal.iterdir())
    with pytest.raises(CriticPrmError, match="was not kept: P\\(correct\\) moves by up to"):
        export_onnx(causal, ITEMS, int8=True, max_drift=1e-9)
    assert sorted(p.name for p in causal.iterdir()) == before
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(causal), "--int8", "--max-drift", "0.2", "--check", str(causal.parent / "data" / "dev.jsonl")])
    assert (stopped.value.code or 0) == 0
    assert "P(correct) moves by at most" in capsys.readouterr().err
    record = json.loads((causal / "export.json").read_text())["model.int8.onnx"]
    exported = load_verifier(causal, backend="onnx")
    assert record["steps"] > 50
    gap = np.abs(scores(exported, ITEMS) - scores(load_verifier(causal), ITEMS)).max()
    assert gap < 0.2
    rows, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps({"id": "1", "problem": "Add them up.", "steps": ["1 + 1 = 2"]}) + "\n")
    with pytest.raises(SystemExit) as stopped:
        main(["score", str(causal), str(rows), "-o", str(out), "--backend", "onnx"])
    assert (stopped.value.code or 0) == 0
    (p,) = json.loads(out.read_text())["p_correct"]
    assert p == pytest.approx(exported.score("Add them up.", ["1 + 1 = 2"])[0], abs=1e-6)


def test_what_cannot_be_opened_is_said(causal: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="backend is 'tensorrt'; it is one of torch, onnx, vllm"):
        load_verifier(causal, backend="tensorrt")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--base-url needs --backend vllm"):
        load_verifier(causal, base_url="http://127.0.0.1:1")
    with pytest.raises(CriticPrmError, match="no vLLM server answers at"):
        load_verifier(causal, backend="vllm", base_url="http://127.0.0.1:9")
    linear = distill(training_set(tmp_path / "data"), tmp_path / "linear").folder
    with pytest.raises(UsageError, match="a linear verifier has no --backend"):
        load_verifier(linear, backend="onnx")
    with pytest.raises(UsageError, match="only transformer verifiers are exported"):
        export_onnx(linear, ITEMS)


def test_the_dev_split_is_where_it_was(causal: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """verifier.json names a training set that lies outside its folder: it is read where the user trusts that file."""
    monkeypatch.chdir(causal.parent)
    with pytest.raises(InputError, match="name solutions with --check, or to allow it: --trust"):
        items_to_check(causal, None, 7)
    trust = [causal / "verifier.json"]
    assert len(items_to_check(causal, None, 7, trust)) == 7
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="the verifier's dev split does not exist; name a file of solutions"):
        items_to_check(causal, None, 7, trust)


def test_nothing_was_exported(causal: Path, tmp_path: Path) -> None:
    import shutil

    bare = Path(shutil.copytree(causal, tmp_path / "bare", ignore=shutil.ignore_patterns("*.onnx")))
    with pytest.raises(InputError, match="it contains no ONNX model; export one with: critic-prm export"):
        load_verifier(bare, backend="onnx")


def test_bf16_is_near(causal: Path) -> None:
    near = load_verifier(causal, dtype="bf16")
    assert np.abs(scores(near, ITEMS) - scores(load_verifier(causal), ITEMS)).max() < 0.05


@pytest.mark.parametrize("answers", ["y\n" * 100, ""], ids=["yes to everything", "no answer"])
def test_code_in_a_verifiers_folder_is_neither_run_nor_asked_about(
    causal: Path, tmp_path: Path, answers: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """transformers asked on stdin whether to run the code that `auto_map` names, and ran it after a "y"."""
    folder, canary = tmp_path / "verifier", tmp_path / "canary"
    shutil.copytree(causal, folder)
    code = f"open({str(canary)!r}, 'w')\n"
    for name in ("modeling_evil.py", "configuration_evil.py", "tokenization_evil.py"):
        (folder / name).write_text(code)
    named = {
        "AutoConfig": "configuration_evil.C",
        "AutoModel": "modeling_evil.M",
        "AutoTokenizer": ["tokenization_evil.T", None],
    }
    for file, extra in {
        "config.json": {"model_type": "evil", "auto_map": named},
        "tokenizer_config.json": {"tokenizer_class": "T", "auto_map": named},
    }.items():
        path = folder / file
        path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | extra))
    rows = tmp_path / "in.jsonl"
    rows.write_text('{"id": "a", "problem": "1 + 1?", "steps": ["1 + 1 = 2"]}\n')
    monkeypatch.setattr(sys, "stdin", StringIO(answers))
    with pytest.raises(SystemExit) as stopped:
        main(["score", str(folder), str(rows), "-o", str(tmp_path / "out.jsonl")])
    assert stopped.value.code not in (0, None)
    said = "".join(capsys.readouterr())
    assert "error: " in said
    assert "Traceback" not in said
    assert "[y/N]" not in said
    assert sys.stdin.tell() == 0
    assert not canary.exists()
