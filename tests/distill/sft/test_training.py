"""From a scripted judge's labels to a small model that judges as it did, and what may go wrong on the way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from critic_prm.prompt import open_style
from critic_prm.trajectory import Trajectory
from distill.settings import Settings
from distill.sft.chats import ChatOptions, build_chats
from distill.sft.run import DEFAULT, distill_sft

PROMPT = r"""{# reader: boxed-verdicts | per: trajectory | base: 1 | stops: yes | max_tokens: 64 #}
{% block system %}Judge.{% endblock %}
{% block user %}
{{ problem }}
{% for step in steps %}
{{ step.text }}
{% endfor %}
{% endblock %}"""


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A style with few tokens."""
    path = tmp_path_factory.mktemp("style") / "short.jinja"
    path.write_text(PROMPT, encoding="utf-8")
    return path


def tokenizer_of(texts: list[str], template: str | None) -> Any:
    """A BPE tokenizer that has seen `texts`, so that few tokens say them."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    raw.train_from_iterator(texts, trainer)
    raw.add_special_tokens([AddedToken(token, special=True) for token in ("<|end|>", "<|pad|>", "<|im_start|>", "<|im_end|>")])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|end|>", pad_token="<|pad|>", model_max_length=256)
    tokenizer.chat_template = template
    return tokenizer


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def base_of(folder: Path, texts: list[str], template: str | None = CHATML, length: int = 256) -> Path:
    """A Llama of two layers with random weights."""
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    tokenizer = tokenizer_of(texts, template)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=length, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id, tie_word_embeddings=True,
    )  # fmt: skip
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def few() -> list[Trajectory]:
    from critic_prm.trajectory import Step

    made = []
    for number in range(8):
        first = -1 if number % 2 else number % 4 // 2
        steps = tuple(Step(f"{number} + {k} = {number + k + (k == first)}") for k in range(2))
        made.append(Trajectory(f"s{number}", f"Add to {number}.", steps, label=first))
    return made


async def test_a_model_that_learned_the_chats_judges_its_training_problems_right(
    tmp_path: Path, few: list[Trajectory], short: Path, made: SimpleNamespace
) -> None:
    """Labels -> chats -> training -> greedy answers -> the style's reader -> the verdicts of the judge."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from distill.sft.asking import Answerer, found_error, measure

    labels = await made.judge(few, tmp_path / "labels.jsonl", lambda t, n: made.chain(t, t.label, short), str(short))
    build_chats([labels], tmp_path / "chats", ChatOptions(style=str(short), split=(1.0, 0.0, 0.0), balance=False))
    for name in ("train.jsonl",):  # dev shows how training is chosen: here it must be what was learned
        (tmp_path / "chats" / "dev.jsonl").write_bytes((tmp_path / "chats" / name).read_bytes())
    solutions = [orjson.dumps({"id": t.id, "problem": t.problem, "steps": t.texts, "label": t.label}) for t in few]
    (tmp_path / "chats" / "dev.solutions.jsonl").write_bytes(b"\n".join(solutions))
    texts = [m["content"] for row in made.rows(tmp_path / "chats" / "train.jsonl") for m in row["messages"]]
    base = base_of(tmp_path / "base", texts)
    settings = Settings(
        epochs=70,
        lr=5e-3,
        batch_tokens=300,
        micro_tokens=400,
        schedule="linear",
        patience=0,
        dtype="fp32",
        max_length=256,
        weight_decay=0.0,
    )
    result = distill_sft(tmp_path / "chats", tmp_path / "judge", str(base), settings)
    assert result.metrics["dev"]["judging"] == {
        "solutions": 8, "read": 1.0, "accuracy": 1.0, "erroneous": 1.0, "correct": 1.0, "f1": 1.0,
    }  # fmt: skip
    # The folder by itself, as transformers opens it, with the prompt that lies in it.
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "judge")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "judge")
    style = open_style(str(tmp_path / "judge" / "short.jinja"))
    readings = Answerer(model, tokenizer, 64).readings(style, few)
    assert [found_error(reading) for reading in readings] == [t.label for t in few]
    assert [[v.critique for v in reading[0].verdicts] for reading in readings] == [
        [
            f"I add again: {t.texts[k]} is {'off' if k == t.label else 'fine'}."
            for k in range((t.label if t.label >= 0 else 1) + 1)
        ]
        for t in few
    ]
    assert model.generation_config.eos_token_id == sorted(tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|end|>"]))
    untrained = AutoModelForCausalLM.from_pretrained(base)
    assert measure(Answerer(untrained, tokenizer, 64), style, few)["read"] == 0.0
    card = (tmp_path / "judge" / "README.md").read_text("utf-8")
    assert "--style judge/short.jinja" in card
    assert DEFAULT.max_length == 8192
