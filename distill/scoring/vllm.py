"""Score encoded solutions with vLLM's pooling runner, on a server or in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from critic_prm.errors import ConfigError, CriticPrmError
from distill.layouts import Encoded
from distill.types import Floats, StepScores

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
        out = [StepScores(np.empty(0))] * len(encoded)
        full = [n for n, e in enumerate(encoded) if len(e.ends)]
        for start in range(0, len(full), BATCH):
            part = full[start : start + BATCH]
            for n, rows in zip(part, self.ask([encoded[n].ids.tolist() for n in part]), strict=True):
                out[n] = StepScores(rows[encoded[n].ends, 1])
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
        raise ConfigError(
            "the backend vllm needs vllm here (pip install 'critic-prm[vllm]'), or a server named with --base-url"
        ) from None
    engine: Any = LLM(model=str(folder), runner="pooling", pooler_config=PoolerConfig(**POOLER), dtype="float32")

    def encode(ids: list[list[int]]) -> list[Floats]:
        prompts = [{"prompt_token_ids": sequence} for sequence in ids]
        rows = engine.encode(prompts, pooling_task="token_classify", use_tqdm=False)
        return [row.outputs.data.double().cpu().numpy() for row in rows]

    return VllmRunner(encode)
