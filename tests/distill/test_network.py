"""Networks: the same numbers as plain transformers, at step ends alone; what of a base is kept, frozen, adapted or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from critic_prm.errors import ConfigError, CriticPrmError, InputError, UsageError
from distill.layouts import Encoded
from distill.scoring.attention import PackedAttention
from distill.settings import TrainingSettings, parse_lora
from distill.training.batches import Batch, collate
from distill.training.network import Network, open_network, open_tokenizer, plain_model, trainable
from tests.distill.tiny import tiny_base

FP32 = TrainingSettings(dtype="fp32", device="cpu")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("bases")
    return {kind: tiny_base(root / kind, kind, layers=3) for kind in ("qwen2", "llama", "bert", "modernbert")}


def batch_of(causal: bool, lengths: tuple[int, ...] = (9, 4, 300)) -> Batch:
    generator = np.random.default_rng(0)
    rows = [Encoded(generator.integers(0, 200, n).astype(np.int32), np.array([n // 2, n - 1])) for n in lengths]
    return collate(rows, 0, causal=causal)


def plain_logits(model: Any, batch: Batch) -> Any:
    """What plain transformers gives, row by row, without any padding."""
    width = batch.ids.shape[1]
    with torch.no_grad():
        rows = [model.eval()(input_ids=batch.ids[r : r + 1, :n]).logits[0] for r, n in enumerate(batch.lengths)]
    return torch.stack([rows[at // width][at % width] for at in batch.at.tolist()])


@pytest.mark.parametrize("kind", ["qwen2", "llama", "bert", "modernbert"])
def test_a_network_gives_what_its_plain_folder_gives(bases: dict[str, Path], tmp_path: Path, kind: str) -> None:
    from transformers import AutoModelForTokenClassification

    network = open_network(str(bases[kind]), FP32, seed=1)
    assert network.causal == network.packs == (kind in ("qwen2", "llama"))
    batch = batch_of(network.causal)
    with torch.no_grad():
        (out,) = network(batch)
    assert out.logits.shape == (6, 2)
    model, more = plain_model(network)
    assert not more
    model.save_pretrained(tmp_path / "v")
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "v")
    assert again.config.id2label == {0: "incorrect", 1: "correct"}
    torch.testing.assert_close(plain_logits(again, batch), out.logits, atol=1e-6, rtol=1e-5)


def test_gradients_of_packed_rows_are_those_of_padded_ones(bases: dict[str, Path]) -> None:
    from dataclasses import replace

    def gradients(network: Network) -> dict[str, Any]:
        (out,) = network(batch_of(True))
        out.logits.square().sum().backward()
        return {name: p.grad for name, p in trainable(network.model).items()}

    packed = open_network(str(bases["qwen2"]), FP32, seed=1)
    padded = open_network(str(bases["qwen2"]), FP32, seed=1)
    padded.model.set_attn_implementation("sdpa")
    one, two = gradients(packed), gradients(replace(padded, packs=False))
    for name in one:
        torch.testing.assert_close(one[name], two[name], atol=1e-5, rtol=1e-4)


def test_packed_attention_has_the_right_gradient() -> None:
    torch.manual_seed(0)
    q = torch.randn(4, 11, 3, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(2, 11, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    spans = ((0, 4), (4, 5), (5, 11))
    assert torch.autograd.gradcheck(lambda *x: PackedAttention.apply(*x, 0.5, spans), (q, k, v))  # type: ignore[no-untyped-call]


def test_checkpointing_changes_no_number(bases: dict[str, Path]) -> None:
    from dataclasses import replace

    found = []
    for checkpointing in (False, True):
        network = open_network(str(bases["llama"]), replace(FP32, checkpointing=checkpointing), seed=1)
        network.model.train()
        (out,) = network(batch_of(True))
        out.logits.square().sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in trainable(network.model).values() if p.grad is not None]))
    torch.testing.assert_close(found[0], found[1])


def test_fewer_layers_and_what_is_frozen(bases: dict[str, Path]) -> None:
    for kind in ("qwen2", "bert"):
        network = open_network(str(bases[kind]), TrainingSettings(layers=2, freeze="1", device="cpu"))
        names = set(trainable(network.model))
        assert network.model.config.num_hidden_layers == 2
        assert not any(f".{place}." in name for name in names for place in ("layers.0", "layer.0", "layers.2", "layer.2"))
        assert any(".1." in name for name in names)
        assert not any("embed" in name and "weight" in name and "word" in name for name in names)
    heads = open_network(str(bases["llama"]), TrainingSettings(freeze="all", device="cpu"))
    assert set(trainable(heads.model)) == {"score.weight", "score.bias"}
    with pytest.raises(UsageError, match="layers is 9, but the base has 3"):
        open_network(str(bases["qwen2"]), TrainingSettings(layers=9))


def test_adapters_are_merged_into_a_plain_model(bases: dict[str, Path]) -> None:
    network = open_network(str(bases["qwen2"]), TrainingSettings(lora="r=4", dtype="fp32", device="cpu"), seed=1)
    names = set(trainable(network.model))
    assert all("lora_" in name or "score" in name for name in names)
    with torch.no_grad():
        for name, p in trainable(network.model).items():
            if "lora_B" in name:
                p.normal_(0, 0.1)
        batch = batch_of(True)
        before = network(batch)[0].logits
    model, _ = plain_model(network)
    assert not any("lora" in name for name, _ in model.named_parameters())
    torch.testing.assert_close(plain_logits(model, batch), before, atol=1e-5, rtol=1e-4)


def test_heads_differ_and_their_mean_is_the_plain_one(bases: dict[str, Path]) -> None:
    network = open_network(str(bases["qwen2"]), TrainingSettings(heads=4, dtype="fp32", device="cpu"), extra=(1.5,), seed=1)
    batch = batch_of(True)
    with torch.no_grad():
        outs = network(batch)
    logits = torch.stack([out.logits for out in outs])
    assert logits.shape == (4, 6, 2)
    assert logits.std(0).min() > 1e-4
    assert outs[0].extra.shape == (6, 1)
    model, more = plain_model(network)
    assert {name: tuple(t.shape) for name, t in more.items()} == {
        "weight": (4, 2, 32), "bias": (4, 2), "extra.weight": (1, 32), "extra.bias": (1,)
    }  # fmt: skip
    torch.testing.assert_close(plain_logits(model, batch), logits.mean(0), atol=1e-5, rtol=1e-4)


def test_a_process_reward_model_goes_on_from_its_head_and_another_kind_is_refused(
    bases: dict[str, Path], tmp_path: Path
) -> None:
    first = open_network(str(bases["qwen2"]), FP32, seed=5)
    weight = first.head.weight.detach().clone()
    plain_model(first)[0].save_pretrained(tmp_path / "prm")
    said: list[str] = []
    again = open_network(str(tmp_path / "prm"), FP32, seed=6, say=said.append)
    assert "already a process reward model" in said[0]
    torch.testing.assert_close(again.head.weight, weight)
    config = json.loads((tmp_path / "prm" / "config.json").read_text())
    for change, told in (
        ({"architectures": ["Qwen2ForProcessRewardModel"]}, "another kind"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 1, "c": 2}}, "3 classes"),
    ):
        (tmp_path / "prm" / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(InputError, match=told):
            open_network(str(tmp_path / "prm"), FP32)


def test_a_base_without_weights_or_config_is_said(bases: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        open_tokenizer(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be opened as a model"):
        open_network(str(tmp_path), FP32)
    shutil.copytree(bases["qwen2"], tmp_path / "b")
    (tmp_path / "b" / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot be opened for token classification"):
        open_network(str(tmp_path / "b"), FP32)


def test_a_tokenizer_without_padding_gets_its_end_token(tmp_path: Path) -> None:
    base = tiny_base(tmp_path / "b", "llama", pad=False)
    tokenizer = open_tokenizer(base)
    assert tokenizer.pad_token == tokenizer.eos_token == "<|end|>"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_where_there_is_none_is_said(bases: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match="'cuda' cannot be used here"):
        open_network(str(bases["qwen2"]), TrainingSettings(device="cuda"))


def test_settings_check_themselves() -> None:
    assert parse_lora("r=8,targets=q_proj+v_proj").targets == ("q_proj", "v_proj")
    assert parse_lora("r=8").alpha == 16
    for wrong in (
        {"lora": "16"}, {"lora": "r=x"}, {"lora": "r=0"}, {"lora": "r=4", "freeze": "all"}, {"epochs": 0}, {"layout": "none"},
        {"schedule": "step"}, {"freeze": "some"}, {"label_smoothing": 1.0}, {"allow_dropped": 1.5}, {"dtype": "fp8"},
    ):  # fmt: skip
        with pytest.raises(CriticPrmError):
            TrainingSettings(**wrong)
