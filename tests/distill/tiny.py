"""Models small enough to train in a test, made by code: random weights, and a tokenizer that knows bytes and a few words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def known(scores: Sequence[float | None]) -> list[float]:
    """The scores of a solution of which every step was scored."""
    found = [p for p in scores if p is not None]
    assert len(found) == len(scores)
    return found


def tiny_base(
    folder: Path, kind: str = "qwen2", *, layers: int = 2, size: int = 32, length: int = 512, pad: bool = True
) -> Path:
    """Save a causal base ("qwen2", "llama") or an encoder ("bert", "modernbert") with random weights; returns the folder."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    causal = kind in ("qwen2", "llama")
    tokenizer = tiny_tokenizer(encoder=not causal, pad=pad)
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), hidden_size=size, intermediate_size=2 * size, num_hidden_layers=layers,
        num_attention_heads=4, max_position_embeddings=length,
        pad_token_id=tokenizer.pad_token_id, bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        **({"num_key_value_heads": 2} if causal else {}),
        **({"cls_token_id": None, "sep_token_id": None} if kind == "modernbert" else {}),
    )  # fmt: skip
    torch.manual_seed(0)
    kind_of: Any = AutoModelForCausalLM if causal else AutoModel
    model = kind_of.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_tokenizer(*, encoder: bool = False, pad: bool = True) -> Any:
    """A byte-level BPE with a token for a blank line, begin and end tokens of an encoder where asked, and a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ċ", "Ċ"), ("t", "h"), ("Ġ", "a"), ("Ġ", "th"), ("i", "n")]
    vocabulary = {token: number for number, token in enumerate([*alphabet, *(a + b for a, b in merges)])}
    raw = Tokenizer(BPE(vocab=vocabulary, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(
        [AddedToken(t, special=True) for t in ("<|end|>", "<|pad|>", "<extra_0>", "<|im_start|>", "<|im_end|>")]
    )
    names = {"eos_token": "<|end|>"} | ({"pad_token": "<|pad|>"} if pad else {})
    if encoder:
        raw.add_special_tokens([AddedToken("[CLS]", special=True), AddedToken("[SEP]", special=True)])
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=512, **names)
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return tokenizer


def sums(count: int, seed: int, most: int = 4) -> list[dict[str, Any]]:
    """Training rows of one to `most` steps about additions; a wrong step says "wrong", so that little has to be learned."""
    generator = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        length = int(generator.integers(1, most + 1))
        first = int(generator.integers(-1, length))
        steps, labels, total = [], [], 1
        for step in range(length):
            more = int(generator.integers(1, 9))
            steps.append(f"{total} + {more} = {total + more}" + (" wrong" if step == first else ""))
            labels.append(None if 0 <= first < step else 0.0 if step == first else 1.0)
            total += more
        rows.append(
            {"id": f"{seed}-{number}", "prompt": "Add them up.", "completions": steps, "labels": labels, "source": "sums"}
        )
    return rows


def training_set(folder: Path, train: int = 60, dev: int = 30, seed: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, count) in enumerate((("train", train), ("dev", dev))):
        rows = sums(count, seed + number)
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def apples(count: int, seed: int) -> list[dict[str, Any]]:
    """Training rows about additions; a wrong one states a sum that is off and is labelled 0 from there, then null."""
    generator = np.random.default_rng(seed)
    rows = []
    for n in range(count):
        a, b, c = (int(x) for x in generator.integers(2, 50, 3))
        wrong = int(generator.integers(-1, 2))
        first = a + b + (7 if wrong == 0 else 0)
        second = first + c + (11 if wrong == 1 else 0)
        labels = [1.0, 1.0] if wrong < 0 else [0.0, None] if wrong == 0 else [1.0, 0.0]
        rows.append(
            {
                "id": f"{seed}-{n}",
                "prompt": f"Ann has {a} apples, buys {b} and then {c} more. How many has she?",
                "completions": [f"She has {a} + {b} = {first} apples.", f"Then {first} + {c} = {second} apples."],
                "labels": labels,
                "source": "sums",
            }
        )
    return rows


def folder_of(path: Path, **splits: list[dict[str, Any]]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, rows in splits.items():
        (path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
