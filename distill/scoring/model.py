"""Run a token classifier on batches of tokens and read its heads at step ends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from distill.scoring.attention import Pack, pack_of, packing
from distill.scoring.load import StepScores
from distill.scoring.tree import grow
from distill.training.ensemble import spread
from distill.training.network import find_head


class Tap:
    """A hook that captures the classifier's input, so that the classifier itself computes a single token only."""

    def __init__(self, head: Any) -> None:
        self.at: Tensor | None = None
        self.hidden: Tensor | None = None
        self._open = False
        head.register_forward_pre_hook(self._take)

    def _take(self, head: Any, arguments: tuple[Tensor]) -> tuple[Tensor] | None:
        if not self._open:
            return None
        flat = arguments[0].flatten(0, -2)
        self.hidden = flat if self.at is None else flat[self.at]
        return (self.hidden[:1],)

    @contextmanager
    def at_places(self, at: Tensor | None) -> Any:
        self.at, self._open = at, True
        try:
            yield
        finally:
            self._open = False


@dataclass(slots=True)
class ScoringModel:
    """A plain model in its own precision, with its heads computed in float32. Only one thread computes at a time.

    `weight` (2 + 2 H, d) and `bias` (2 + 2 H,) hold the classifier, followed by the single heads if there are several. `packs`
    says whether the model gives the same results in packs as on single sequences, which is tested once.
    """

    model: Any
    weight: Tensor
    bias: Tensor
    causal: bool
    packs: bool = False
    _tap: Any = None
    _lock: Any = field(default_factory=Lock)

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.device)

    @torch.inference_mode()
    def packed(self, ids: NDArray[np.int64], positions: NDArray[np.int64], pack: Pack, at: NDArray[np.int64] | None) -> Tensor:
        """Return the head outputs (n, 2 + 2 H) at the positions `at` of a pack, or at all positions."""
        with self._lock, packing(self.model):
            return self._numbers(
                at, input_ids=self._tensor(ids)[None], position_ids=self._tensor(positions)[None], use_cache=False, pack=pack
            )

    @torch.inference_mode()
    def plain(self, ids: Tensor, mask: Tensor | None, at: Tensor) -> Tensor:
        """Return the head outputs at the positions `at` of the flattened rows `ids` (rows, length)."""
        with self._lock:
            quiet = {"use_cache": False} if self.causal else {}
            return self._numbers(at, input_ids=ids, attention_mask=mask, **quiet)

    def _numbers(self, at: Any, **inputs: Any) -> Tensor:
        at = None if at is None else torch.as_tensor(at, device=self.device)
        with self._tap.at_places(at):
            self.model(**inputs)
        hidden, self._tap.hidden = self._tap.hidden, None
        return F.linear(hidden.float(), self.weight, self.bias)

    def _tensor(self, values: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def open_machine(model: Any, more: Mapping[str, Tensor], causal: bool) -> ScoringModel:
    """Wrap `model`, an AutoModelForTokenClassification on its device and in its precision; `more` is as from `plain_model`.

    The model itself is not changed: it can still be saved and called as before.
    """
    _, head = find_head(model)
    weight, bias = [head.weight.detach().float()], [_bias(head)]
    if "weight" in more:
        weight.append(more["weight"].flatten(0, 1).float().to(weight[0].device))
        bias.append(more["bias"].flatten(0, 1).float().to(weight[0].device))
    machine = ScoringModel(model.eval(), torch.cat(weight), torch.cat(bias), causal, _tap=Tap(head))
    machine.packs = causal and can_pack(machine)
    return machine


def found(numbers: Tensor) -> StepScores:
    """Compute P(correct) and the spread over heads from head outputs (n, 2 + 2 H)."""
    p = torch.sigmoid((numbers[:, 1] - numbers[:, 0]).double()).cpu().numpy()
    if numbers.shape[1] == 2 or not len(numbers):
        return StepScores(p, None if numbers.shape[1] == 2 else p)
    heads = numbers[:, 2:].unflatten(1, (-1, 2))
    return StepScores(p, spread((heads[..., 1] - heads[..., 0]).T).double().cpu().numpy())


def can_pack(machine: ScoringModel) -> bool:
    """Test whether a pack gives the same results as single sequences; some architectures attend differently without notice."""
    rope = getattr(machine.model.config, "rope_parameters", None) or {}
    if isinstance(rope, dict) and rope.get("rope_type") in ("dynamic", "longrope"):
        return False  # positions depend on the longest sequence of a batch
    size = machine.model.config.vocab_size
    ids = np.random.default_rng(0).integers(0, size, 40).astype(np.int32)
    sequences = [ids[:24], np.concatenate([ids[:8], ids[24:]])]
    tree = grow(sequences, least=4)
    try:
        together = machine.packed(tree.ids, tree.positions, pack_of(tree), np.concatenate(tree.places))
        alone = torch.cat(
            [
                machine.plain(torch.from_numpy(s.astype(np.int64))[None].to(machine.device), None, torch.arange(len(s)))
                for s in sequences
            ]
        )
    except (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return False
    finally:
        machine._tap.hidden = None
    gap = 1e-3 if machine.model.dtype == torch.float32 else 5e-2
    return bool((together - alone).abs().max() <= gap * alone.abs().max().clamp(min=1.0))


def _bias(head: Any) -> Tensor:
    return torch.zeros(len(head.weight), device=head.weight.device) if head.bias is None else head.bias.detach().float()
