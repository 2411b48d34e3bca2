"""Score growing solutions at the cost of their new steps, by caching keys and values of prefixes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from distill.scoring.attention import Layers, pack_of
from distill.scoring.load import StepScores
from distill.scoring.model import ScoringModel, found
from distill.scoring.tree import grow, overlap
from distill.sequences import Encoded, Ints

BYTES = 1 << 29
"""Maximum size of the cache in bytes: about 11,000 tokens of a model with 135 M weights, 9,000 of one with 7 B in bf16."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A cached sequence: the keys and values of all its tokens, and the head outputs at its step ends, by position.

    The pieces are shared with the sequences that it extends. `bytes` is the size of its own piece.
    """

    ids: Ints
    pieces: tuple[tuple[Layers, int], ...]
    numbers: dict[int, Tensor]
    bytes: int

    def reach(self, wanted: Encoded) -> int:
        """Return how many tokens of `wanted` need no computation.

        This is the length of the common prefix, up to the first step in it whose score is unknown.
        """
        common = overlap(self.ids, wanted.ids)
        missing = [int(end) for end in wanted.ends if end < common and int(end) not in self.numbers]
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
    most: int = BYTES
    traces: list[Trace] = field(default_factory=list)
    _lock: Any = field(default_factory=Lock, repr=False)

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        with self._lock:
            return self._run(encoded)

    def _run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        wanted = [e if not len(e.ends) else Encoded(e.ids[: e.ends[-1] + 1], e.ends) for e in encoded]
        numbers: list[Tensor] = [self.machine.weight.new_zeros(0, len(self.machine.weight))] * len(wanted)
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        begun: dict[int, Trace | None] = {}
        for n, one in enumerate(wanted):
            if len(one.ends):
                trace, reach = self._longest(one)
                begun[id(trace)] = trace
                groups[id(trace), reach].append(n)
        for (trace_id, reach), members in groups.items():
            fresh = self._grow(begun[trace_id], reach, [wanted[n] for n in members])
            for n, trace in zip(members, fresh, strict=True):
                numbers[n] = torch.stack([trace.numbers[int(end)] for end in wanted[n].ends])
        self._forget()
        return [found(part) for part in numbers]

    def _longest(self, wanted: Encoded) -> tuple[Trace | None, int]:
        best, reach = None, 0
        for trace in self.traces:
            if (common := trace.reach(wanted)) > reach:
                best, reach = trace, common
        return best, reach

    def _grow(self, begun: Trace | None, reach: int, wanted: Sequence[Encoded]) -> list[Trace]:
        """Compute in one pass the traces of sequences that share their first `reach` tokens with `begun`."""
        if begun is not None:
            self.traces.remove(begun)
            self.traces.append(begun)
        past = () if begun is None else begun.first(reach)
        known = {} if begun is None else {end: row for end, row in begun.numbers.items() if end < reach}
        tails = [one.ids[reach:] for one in wanted]
        rest = [n for n, tail in enumerate(tails) if len(tail)]
        tree = grow([tails[n] for n in rest], offset=reach)
        kept: Layers = {}
        places = {n: tree.places[k] for k, n in enumerate(rest)}
        rows = torch.empty(0)
        if rest:
            pack = pack_of(tree, [past] * len(tree.segments), kept)
            rows = self.machine.packed(tree.ids, tree.positions, pack, None)
        fresh = []
        for n, one in enumerate(wanted):
            if n not in places:
                assert begun is not None
                fresh.append(Trace(one.ids, past, known, 0))
                continue
            at = torch.from_numpy(places[n]).to(self.machine.device)
            own = {layer: (k[:, :, at], v[:, :, at]) for layer, (k, v) in kept.items()}
            numbers = {int(end): rows[int(places[n][end - reach])].clone() for end in one.ends if end >= reach}
            size = sum(t.nbytes for pair in own.values() for t in pair)
            fresh.append(Trace(one.ids, (*past, (own, len(at))), known | numbers, size))
        self.traces.extend(trace for trace in fresh if trace.bytes)
        return fresh

    def _forget(self) -> None:
        total = sum(trace.bytes for trace in self.traces)
        while total > self.most and self.traces:
            total -= self.traces.pop(0).bytes
