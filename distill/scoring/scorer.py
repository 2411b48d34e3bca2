"""Open a transformer verifier with any backend (torch, ONNX, vLLM), and score steps with P(correct) and spread."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from critic_prm.errors import ConfigError, CriticPrmError
from critic_prm.registry import install
from distill.layouts import Encoded, Encoder, make_encoder
from distill.settings import LoadOptions
from distill.types import Floats, Item, Runner, Scorer, StepScores

if TYPE_CHECKING:
    from distill.scoring.model import ScoringModel

SCORING = "scoring.json"
"""File with the text layout and the number of heads."""


def open_scorer(folder: Path, options: LoadOptions) -> TransformerScorer:
    """Open a verifier folder. Raises ValueError if it lacks a head or weights, ConfigError if a requirement is missing."""
    from distill.training.network import open_tokenizer

    stored = json.loads((folder / SCORING).read_text("utf-8"))
    tokenizer = open_tokenizer(folder)
    encoder = make_encoder(
        tokenizer, stored["layout"], stored["max_length"], chat_template=stored["chat_template"], causal=stored["causal"]
    )
    if options.backend == "onnx":
        from distill.scoring.onnx import open_onnx

        return TransformerScorer(open_onnx(folder, tokenizer.pad_token_id), encoder, stored)
    if options.backend == "vllm":
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
        encoded = self.encoder.encode_many(items)
        scored = iter(self.runner.run([one for one in encoded if len(one.ends)]))
        nothing = StepScores(np.empty(0), np.empty(0) if self.heads > 1 else None)
        out = []
        for (_, steps), one in zip(items, encoded, strict=True):
            scores = next(scored) if len(one.ends) else nothing
            out.append((_padded(scores.p, len(steps)), None if scores.spread is None else _padded(scores.spread, len(steps))))
        return out

    def with_prefix_cache(self) -> TransformerScorer:
        if self.machine is None or not self.machine.packs:
            return self
        from distill.scoring.model import PrefixCachedRunner

        return replace(self, runner=PrefixCachedRunner(self.machine))

    def save(self, folder: Path) -> None:
        from distill.training.checkpoint import write
        from distill.training.network import HEADS, save_model

        assert self.machine is not None, "only a model in this process can be saved"
        save_model(self.machine.model, folder)
        self.encoder.tokenizer.save_pretrained(folder)
        if self.more:
            write(folder / HEADS, self.more)
        (folder / SCORING).write_text(json.dumps(self.stored, indent=2) + "\n", encoding="utf-8")


def _padded(values: Floats, steps: int) -> Floats:
    return np.concatenate([values, np.full(steps - len(values), np.nan)])


# vLLM's pooling runner, on a server or in this process.

BATCH = 64
"""Solutions per request."""

TIMEOUT = 300.0
"""Timeout of a request in seconds."""

POOLER = {"tok_pooling_type": "ALL"}
START = f"vllm serve FOLDER --runner pooling --pooler-config '{orjson.dumps(POOLER).decode()}'"


@dataclass(frozen=True, slots=True)
class VllmRunner:
    """Scores solutions through `ask`, which maps token ids to P(incorrect) and P(correct) of every token, (tokens, 2) each."""

    ask: Callable[[list[list[int]]], list[Floats]]

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        out = []
        for start in range(0, len(encoded), BATCH):
            part = encoded[start : start + BATCH]
            rows = self.ask([one.ids.tolist() for one in part])
            out += [StepScores(scores[one.ends, 1]) for one, scores in zip(part, rows, strict=True)]
        return out


def open_server(base_url: str) -> VllmRunner:
    """Connect to a server that serves the verifier folder. Raises ConfigError if none answers."""
    import httpx2

    address = base_url.rstrip("/").removesuffix("/v1")

    def post(ids: list[list[int]]) -> list[Floats]:
        try:
            # A new connection per request is cheap compared with its many solutions, and none stays open.
            body = {"model": model, "input": ids, "task": "token_classify"}
            answer = httpx2.post(f"{address}/pooling", json=body, timeout=TIMEOUT)
        except httpx2.HTTPError as error:
            raise CriticPrmError(f"the vLLM server at {base_url} does not answer: {error}") from None
        body_json = orjson.loads(answer.content) if answer.status_code == 200 else {}
        rows = [np.array(row["data"], dtype=np.float64) for row in body_json.get("data", ())]
        if [row.shape for row in rows] != [(len(sequence), 2) for sequence in ids]:
            raise ConfigError(
                f"the vLLM server at {base_url} returned no score per token (HTTP {answer.status_code}: {answer.text[:200]});"
                f" start it with: {START}"
            )
        return rows

    try:
        model = orjson.loads(httpx2.get(f"{address}/v1/models", timeout=TIMEOUT).content)["data"][0]["id"]
    except (httpx2.HTTPError, orjson.JSONDecodeError, KeyError, IndexError, TypeError) as error:
        raise ConfigError(f"no vLLM server answers at {base_url}: {error}; start it with: {START}") from None
    return VllmRunner(post)


def open_engine(folder: Path) -> VllmRunner:
    """Open a vLLM engine in this process. Raises ConfigError if vLLM is not installed."""
    try:
        from vllm import LLM
        from vllm.config import PoolerConfig
    except ImportError:
        raise ConfigError(f"the backend vllm needs vllm here ({install('vllm')}), or a server named with --base-url") from None
    engine: Any = LLM(model=str(folder), runner="pooling", pooler_config=PoolerConfig(**POOLER), dtype="float32")

    def encode(ids: list[list[int]]) -> list[Floats]:
        prompts = [{"prompt_token_ids": sequence} for sequence in ids]
        rows = engine.encode(prompts, pooling_task="token_classify", use_tqdm=False)
        return [row.outputs.data.double().cpu().numpy() for row in rows]

    return VllmRunner(encode)
