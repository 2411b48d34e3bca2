"""From a scripted judge's labels to a small model that judges as it did, and what may go wrong on the way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from critic_prm.cli import build
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.styles.prompt import open_style
from distill.settings import ChatOptions, TrainingSettings
from distill.sft.chats import build_chats
from distill.sft.run import MAX_LENGTH, distill_sft


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory, made: SimpleNamespace) -> Path:
    """A style with few tokens."""
    path = tmp_path_factory.mktemp("style") / "short.jinja"
    path.write_text(made.prompt, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def few(made: SimpleNamespace) -> list[Trajectory]:
    found: list[Trajectory] = made.few()
    return found


async def test_a_model_that_learned_the_chats_judges_its_training_problems_right(
    tmp_path: Path, few: list[Trajectory], short: Path, made: SimpleNamespace
) -> None:
    """Labels -> chats -> training -> greedy answers -> the style's reader -> the verdicts of the judge."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from distill.sft.student import Answerer, first_error_named, measure

    result, base = await made.overfit(tmp_path, few, short)
    assert result.metrics["dev"]["judging"] == {
        "solutions": 8, "read": 1.0, "accuracy": 1.0, "erroneous": 1.0, "correct": 1.0, "f1": 1.0,
    }  # fmt: skip
    # The folder by itself, as transformers opens it, with the prompt that lies in it.
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "judge")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "judge")
    style = open_style(str(tmp_path / "judge" / "short.jinja"))
    readings = Answerer(model, tokenizer, 64).readings(style, few)
    assert [first_error_named(reading) for reading in readings] == [t.label for t in few]
    assert [[v.critique for v in reading[0].verdicts] for reading in readings] == [
        [
            f"I add again: {t.texts[k]} is {'off' if k == t.label else 'fine'}."
            for k in range(2 if t.label == -1 else int(t.label or 0) + 1)
        ]
        for t in few
    ]
    ends: Any = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|end|>"])
    stops: Any = model.generation_config.eos_token_id
    assert sorted(stops) == sorted(ends)
    untrained = AutoModelForCausalLM.from_pretrained(base)
    assert measure(Answerer(untrained, tokenizer, 64), style, few)["read"] == 0.0
    card = (tmp_path / "judge" / "README.md").read_text("utf-8")
    assert "--style judge/short.jinja" in card
    assert MAX_LENGTH == 8192


QUICK = TrainingSettings(epochs=2, lr=1e-3, batch_tokens=300, dtype="fp32", max_length=256)


async def prepared(folder: Path, few: list[Trajectory], short: Path, made: SimpleNamespace) -> tuple[Path, Path]:
    """A label file and a base."""
    labels = await made.judge(few, folder / "labels.jsonl", lambda t, n: made.chain(t, t.label, short), str(short))
    texts = [made.chain(t, t.label, short) for t in few] + ["Judge.", *(t.problem for t in few)]
    return labels, made.base_of(folder / "base", texts)


async def test_two_commands_from_labels_to_a_judge(
    tmp_path: Path, short: Path, made: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    many = [made.solution(number, -1 if number % 2 else 0) for number in range(40)]
    labels, base = await prepared(tmp_path, many, short, made)
    rows = [row | {"critic": row["critic"] | {"style": str(short)}} for row in made.rows(labels)]
    labels.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    build()(["dataset", "sft", str(labels), "-o", f"{tmp_path}/judge-chats", "--style", str(short)], standalone_mode=False)
    command = f"distill {tmp_path}/judge-chats -o {tmp_path}/judge --student {base} --objective sft --epochs 1"
    command += " --judge-dev 1 --max-length 256"
    build()([*command.split(), "--lora", "r=4", "--dtype", "bf16", "--lr", "0.01"], standalone_mode=False)
    said = capsys.readouterr().err
    assert "loss per token on dev" in said
    assert "as a judge of 1 solutions of dev" in said
    judge = tmp_path / "judge"
    info, metrics = (orjson.loads((judge / name).read_bytes()) for name in ("judge.json", "metrics.json"))
    assert info["training"]["chats"] == len(made.rows(tmp_path / "judge-chats" / "train.jsonl"))
    assert metrics["dev"]["judging"]["solutions"] == 1
    assert info["style"]["name"] == "short"
    assert info["training"]["account"]["funnel"][0]["in"] == 40
    assert not (tmp_path / ".judge.training").exists()
    assert {path.stat().st_mode & 0o444 for path in judge.iterdir()} == {
        (tmp_path / "base" / "config.json").stat().st_mode & 0o444
    }
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(judge, output_loading_info=True, dtype="auto")
    model, report = loaded
    assert not report["missing_keys"]  # the adapters are merged
    assert not report["unexpected_keys"]
    assert str(model.dtype) == "torch.bfloat16"
    with pytest.raises(UsageError, match="which applies to step scores only"):
        build()([*command.split(), "--heads", "2"], standalone_mode=False)
    with pytest.raises(UsageError, match="needs a causal language model"):
        build()(f"distill {labels} -o {tmp_path}/x --objective sft".split(), standalone_mode=False)


async def test_a_run_that_was_killed_goes_on_with_the_same_losses(
    tmp_path: Path, few: list[Trajectory], short: Path, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, base = await prepared(tmp_path, few, short, made)
    build_chats([labels], tmp_path / "chats", ChatOptions(style=str(short), split=(1.0, 0.0, 0.0), balance=False))
    (tmp_path / "chats" / "dev.jsonl").write_bytes((tmp_path / "chats" / "train.jsonl").read_bytes())
    settings = replace(QUICK, save_minutes=0.0)
    distill_sft(tmp_path / "chats", tmp_path / "whole", str(base), settings, measure_on=0)
    import distill.training.loop

    steps = iter(range(5))

    def killed(*arguments: Any) -> Any:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return one_step(*arguments)

    one_step = distill.training.loop.one_step
    monkeypatch.setattr(distill.training.loop, "one_step", killed)
    with pytest.raises(KeyboardInterrupt):
        distill_sft(tmp_path / "chats", tmp_path / "two", str(base), settings, measure_on=0)
    monkeypatch.setattr(distill.training.loop, "one_step", one_step)
    assert not (tmp_path / "two").exists()
    distill_sft(tmp_path / "chats", tmp_path / "two", str(base), settings, measure_on=0)
    first, second = (
        [(row["step"], row["loss"]) for row in made.rows(tmp_path / name / "training.jsonl") if "loss" in row]
        for name in ("whole", "two")
    )
    assert len(first) == 6
    assert [step for step, _ in first] == [step for step, _ in second]
    assert [loss for _, loss in first] == pytest.approx([loss for _, loss in second], abs=1e-6)


async def test_what_cannot_be_learned_is_refused_before_anything_is_trained(
    tmp_path: Path, few: list[Trajectory], short: Path, made: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, base = await prepared(tmp_path, few, short, made)
    chats = tmp_path / "chats"
    build_chats([labels], chats, ChatOptions(style=str(short), split=(1.0, 0.0, 0.0), balance=False))
    out = tmp_path / "judge"
    with pytest.raises(InputError, match="its dev split has no chats"):
        distill_sft(chats, out, str(base), QUICK)
    (chats / "dev.jsonl").write_bytes((chats / "train.jsonl").read_bytes())
    with pytest.raises(InputError, match=r"8 of 8 chats do not fit into 16 tokens; .*--max-length"):
        distill_sft(chats, out, str(base), replace(QUICK, max_length=16))
    with pytest.raises(InputError, match="cannot be opened"):
        distill_sft(chats, out, str(tmp_path / "chats"), QUICK)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "dataset.json").write_text("{}")
    with pytest.raises(InputError, match="contains labels, not critiques"):
        distill_sft(tmp_path / "set", out, str(base), QUICK)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not a generative student"):
        distill_sft(chats, tmp_path / "other", str(base), QUICK)
    small = made.base_of(tmp_path / "small", ["other words"])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (small / name).write_bytes((base / name).read_bytes())
    with pytest.raises(InputError, match="use the tokenizer of this model"):
        distill_sft(chats, out, str(small), QUICK)
    monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=1000))
    with pytest.raises(InputError, match="make room"):
        distill_sft(chats, out, str(base), QUICK)
    assert not out.exists()


def test_chats_from_elsewhere_are_learned_too(tmp_path: Path, made: SimpleNamespace) -> None:
    """ShareGPT's names, several turns, no style: nothing to judge by, so the dev loss is all that is measured."""
    talks = [
        {"conversations": [
            {"from": "human", "value": f"Is {n} even?"}, {"from": "gpt", "value": "Yes." if n % 2 == 0 else "No."},
            {"from": "human", "value": f"And {n + 1}?"}, {"from": "gpt", "value": "No." if n % 2 == 0 else "Yes."},
        ]}
        for n in range(60)
    ]  # fmt: skip
    (tmp_path / "chats.jsonl").write_bytes(b"".join(orjson.dumps(talk) + b"\n" for talk in talks))
    base = made.base_of(tmp_path / "base", [m["value"] for talk in talks for m in talk["conversations"]], template=None)
    result = distill_sft(tmp_path / "chats.jsonl", tmp_path / "judge", str(base), replace(QUICK, lr=5e-3))
    assert "judging" not in result.metrics["dev"]
    assert result.metrics["dev"]["loss"] < 5.0
    assert result.info["style"] is None
    assert "Assistant:" in (tmp_path / "judge" / "chat_template.jinja").read_text("utf-8")
