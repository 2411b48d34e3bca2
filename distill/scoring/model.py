"""Run a token classifier on batches of solutions and read its heads at step ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from distill.layouts import Encoded, Ints
from distill.scoring.attention import Layers, Pack, grow, overlap, pack_of, packing, packs
from distill.training.batches import collate, micro
from distill.training.loop import spread
from distill.training.network import find_head
from distill.types import Runner, StepScores


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
            return self._head_outputs(
                at, input_ids=self._tensor(ids)[None], position_ids=self._tensor(positions)[None], use_cache=False, pack=pack
            )

    @torch.inference_mode()
    def plain(self, ids: Tensor, mask: Tensor | None, at: Tensor) -> Tensor:
        """Return the head outputs at the positions `at` of the flattened rows `ids` (rows, length)."""
        with self._lock:
            quiet = {"use_cache": False} if self.causal else {}
            return self._head_outputs(at, input_ids=ids, attention_mask=mask, **quiet)

    def _head_outputs(self, at: Any, **inputs: Any) -> Tensor:
        at = None if at is None else torch.as_tensor(at, device=self.device)
        with self._tap.at_places(at):
            self.model(**inputs)
        hidden, self._tap.hidden = self._tap.hidden, None
        return F.linear(hidden.float(), self.weight, self.bias)

    def _tensor(self, values: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(values).to(self.device)


def wrap_model(model: Any, more: Mapping[str, Tensor], causal: bool) -> ScoringModel:
    """Wrap `model`, an AutoModelForTokenClassification on its device and in its precision; `more` is as from `plain_model`.

    The model itself is not changed: it can still be saved and called as before.
    """
    head = getattr(*find_head(model))
    weight, bias = [head.weight.detach().float()], [_bias(head)]
    if "weight" in more:
        weight.append(more["weight"].flatten(0, 1).float().to(weight[0].device))
        bias.append(more["bias"].flatten(0, 1).float().to(weight[0].device))
    machine = ScoringModel(model.eval(), torch.cat(weight), torch.cat(bias), causal, _tap=Tap(head))
    machine.packs = causal and can_pack(machine)
    return machine


def step_scores(outputs: Tensor) -> StepScores:
    """Compute P(correct) and the spread over heads from head outputs (n, 2 + 2 H)."""
    p = torch.sigmoid((outputs[:, 1] - outputs[:, 0]).double()).cpu().numpy()
    if outputs.shape[1] == 2:
        return StepScores(p)
    heads = outputs[:, 2:].unflatten(1, (-1, 2))
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


@dataclass(frozen=True, slots=True)
class Packed:
    """Computes a pack of solutions in one pass, without padding, and each shared prefix once.

    A shared prefix may be a problem, the common steps of candidates, or a chat preamble. `tokens` is the approximate size of a
    pack.
    """

    machine: ScoringModel
    tokens: int

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        sequences = [one.ids[: one.ends[-1] + 1] for one in encoded]
        out: dict[int, StepScores] = {}
        for group in packs(sequences, self.tokens):
            tree = grow([sequences[n] for n in group])
            ends = [tree.places[k][encoded[n].ends] for k, n in enumerate(group)]
            at, place = np.unique(np.concatenate(ends), return_inverse=True)
            outputs = self.machine.packed(tree.ids, tree.positions, pack_of(tree), at)[torch.from_numpy(place)]
            out.update(zip(group, map(step_scores, outputs.split([len(e) for e in ends])), strict=True))
        return [out[n] for n in range(len(encoded))]


@dataclass(frozen=True, slots=True)
class Rows:
    """Computes right-padded rows of similar length.

    It serves encoders, which attend to the end of the text, and causal models with unusual attention. `tokens` bounds the
    positions of a batch, including padding.
    """

    machine: ScoringModel
    tokens: int
    pad: int

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        lengths = np.array([len(one.ids) for one in encoded], dtype=np.int64)
        out: dict[int, StepScores] = {}
        for rows in micro(np.arange(len(encoded)), lengths, self.tokens):
            batch = collate([encoded[r] for r in rows], self.pad, causal=self.machine.causal).to(self.machine.device)
            outputs = self.machine.plain(batch.ids, batch.mask, batch.at).split([len(encoded[r].ends) for r in rows])
            out.update(zip(rows.tolist(), map(step_scores, outputs), strict=True))
        return [out[n] for n in range(len(encoded))]


def runner_of(machine: ScoringModel, pad: int) -> Runner:
    """Choose the fastest runner that reproduces the model's own scores. On a CPU, a pass is small enough for its caches."""
    tokens = 16384 if machine.device.type == "cuda" else 1024
    return Packed(machine, tokens) if machine.packs else Rows(machine, tokens, pad)


BYTES = 1 << 29
"""Maximum size of the cache in bytes: about 11,000 tokens of a model with 135 M weights, 9,000 of one with 7 B in bf16."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A cached sequence: the keys and values of all its tokens, and the head outputs at its step ends, by position.

    The pieces are shared with the sequences that it extends. `bytes` is the size of its own piece.
    """

    ids: Ints
    pieces: tuple[tuple[Layers, int], ...]
    outputs: dict[int, Tensor]
    bytes: int

    def reach(self, wanted: Encoded) -> int:
        """Return how many tokens of `wanted` need no computation.

        This is the length of the common prefix, up to the first step in it whose score is unknown.
        """
        common = overlap(self.ids, wanted.ids)
        missing = [int(end) for end in wanted.ends if end < common and int(end) not in self.outputs]
        return min(missing, default=common)

    def first(self, tokens: int) -> tuple[tuple[Layers, int], ...]:
        """Return the pieces that cover the first `tokens` tokens."""
        out = []
        for layers, count in self.pieces:
            if tokens <= 0:
                break
            out.append((layers, min(count, tokens)))
            tokens -= count
        return tuple(out)


@dataclass(frozen=True, slots=True)
class PrefixCachedRunner:
    """A runner for search: an appended step costs that step alone. The least recently used traces are evicted first."""

    machine: ScoringModel
    max_bytes: int = BYTES
    traces: list[Trace] = field(default_factory=list)
    _lock: Any = field(default_factory=Lock, repr=False)

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        with self._lock:
            return self._run(encoded)

    def _run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        wanted = [Encoded(one.ids[: one.ends[-1] + 1], one.ends) for one in encoded]
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        cached_trace: dict[int, Trace | None] = {}
        for n, sequence in enumerate(wanted):
            trace, reach = self._best_trace(sequence)
            cached_trace[id(trace)] = trace
            groups[id(trace), reach].append(n)
        out: dict[int, StepScores] = {}
        for (trace_id, reach), members in groups.items():
            traces = self._grow(cached_trace[trace_id], reach, [wanted[n] for n in members])
            for n, trace in zip(members, traces, strict=True):
                out[n] = step_scores(torch.stack([trace.outputs[int(end)] for end in wanted[n].ends]))
        self._evict()
        return [out[n] for n in range(len(wanted))]

    def _best_trace(self, wanted: Encoded) -> tuple[Trace | None, int]:
        best, reach = None, 0
        for trace in self.traces:
            if (common := trace.reach(wanted)) > reach:
                best, reach = trace, common
        return best, reach

    def _grow(self, cached_trace: Trace | None, reach: int, wanted: Sequence[Encoded]) -> list[Trace]:
        """Compute in one pass the traces of sequences that share their first `reach` tokens with `cached_trace`."""
        if cached_trace is not None:
            self.traces.remove(cached_trace)
            self.traces.append(cached_trace)
        past = () if cached_trace is None else cached_trace.first(reach)
        known_outputs = {} if cached_trace is None else {end: row for end, row in cached_trace.outputs.items() if end < reach}
        tails = [sequence.ids[reach:] for sequence in wanted]
        rest = [n for n, tail in enumerate(tails) if len(tail)]
        tree = grow([tails[n] for n in rest], offset=reach)
        kept: Layers = {}
        places = {n: tree.places[k] for k, n in enumerate(rest)}
        rows = torch.empty(0)
        if rest:
            pack = pack_of(tree, [past] * len(tree.segments), kept)
            rows = self.machine.packed(tree.ids, tree.positions, pack, None)
        traces = []
        for n, sequence in enumerate(wanted):
            if n not in places:
                assert cached_trace is not None
                traces.append(Trace(sequence.ids, past, known_outputs, 0))
                continue
            at = torch.from_numpy(places[n]).to(self.machine.device)
            own = {layer: (k[:, :, at], v[:, :, at]) for layer, (k, v) in kept.items()}
            outputs = {int(end): rows[int(places[n][end - reach])].clone() for end in sequence.ends if end >= reach}
            size = sum(t.nbytes for pair in own.values() for t in pair)
            traces.append(Trace(sequence.ids, (*past, (own, len(at))), known_outputs | outputs, size))
        self.traces.extend(trace for trace in traces if trace.bytes)
        return traces

    def _evict(self) -> None:
        total = sum(trace.bytes for trace in self.traces)
        while total > self.max_bytes and self.traces:
            total -= self.traces.pop(0).bytes
