"""Score encoded solutions with ONNX Runtime, using the model that `critic-prm export` wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.errors import ConfigError, InputError
from distill.scoring.load import StepScores
from distill.sequences import Encoded

MODEL, SMALL = "model.onnx", "model.int8.onnx"
TOKENS = 2048


@dataclass(frozen=True, slots=True)
class OnnxRunner:
    """An ONNX session with inputs ids and mask (rows, length), int64, and output logits (rows, length, 2).

    Rows of similar length are batched together.
    """

    session: Any
    pad: int

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        out = [StepScores(np.empty(0))] * len(encoded)
        order = sorted((n for n, e in enumerate(encoded) if len(e.ends)), key=lambda n: len(encoded[n].ids))
        for start, stop in _batches([len(encoded[n].ids) for n in order]):
            rows = order[start:stop]
            logits = self._logits([encoded[n] for n in rows])
            for row, n in zip(logits, rows, strict=True):
                z = row[encoded[n].ends].astype(np.float64)
                out[n] = StepScores(1.0 / (1.0 + np.exp(z[:, 0] - z[:, 1])))
        return out

    def _logits(self, encoded: Sequence[Encoded]) -> NDArray[np.float32]:
        length = max(len(e.ids) for e in encoded)
        ids = np.full((len(encoded), length), self.pad, dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, e in enumerate(encoded):
            ids[row, : len(e.ids)], mask[row, : len(e.ids)] = e.ids, 1
        logits: NDArray[np.float32] = self.session.run(["logits"], {"input_ids": ids, "attention_mask": mask})[0]
        return logits


def open_onnx(folder: Path, pad: int) -> OnnxRunner:
    """Open the smallest exported model. Raises InputError if nothing was exported, ConfigError if packages are missing."""
    path = next((folder / name for name in (SMALL, MODEL) if (folder / name).is_file()), None)
    if path is None:
        raise InputError(str(folder), "it holds no ONNX model", f"make one with: critic-prm export {folder}")
    return OnnxRunner(open_session(path), pad)


def open_session(path: Path) -> Any:
    """Open an ONNX Runtime session on the CPU. Raises ConfigError if the package is missing, InputError for a damaged file."""
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError("ONNX needs onnx and onnxruntime; install them with: pip install 'critic-prm[onnx]'") from None
    try:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own exception classes, which it does not export
        raise InputError(str(path), f"it does not open: {str(error)[:200]}", "export the verifier again") from None


def _batches(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Slice rows, sorted by ascending length, into batches of at most TOKENS positions, including padding."""
    cuts = [0]
    for n, length in enumerate(lengths):
        if n > cuts[-1] and (n + 1 - cuts[-1]) * length > TOKENS:
            cuts.append(n)
    return list(zip(cuts, [*cuts[1:], len(lengths)], strict=True)) if lengths else []
