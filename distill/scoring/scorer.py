"""Open a transformer verifier with any backend, and score steps with P(correct) and spread."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from distill.settings import LoadOptions
from distill.types import Floats, Item, Runner, Scorer

if TYPE_CHECKING:
    from distill.layouts import Encoder
    from distill.scoring.model import ScoringModel

SCORING = "scoring.json"
"""File with the text layout and the number of heads."""


def open_scorer(folder: Path, options: LoadOptions) -> TransformerScorer:
    """Open a verifier folder. Raises ValueError if it lacks a head or weights, ConfigError if a requirement is missing."""
    from distill.layouts import make_encoder
    from distill.training.network import open_tokenizer

    stored = json.loads((folder / SCORING).read_text("utf-8"))
    tokenizer = open_tokenizer(folder)
    encoder = make_encoder(
        tokenizer,
        stored["layout"],
        stored["max_length"],
        chat_template=stored["chat_template"],
        causal=stored["causal"],
    )
    if options.backend == "onnx":
        from distill.scoring.onnx import open_onnx

        return TransformerScorer(open_onnx(folder, tokenizer.pad_token_id), encoder, stored)
    if options.backend == "vllm":
        from distill.scoring.vllm import open_engine, open_server

        runner = open_server(options.base_url) if options.base_url else open_engine(folder)
        return TransformerScorer(runner, encoder, stored)
    model, more = open_model(folder, options)
    return scorer_of(model, more, encoder, stored)


def open_model(folder: Path, options: LoadOptions) -> tuple[Any, dict[str, Any]]:
    """Load the model of a verifier folder on its device, and the additional heads; see `open_scorer`."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoModelForTokenClassification

    from distill.training.network import HEADS, pick_device, pick_dtype, quiet

    device = pick_device(options.device)
    dtype = torch.float32 if options.dtype == "auto" and device.type == "cpu" else pick_dtype(options.dtype, device)
    with quiet():
        model, report = AutoModelForTokenClassification.from_pretrained(
            folder, dtype=dtype, output_loading_info=True, trust_remote_code=False, use_safetensors=True
        )
    if report["missing_keys"]:
        raise ValueError(f"its weights lack {', '.join(sorted(report['missing_keys'])[:3])}")
    return model.to(device).eval(), load_file(folder / HEADS) if (folder / HEADS).is_file() else {}


def scorer_of(model: Any, more: dict[str, Any], encoder: Encoder, stored: dict[str, Any]) -> TransformerScorer:
    """Create the scorer of a plain model, as `network.plain_model` returns it."""
    from distill.scoring.model import runner_of, wrap_model

    machine = wrap_model(model, more, stored["causal"])
    return TransformerScorer(runner_of(machine, encoder.tokenizer.pad_token_id), encoder, stored, machine, more)


@dataclass(frozen=True, slots=True)
class TransformerScorer(Scorer):
    """A scorer that combines a runner, its encoder and the content of `scoring.json`; see `Scorer`.

    Steps that do not fit into the context have a score of nan. `machine` is the model if it runs in this process through torch.
    """

    runner: Runner
    encoder: Encoder
    stored: dict[str, Any]
    machine: ScoringModel | None = None
    more: dict[str, Any] = field(default_factory=dict)
    batch: int = 256

    @property
    def causal(self) -> bool:
        return bool(self.stored["causal"])

    @property
    def heads(self) -> int:
        """The number of heads; 1 for exported and served models, which have only the mean of the heads."""
        return 1 if self.machine is None else int(self.stored["heads"])

    def score(self, items: Sequence[Item]) -> list[Floats]:
        return [p for p, _ in self.score_and_spread(items)]

    def score_and_spread(self, items: Sequence[Item]) -> list[tuple[Floats, Floats | None]]:
        out = []
        for (_, steps), scores in zip(items, self.runner.run(self.encoder.encode_many(items)), strict=True):
            out.append((_padded(scores.p, len(steps)), None if scores.spread is None else _padded(scores.spread, len(steps))))
        return out

    def with_prefix_cache(self) -> TransformerScorer:
        if self.machine is None or not self.machine.packs:
            return self
        from distill.scoring.model import PrefixCachedRunner

        return replace(self, runner=PrefixCachedRunner(self.machine))

    def save(self, folder: Path) -> None:
        from safetensors import SafetensorError

        from distill.training.checkpoint import write
        from distill.training.network import HEADS, quiet

        assert self.machine is not None, "only a model in this process can be saved"
        try:
            with quiet():
                self.machine.model.save_pretrained(folder)
        except SafetensorError as error:  # how the library reports a full disk
            raise OSError(str(error)) from None
        self.encoder.tokenizer.save_pretrained(folder)
        if self.more:
            write(folder / HEADS, self.more)
        (folder / SCORING).write_text(json.dumps(self.stored, indent=2) + "\n", encoding="utf-8")


def _padded(values: Floats, steps: int) -> Floats:
    return np.concatenate([values, np.full(steps - len(values), np.nan)])
