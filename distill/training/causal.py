"""Compute the log probability of each step of a solution under a causal language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from critic_prm.errors import InputError
from distill.layouts import Encoder
from distill.losses.loss import Outputs
from distill.settings import TrainingSettings
from distill.training.batches import Batch, Prepared, in_order
from distill.training.network import adapt, keep_layers, load_base, pick_device, pick_dtype, save_model

ReferenceValues = Mapping[bytes, tuple[int, NDArray[np.float32]]]
"""Reference log probabilities: a sequence's ids (int32, as bytes) -> the start of its first step, and one value per step."""

SCORING_TOKENS = 2048


class SelectiveHead(nn.Module):
    """The output layer, applied only at the positions `at` of the flattened states.

    The logits of a whole batch would not fit in memory.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.at: Tensor | None = None

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.inner(states if self.at is None else states.flatten(0, -2)[self.at])
        return logits


@dataclass(frozen=True, slots=True)
class Policy:
    """A causal language model whose output layer is a `SelectiveHead`."""

    model: Any
    head: SelectiveHead
    dtype: torch.dtype

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    def steps(self, batch: Batch, starts: Sequence[int]) -> Tensor:
        """Return log P of each step's tokens given all earlier tokens: (n,) float32, in the order of the batch's step ends.

        A step includes its tag and the gap before it. `starts` holds, per row, the position where its first step begins.
        """
        places, owner = _tokens(batch, starts)
        self.head.at = places - 1
        with torch.autocast(batch.ids.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            logits = self.model(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False).logits
        self.head.at = None
        each = -F.cross_entropy(logits.float(), batch.ids.flatten()[places], reduction="none")
        return torch.zeros(len(batch.at), device=each.device).index_add(0, owner, each)

    def save(self, folder: Path) -> None:
        """Save it as a plain causal language model."""
        self.model.set_output_embeddings(self.head.inner)
        try:
            save_model(self.model, folder)
        finally:
            self.model.set_output_embeddings(self.head)


@dataclass(frozen=True, slots=True)
class ImplicitNetwork:
    """The network of the training loop: the log odds at a step end are beta * (log policy - log reference) of the step."""

    policy: Policy
    values: ReferenceValues
    beta: float
    heads: int = 1

    @property
    def model(self) -> Any:
        return self.policy.model

    @property
    def device(self) -> torch.device:
        return self.policy.device

    def __call__(self, batch: Batch) -> list[Outputs]:
        references = [self.values[key] for key in _keys(batch)]
        reference = torch.from_numpy(np.concatenate([steps for _, steps in references])).to(batch.ids.device)
        odds = self.beta * (self.policy.steps(batch, [start for start, _ in references]) - reference)
        nothing = torch.zeros(len(odds), 0, device=odds.device)
        return [Outputs(torch.stack([torch.zeros_like(odds), odds], dim=1), nothing, nothing)]


def open_policy(base: str, settings: TrainingSettings) -> Policy:
    """Load a causal language model. Raises InputError if the base is not one, ConfigError for a missing device."""
    from transformers import AutoModelForCausalLM

    model, missing = load_base(AutoModelForCausalLM, base, "as a causal language model")
    if missing:
        raise InputError(
            base, f"as a causal language model its weights lack {', '.join(missing[:3])}", "name a base that writes text"
        )
    keep_layers(model, settings.layers)
    model = adapt(model, settings)
    inner = model.get_base_model() if settings.lora else model
    head = SelectiveHead(inner.get_output_embeddings())
    inner.set_output_embeddings(head)
    device = pick_device(settings.device)
    return Policy(model.to(device).eval(), head, pick_dtype(settings.dtype, device))


def plain_policy(policy: Policy) -> Policy:
    """Return the policy with its adapters merged. The argument must not be used afterwards."""
    if not hasattr(policy.model, "merge_and_unload"):
        return policy
    return Policy(policy.model.merge_and_unload().eval(), policy.head, policy.dtype)


def reference_log_probs(policy: Policy, data: Prepared, encoder: Encoder) -> dict[bytes, tuple[int, Any]]:
    """Compute the log probabilities of all steps of a split once."""
    starts = [len(head) for head in encoder.heads([row.problem for row in data.rows])]
    values: dict[bytes, tuple[int, Any]] = {}
    for rows, batch in in_order(data, SCORING_TOKENS):
        begin = [starts[r] for r in rows]
        with torch.no_grad():
            log_probs = policy.steps(batch.to(policy.device), begin).cpu().numpy()
        counts = [len(data.encoded[r].ends) for r in rows]
        for r, steps in zip(rows, np.split(log_probs, np.cumsum(counts)[:-1]), strict=True):
            values[data.encoded[r].ids.tobytes()] = (starts[r], steps)
    return values


def _keys(batch: Batch) -> list[bytes]:
    """Return the ids of every row without padding: a causal sequence ends with its last step."""
    ids, (rows, ends) = batch.ids.cpu().numpy().astype(np.int32), _ends(batch)
    length = np.zeros(len(ids), dtype=np.int64)
    np.maximum.at(length, rows, ends + 1)
    return [row[:n].tobytes() for row, n in zip(ids, length, strict=True)]


def _ends(batch: Batch) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row and the position of every step end."""
    rows, ends = np.divmod(batch.at.cpu().numpy(), batch.ids.shape[1])
    return rows, ends


def _tokens(batch: Batch, starts: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the positions of all step tokens in the flattened ids, and for each the index of its step end.

    The first token of a sequence has no context and therefore no probability.
    """
    rows, ends = _ends(batch)
    width = batch.ids.shape[1]
    same = np.concatenate([[False], rows[1:] == rows[:-1]])
    first = np.where(same, np.concatenate([[0], ends[:-1] + 1]), np.maximum(np.array(starts, dtype=np.int64)[rows], 1))
    count = np.maximum(ends + 1 - first, 0)
    owner = np.repeat(np.arange(len(ends)), count)
    inside = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    places = rows[owner] * width + first[owner] + inside
    device = batch.ids.device
    return torch.from_numpy(places).to(device), torch.from_numpy(owner).to(device)
