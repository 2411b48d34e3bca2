"""Rows end to end with rounded lengths: what fills them up is seen by nothing, and changes no number and no gradient."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from distill.layouts import Encoded
from distill.settings import TrainingSettings
from distill.training import network as networks
from distill.training.batches import Batch, Packed, collate, pack
from distill.training.network import open_network
from tests.distill.tiny import tiny_base


def batch() -> Batch:
    rows = [(np.arange(1, 6), [2, 4]), (np.arange(7, 20), [3, 8, 12]), (np.arange(3, 11), [7])]
    return collate([Encoded(i.astype(np.int32), np.array(e, dtype=np.int32)) for i, e in rows], 0, causal=True)


@pytest.mark.parametrize(("align", "spans"), [(1, ((0, 5), (5, 18), (18, 26))), (8, ((0, 8), (8, 24), (24, 32)))])
def test_lengths_are_rounded(align: int, spans: tuple[tuple[int, int], ...]) -> None:
    packed = pack(batch(), align)
    assert packed.spans == spans
    assert packed.ids[0, packed.at].tolist() == batch().ids.flatten()[batch().at].tolist()
    assert packed.positions[0, packed.at].tolist() == [2, 4, 3, 8, 12, 7]


def test_what_is_left_to_the_whole_is_a_span_of_its_own() -> None:
    packed = pack(batch(), 16)
    assert packed.spans == ((0, 16), (16, 32), (32, 48), (48, 64))
    assert packed.ids.shape == packed.positions.shape == (1, 64)
    assert packed.ids[0, 48:].sum() == 0


def test_the_filling_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = open_network(str(tiny_base(tmp_path)), TrainingSettings(device="cpu", dtype="fp32"))
    assert network.packs

    def numbers(align: int) -> tuple[torch.Tensor, torch.Tensor]:
        def rounded(rows: Batch, _: int) -> Packed:
            return pack(rows, align)

        monkeypatch.setattr(networks, "pack", rounded)
        found = network(batch())[0].log_odds()
        network.model.zero_grad()
        found.sum().backward()
        return found.detach(), network.model.get_input_embeddings().weight.grad.clone()

    plain, filled = numbers(1), numbers(32)
    torch.testing.assert_close(filled[0], plain[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(filled[1], plain[1], rtol=1e-4, atol=1e-6)
