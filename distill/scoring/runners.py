"""Batch encoded solutions for the model: packed token trees where it supports them, padded rows otherwise."""

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
    """Computes a pack of solutions in one pass, without padding, and each shared prefix once.

    A shared prefix may be a problem, the common steps of candidates, or a chat preamble. `tokens` is the approximate size of a
    pack.
    """

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
    """Computes right-padded rows of similar length.

    It serves encoders, which attend to the end of the text, and causal models with unusual attention. `tokens` bounds the
    positions of a batch, including padding.
    """

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
    """Choose the fastest runner that reproduces the model's own scores. On a CPU, a pass is small enough for its caches."""
    tokens = 16384 if machine.device.type == "cuda" else 1024
    return Packed(machine, tokens) if machine.packs else Rows(machine, tokens, pad)
