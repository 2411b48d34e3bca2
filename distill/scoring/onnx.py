"""Export a transformer verifier to ONNX Runtime, and score with the exported model."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.data.trust import Origin
from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.registry import extra
from distill.layouts import Encoded
from distill.store import read_info, write_json
from distill.types import Item, StepScores
from distill.verifier import Verifier, load_verifier

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
        out: dict[int, StepScores] = {}
        order = sorted(range(len(encoded)), key=lambda n: len(encoded[n].ids))
        for start, stop in _batches([len(encoded[n].ids) for n in order]):
            rows = order[start:stop]
            logits = self._logits([encoded[n] for n in rows])
            for row, n in zip(logits, rows, strict=True):
                z = row[encoded[n].ends].astype(np.float64)
                out[n] = StepScores(1.0 / (1.0 + np.exp(z[:, 0] - z[:, 1])))
        return [out[n] for n in range(len(encoded))]

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
        raise InputError(str(folder), "it contains no ONNX model", f"export one with: critic-prm export {folder}")
    return OnnxRunner(open_session(path), pad)


def open_session(path: Path) -> Any:
    """Open an ONNX Runtime session on the CPU. Raises ConfigError if the package is missing, InputError for a damaged file."""
    onnxruntime = extra("onnxruntime", "onnx", "ONNX")
    try:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own exception classes, which it does not export
        raise InputError(str(path), f"it cannot be opened: {str(error)[:200]}", "export the verifier again") from None


def _batches(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Slice rows, sorted by ascending length, into batches of at most TOKENS positions, including padding."""
    cuts = [0]
    for n, length in enumerate(lengths):
        if n > cuts[-1] and (n + 1 - cuts[-1]) * length > TOKENS:
            cuts.append(n)
    return list(zip(cuts, [*cuts[1:], len(lengths)], strict=True)) if lengths else []


MAX_DRIFT = 0.05
EQUAL = 1e-4
"""Largest allowed difference in float32; beyond it, the export itself is wrong."""

RECORD = "export.json"


@dataclass(frozen=True, slots=True)
class Drift:
    """The drift of the exported model: how its calibrated P(correct) differs from the verifier's.

    It holds the maximum and the mean difference over `steps` steps, and how many steps cross the threshold.
    """

    largest: float
    mean: float
    flipped: int
    steps: int


def export_onnx(
    folder: str | Path,
    items: Sequence[Item],
    *,
    int8: bool = False,
    max_drift: float = MAX_DRIFT,
    out: str | Path | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> tuple[Path, Drift]:
    """Write `model.onnx`, or `model.int8.onnx` with `int8`, to the verifier folder (or to `out`), and check it on `items`.

    The file is moved into place only after its scores were compared with the verifier's. Raises UsageError if the verifier is
    not a transformer or `items` is empty, ConfigError if packages are missing, and CriticPrmError if the drift exceeds
    `max_drift` (EQUAL for float32); nothing is written then.
    """
    from distill.scoring.scorer import TransformerScorer

    folder = Path(folder)
    student = read_info(folder)["student"]
    if student != "transformer":
        raise UsageError(f"{folder} is a {student} verifier; only transformer verifiers are exported")
    verifier = load_verifier(folder, dtype="fp32", device="cpu")
    scorer = verifier.scorer
    assert isinstance(scorer, TransformerScorer)
    assert scorer.machine is not None
    if not sum(len(steps) for _, steps in items):
        raise UsageError("there are no steps to check the export on; name a file with solutions")
    target = Path(out) if out is not None else folder / (SMALL if int8 else MODEL)
    try:
        with tempfile.TemporaryDirectory(prefix=".export.", dir=target.absolute().parent) as scratch:
            whole = Path(scratch) / MODEL
            say("export to ONNX")
            write_onnx(scorer.machine.model, whole)
            exported = whole
            if int8:
                say("weights to int8")
                exported = quantize(whole, Path(scratch) / SMALL)
            say(f"scores of {len(items)} solutions, before and after")
            drift = measure_drift(verifier, exported, items)
            bound = max_drift if int8 else min(max_drift, EQUAL)
            if not drift.largest <= bound:
                raise CriticPrmError(
                    f"{folder}: the {'int8' if int8 else 'exported'} model was not kept: P(correct) moves by up to"
                    f" {drift.largest:.3f} (mean {drift.mean:.3f}), {drift.flipped} of {drift.steps} steps change verdict;"
                    f" the limit is {bound:g}" + ("; raise it with --max-drift if that is acceptable" if int8 else "")
                )
            os.replace(exported, target)
    except OSError as error:
        raise InputError(str(target), f"it cannot be written: {error.strerror or error}") from None
    write_json(target.with_name(RECORD), {target.name: {**asdict(drift), "max_drift": bound}})
    return target, drift


def items_to_check(folder: str | Path, check: str | None, limit: int, trust: Sequence[str | Path] = ()) -> list[Item]:
    """Return the first `limit` solutions of a file in any format, or of the dev split that `verifier.json` names.

    Raises InputError if that split no longer exists, or if it lies outside the folder and `trust` does not name
    `verifier.json`.
    """
    from critic_prm.data.formats.convert import read_trajectories

    source = check or str(_dev_split(Path(folder) / "verifier.json", trust))
    if check is None and not Path(source).is_file():
        raise InputError(source, "the verifier's dev split does not exist", "name a file of solutions with --check")
    return [(t.problem, t.texts) for t in islice(read_trajectories(source), limit)]


def _dev_split(info: Path, trust: Sequence[str | Path]) -> Path:
    data = read_info(info.parent)["training"]["data"]
    try:
        return Origin(info, trust).path("the training set", data) / "dev.jsonl"
    except InputError as error:
        raise InputError(error.where, error.problem, f"name solutions with --check, or {error.fix}") from None


def write_onnx(model: Any, path: Path) -> None:
    """Export a token classifier on the CPU in float32 to one ONNX file.

    Inputs are `input_ids` and `attention_mask` (rows, length), both dimensions dynamic; the output is `logits`. Raises
    ConfigError if packages are missing.
    """
    for module in ("onnx", "onnxscript"):
        extra(module, "onnx", "ONNX")
    import torch
    from torch import Tensor, nn

    from distill.training.network import quiet

    class Logits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
            logits: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
            return logits

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns about missing image packages
    usual, model.config.use_cache = getattr(model.config, "use_cache", False), False
    rows, length = torch.export.Dim("rows"), torch.export.Dim("length")
    ids = torch.ones(2, 12, dtype=torch.int64)
    shape = {0: rows, 1: length}
    try:
        with warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Logits().eval(),
                (ids, torch.ones_like(ids)),
                path,
                input_names=["input_ids", "attention_mask"],
                output_names=["logits"],
                dynamic_shapes=(shape, shape),
                external_data=False,
                dynamo=True,
                verbose=False,
            )
    finally:
        model.config.use_cache = usual


def quantize(whole: Path, small: Path) -> Path:
    """Quantize the weights to int8 per channel; activations are quantized dynamically."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.disable(logging.WARNING)  # it recommends preprocessing that is meant for image models
    try:
        quantize_dynamic(whole, small, weight_type=QuantType.QInt8, per_channel=True)
    finally:
        logging.disable(logging.NOTSET)
    return small


def measure_drift(verifier: Verifier, path: Path, items: Sequence[Item]) -> Drift:
    """Compare the calibrated scores of `items`."""
    from distill.scoring.scorer import TransformerScorer

    scorer = verifier.scorer
    assert isinstance(scorer, TransformerScorer)
    other = OnnxRunner(open_session(path), scorer.encoder.tokenizer.pad_token_id)
    encoded = [one for one in scorer.encoder.encode_many(items) if len(one.ends)]
    before, after = (
        verifier.calibration(np.concatenate([scores.p for scores in runner.run(encoded)])) for runner in (scorer.runner, other)
    )
    gap = np.abs(before - after)
    flipped = int(((before < verifier.threshold) != (after < verifier.threshold)).sum())
    return Drift(float(gap.max()), float(gap.mean()), flipped, len(gap))
