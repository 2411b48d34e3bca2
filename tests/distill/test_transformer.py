"""From a training set and a tiny base to a verifier: it learns, stops early, survives kill -9, trains in two processes, and
says what is wrong before it begins."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from critic_prm.errors import CriticPrmError, InputError, UsageError
from distill.data import read_training_set
from distill.run import Distilled, distill
from distill.settings import TrainingSettings
from distill.students.linear import Linear
from distill.students.transformer import Transformer
from distill.types import choose_student
from distill.verifier import load_verifier
from tests.distill.tiny import known, sums, tiny_base, training_set
from tests.effort import until

FAST = TrainingSettings(lr=5e-3, epochs=4, batch_tokens=512, dtype="fp32", device="cpu", evaluations=2)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_base(tmp_path_factory.mktemp("base") / "llama", "llama")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return training_set(tmp_path_factory.mktemp("data") / "sums")


@pytest.fixture(scope="module")
def made(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Distilled:
    return distill(data, tmp_path_factory.mktemp("out") / "v", student=Transformer(str(base), FAST))


def records(folder: Path, key: str = "loss") -> list[dict[str, Any]]:
    lines = (folder / "training.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if key in record]


def test_a_base_becomes_a_verifier(made: Distilled) -> None:
    assert {p.name for p in made.folder.iterdir()} >= {
        "verifier.json", "metrics.json", "README.md", "model.safetensors", "config.json", "tokenizer.json", "scoring.json",
        "training.jsonl", "training.png",
    }  # fmt: skip
    assert made.metrics["dev"]["auroc"] > 0.95
    assert made.info["student"] == "transformer"
    verifier = load_verifier(made.folder)
    right, wrong = known(verifier.score("Add them up.", ["1 + 2 = 3", "3 + 4 = 7 wrong"]))
    assert right > verifier.threshold > wrong
    assert not list(made.folder.parent.glob(".*"))


def test_the_log_has_every_step_and_every_look_at_dev(made: Distilled) -> None:
    steps, looks = records(made.folder), records(made.folder, "dev")
    assert [r["step"] for r in steps] == list(range(1, len(steps) + 1))
    assert steps[-1]["loss"] < steps[0]["loss"] / 2
    assert {"loss", "lr", "norm", "tokens", "tokens_per_second", "epoch", "seconds"} <= set(steps[0])
    assert made.info["training"]["tokens"] == steps[-1]["tokens"]
    best = max(looks, key=lambda r: (r["dev"]["f1"], -r["dev"]["loss"]))
    assert made.info["training"]["best"] == {"step": best["step"], **best["dev"]}
    assert (made.folder / "training.png").read_bytes().startswith(b"\x89PNG")


def test_the_verifier_scores_as_training_last_saw_it(made: Distilled, data: Path) -> None:
    """The numbers of the best look at dev are those of the saved folder: best weights, no dropout, the same positions."""
    rows = read_training_set(data).dev
    raw = load_verifier(made.folder).scorer.score([(row.problem, row.steps) for row in rows])
    pairs = [(p, y) for s, row in zip(raw, rows, strict=True) for p, y in zip(s, row.labels, strict=True) if y is not None]
    brier = sum((p - y) ** 2 for p, y in pairs) / len(pairs)
    assert brier == pytest.approx(made.info["training"]["best"]["brier"], abs=1e-5)


def test_the_same_seed_gives_the_same_losses_and_another_one_others(base: Path, data: Path, tmp_path: Path) -> None:
    short = replace(FAST, epochs=1)
    one, two, other = (
        [r["loss"] for r in records(distill(data, tmp_path / str(n), student=Transformer(str(base), short), seed=seed).folder)]
        for n, seed in enumerate((0, 0, 1))
    )
    assert one == two != other


def test_training_stops_when_dev_does_not_get_better(base: Path, data: Path, tmp_path: Path) -> None:
    idle = replace(FAST, lr=1e-30, epochs=20, patience=2, evaluations=1, schedule="constant")
    made = distill(data, tmp_path / "v", student=Transformer(str(base), idle))
    assert [r["best"] for r in records(made.folder, "dev")] == [True, False, False]


@pytest.mark.parametrize(
    "change",
    [
        {"lora": "r=4", "lr": 2e-2}, {"layers": 1}, {"freeze": "all"}, {"heads": 3}, {"checkpointing": True},
        {"layout": "trl"}, {"layout": "qwen"}, {"chat_template": True}, {"dtype": "bf16"}, {"schedule": "linear", "clip": 0.0},
    ],
    ids=str,
)  # fmt: skip
def test_every_way_to_train_gives_a_folder_that_loads(base: Path, data: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    made = distill(data, tmp_path / "v", student=Transformer(str(base), replace(FAST, epochs=1, **change)))
    verifier = load_verifier(made.folder)
    (scores,) = verifier.score_many([("Add.", ["1 + 2 = 3", "done"])])
    assert all(0 <= p <= 1 for p in known(scores))


COMMAND = "from critic_prm.cli import main; main()"


def command(data: Path, out: Path, base: Path, *more: str) -> list[str]:
    return [
        "distill", str(data), "-o", str(out), "--student", str(base), "--lr", "5e-3", "--epochs", "3", "--batch-tokens", "256",
        "--dtype", "fp32", "--device", "cpu", "--evaluations", "2", *more,
    ]  # fmt: skip


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}


def test_kill_dash_nine_changes_nothing(base: Path, data: Path, tmp_path: Path) -> None:
    """A run that is killed in the middle and started again has the losses, the dev evaluations and the weights of one that was
    left alone. (Two processes that import torch: a few seconds.)"""
    settings = TrainingSettings(lr=5e-3, epochs=3, batch_tokens=256, dtype="fp32", device="cpu", evaluations=2, save_minutes=0)
    alone = distill(data, tmp_path / "alone", student=Transformer(str(base), settings))
    work = tmp_path / ".v.training"
    run = [sys.executable, "-c", COMMAND, *command(data, tmp_path / "v", base, "--save-minutes", "0")]
    process = subprocess.Popen(run, env=environment(), stderr=subprocess.DEVNULL)
    until(lambda: process.poll() is not None or ((work / "training.jsonl").is_file() and len(records(work)) >= 6))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "v").exists()
    done = len(records(work))
    assert 6 <= done < len(records(alone.folder))
    (place,) = work.glob("checkpoint-*")
    again = distill(data, tmp_path / "v", student=Transformer(str(base), settings))
    assert int(place.name.split("-")[1]) >= 5
    expected, found = records(alone.folder), records(again.folder)
    assert [r["step"] for r in found] == [r["step"] for r in expected]
    assert [r["loss"] for r in found] == pytest.approx([r["loss"] for r in expected], abs=1e-6)
    assert [r["dev"] for r in records(again.folder, "dev")] == [r["dev"] for r in records(alone.folder, "dev")]
    assert (again.folder / "model.safetensors").read_bytes() == (alone.folder / "model.safetensors").read_bytes()
    assert not work.exists()


def test_another_run_does_not_go_on_from_a_checkpoint(base: Path, data: Path, tmp_path: Path) -> None:
    from distill.training.checkpoint import Checkpoints, State

    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW([parameter])

    def checkpoints(run: str) -> Checkpoints:
        return Checkpoints(tmp_path, run, {"p": parameter}, optimizer, every=0)

    parameter.grad = torch.ones(3)
    optimizer.step()
    checkpoints("one").save(State(step=1, tokens=5))
    assert checkpoints("two").resume() is None
    before = parameter.detach().clone()
    with torch.no_grad():
        parameter.zero_()
    assert checkpoints("one").resume() == State(step=1, tokens=5)
    assert torch.equal(parameter, before)


def test_a_full_disk_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The state cannot be written: one warning. Once there is room, the next checkpoint has the best weights too."""
    from distill.training import checkpoint
    from distill.training.checkpoint import Checkpoints, State
    from distill.training.loop import Log

    parameter, said = torch.nn.Parameter(torch.ones(3)), list[str]()
    optimizer = torch.optim.AdamW([parameter])
    saved = Checkpoints(tmp_path, "run", {"p": parameter}, optimizer, every=0, say=said.append)
    log = Log(tmp_path, 0, saved.warn)
    log.write({"step": 1})
    state = State(step=2, best={"step": 2, "f1": None, "loss": 1.0})

    def full(*args: Any, **kwargs: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write", full)
        patch.setattr(Path, "open", full)
        saved.keep_best(2)
        saved.save(state)
        log.write({"step": 2})
    assert len(said) == 1
    assert "No space left on device; training continues" in said[0]
    assert [path.name for path in tmp_path.iterdir()] == ["training.jsonl"]
    with torch.no_grad():
        parameter.zero_()
    saved.save(state)
    assert Checkpoints(tmp_path, "run", {"p": parameter}, optimizer, every=0).resume() == state
    saved.restore_best()
    assert parameter.tolist() == [1.0, 1.0, 1.0]


def test_two_processes_have_the_losses_of_one(base: Path, data: Path, tmp_path: Path) -> None:
    """Under torchrun with gloo; the same steps, shared out. (Three processes that import torch: a few seconds.)"""
    settings = TrainingSettings(lr=5e-3, epochs=3, batch_tokens=256, dtype="fp32", device="cpu", evaluations=2)
    alone = distill(data, tmp_path / "one", student=Transformer(str(base), settings))
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "-m", "critic_prm"]
    done = subprocess.run(
        [*run, *command(data, tmp_path / "two", base)], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("calibration and decision") == 1
    expected, found = records(alone.folder), records(tmp_path / "two")
    assert [r["loss"] for r in found] == pytest.approx([r["loss"] for r in expected], abs=1e-5)
    assert [r["tokens"] for r in found] == [r["tokens"] for r in expected]
    assert json.loads((tmp_path / "two" / "verifier.json").read_text())["training"]["processes"] == 2


def test_more_labels_than_one_in_a_hundred_may_not_be_lost_to_the_length(base: Path, tmp_path: Path) -> None:
    data = training_set(tmp_path / "d")
    rows = sums(60, 1)
    rows[7]["completions"][-1] += " and" * 400
    rows[7]["labels"] = [1.0] * len(rows[7]["labels"])
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    student = Transformer(str(base), replace(FAST, epochs=1, allow_dropped=0.005))
    with pytest.raises(InputError, match=r"1 of \d+ labels are lost: their steps do not fit into 512 tokens.*--allow-dropped"):
        distill(data, tmp_path / "v", student=student)
    assert not (tmp_path / "v").exists()
    said: list[str] = []
    distill(data, tmp_path / "v", student=Transformer(str(base), replace(FAST, epochs=1, allow_dropped=0.05)), say=said.append)
    assert any("1 steps, 1 with a label, do not fit" in line for line in said)


def test_one_class_is_said_before_anything_is_loaded(tmp_path: Path) -> None:
    data = training_set(tmp_path / "d")
    rows = [row | {"labels": [1.0] * len(row["labels"])} for row in sums(20, 1)]
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="0 incorrect"):
        distill(data, tmp_path / "v", student=Transformer("a-base-that-does-not-exist", FAST))


def test_a_label_that_is_no_number_is_said(base: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in ("train", "dev"):
        shutil.copy(data / f"{name}.jsonl", tmp_path / "d")
    text = (tmp_path / "d" / "train.jsonl").read_text()
    (tmp_path / "d" / "train.jsonl").write_text(text.replace("1.0", "NaN", 1))
    with pytest.raises(InputError, match=r"train.jsonl:\d+: .*JSON has no NaN"):
        distill(tmp_path / "d", tmp_path / "v", student=Transformer(str(base), FAST))
    rows = read_training_set(data)
    first = replace(rows.train[0], labels=(float("nan"),) * len(rows.train[0].steps))
    with pytest.raises(InputError, match="labels are \\(nan"):
        distill(replace(rows, train=(first, *rows.train[1:])), tmp_path / "v", student=Transformer(str(base), FAST))


def test_a_full_disk_is_said_before_the_first_step(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match="are free, and the verifier"):
        distill(data, tmp_path / "v", student=Transformer(str(base), FAST))


def test_a_disk_that_fills_while_saving_leaves_the_old_verifier(
    base: Path, data: Path, made: Distilled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made.folder, tmp_path / "v")
    before = (tmp_path / "v" / "verifier.json").read_bytes()

    def full(*arguments: Any, **named: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("transformers.PreTrainedModel.save_pretrained", full)
    with pytest.raises(CriticPrmError, match="cannot be written: No space left on device"):
        distill(data, tmp_path / "v", student=Transformer(str(base), replace(FAST, epochs=1)))
    assert (tmp_path / "v" / "verifier.json").read_bytes() == before
    load_verifier(tmp_path / "v")


def test_a_folder_without_a_head_is_no_verifier(made: Distilled, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from distill.verifier import fingerprint

    folder = shutil.copytree(made.folder, tmp_path / "v")
    weights = {name: t for name, t in load_file(folder / "model.safetensors").items() if not name.startswith("score")}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    info = json.loads((folder / "verifier.json").read_text())
    (folder / "verifier.json").write_text(json.dumps(info | {"fingerprint": fingerprint(folder)}))
    with pytest.raises(InputError, match=r"score\.bias"):
        load_verifier(folder)


def test_a_loss_that_is_no_number_stops_the_run(base: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(CriticPrmError, match="the loss is nan at step"):
        distill(data, tmp_path / "v", student=Transformer(str(base), replace(FAST, lr=1e30, warmup=0.0, clip=0.0)))


def test_a_tokenizer_of_another_model_is_said(data: Path, base: Path, tmp_path: Path) -> None:
    small = tiny_base(tmp_path / "small", "llama")
    config = json.loads((small / "tokenizer.json").read_text())
    config["added_tokens"].append(
        {"id": 9000, "content": "Add", "special": False, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
    )  # fmt: skip
    (small / "tokenizer.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="use the tokenizer of this model"):
        distill(data, tmp_path / "v", student=Transformer(str(small), FAST))


def test_the_linear_student_has_no_settings() -> None:
    assert choose_student("linear") == Linear()
    with pytest.raises(UsageError, match="has no --lr, --epochs"):
        choose_student("linear", replace(TrainingSettings(), lr=1e-4, epochs=9))


def test_the_card_has_intervals_licences_and_how_else_to_use_the_folder(base: Path, data: Path, tmp_path: Path) -> None:
    for source, name, licence in ((base, "b", "apache-2.0"), (data, "d", "mit")):
        shutil.copytree(source, tmp_path / name)
        (tmp_path / name / "README.md").write_text(f'---\ntags: [x]\nlicense: "{licence}"\n---\n# It\n')
    rows = [row | {"prompt": f"Sum {n}"} for n, row in enumerate(sums(30, 2))]
    (tmp_path / "d" / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = distill(tmp_path / "d", tmp_path / "v", student=Transformer(str(tmp_path / "b"), replace(FAST, epochs=1)))
    card = (made.folder / "README.md").read_text()
    assert "The licence of the data is mit; the licence of the base is apache-2.0." in card
    assert "vllm serve v --runner pooling" in card
    low, high = made.metrics["dev"]["intervals"]["brier"]
    assert low < made.metrics["dev"]["brier"] < high
    assert f"{made.metrics['dev']['brier']:.3f} [{low:.3f}, {high:.3f}]" in card


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from distill.training import progress

    step = {"step": 3, "of": 9, "loss": 0.25, "tokens_per_second": 1234.0, "seconds": 60.0}
    look = {"step": 3, "epoch": 1.0, "dev": {"f1": 0.5, "auroc": None, "brier": 0.2, "loss": 0.4}, "best": True}
    told = "dev after step 3 (epoch 1.00): F1 0.500, Brier 0.200, loss 0.400 (best so far)"
    said: list[str] = []
    monkeypatch.setattr(progress, "EVERY", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with progress.watching(said.append) as watch:
        watch(step)
        watch(look)
    assert said == ["step 3 of 9: loss 0.2500, 1,234 tokens/s, 2 min left", told]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "160")
    with progress.watching(said.append) as watch:
        watch(step)
        watch(look)
    shown = capsys.readouterr().err
    assert told in shown
    assert "1,234 tokens/s" in shown
    assert "best dev F1 0.500" in shown
