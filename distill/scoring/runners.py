"""Encoded solutions through a machine: packs of token trees for causal models that can, rows of like length for the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from distill.scoring.attention import pack_of
from distill.scoring.load import Runner, StepScores
from distill.scoring.model import ScoringModel, found
from distill.scoring.tree import grow, packs
from distill.sequences import Encoded
from distill.training.batches import collate, micro


@dataclass(frozen=True, slots=True)
class Packed:
    """All solutions of a pack in one pass without padding, what they begin with once: a problem, the steps that candidates
    share, a chat's preamble. `tokens` is about the size of a pack."""

    machine: ScoringModel
    tokens: int

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        full = [n for n, e in enumerate(encoded) if len(e.ends)]
        sequences = [encoded[n].ids[: encoded[n].ends[-1] + 1] for n in full]
        out = [found(self.machine.weight.new_zeros(0, len(self.machine.weight)))] * len(encoded)
        for group in packs(sequences, self.tokens):
            tree = grow([sequences[g] for g in group])
            ends = [tree.places[k][encoded[full[g]].ends] for k, g in enumerate(group)]
            at, place = np.unique(np.concatenate(ends), return_inverse=True)
            numbers = self.machine.packed(tree.ids, tree.positions, pack_of(tree), at)[torch.from_numpy(place)]
            for g, part in zip(group, numbers.split([len(e) for e in ends]), strict=True):
                out[full[g]] = found(part)
        return out


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of like length together, padded at their end. For encoders, which read to the end of the text, and for causal models
    that attend in ways of their own. `tokens` bounds the places of a batch."""

    machine: ScoringModel
    tokens: int
    pad: int

    def run(self, encoded: Sequence[Encoded]) -> list[StepScores]:
        full = np.array([n for n, e in enumerate(encoded) if len(e.ends)], dtype=np.int64)
        out = [found(self.machine.weight.new_zeros(0, len(self.machine.weight)))] * len(encoded)
        for rows in micro(full, lengths(encoded), self.tokens):
            batch = collate([encoded[r] for r in rows], self.pad, causal=self.machine.causal).to(self.machine.device)
            numbers = self.machine.plain(batch.ids, batch.mask, batch.at)
            for r, part in zip(rows, numbers.split([len(encoded[r].ends) for r in rows]), strict=True):
                out[r] = found(part)
        return out


def lengths(encoded: Sequence[Encoded]) -> NDArray[np.int64]:
    return np.array([len(e.ids) for e in encoded], dtype=np.int64)


def runner_of(machine: ScoringModel, pad: int) -> Runner:
    """The fastest way that gives the model's own numbers. A pass on a CPU is small enough for its caches."""
    tokens = 16384 if machine.device.type == "cuda" else 1024
    return Packed(machine, tokens) if machine.packs else Rows(machine, tokens, pad)
