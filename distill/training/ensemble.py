"""Keep several heads on one network diverse during training, and measure their disagreement (ActPRM)."""

from __future__ import annotations

import torch
from torch import Tensor

ANCHOR = 0.5
"""Strength of the pull of a head towards its initial weights: lambda of ActPRM (arXiv 2504.10559).

Heads that start apart and see different halves of the data stay apart where the data do not decide; their spread is meant to
show exactly that.
"""


def anchor(now: Tensor, start: Tensor) -> Tensor:
    """ANCHOR times the mean squared distance of the heads from their initial weights, to be added to the loss of a batch."""
    return ANCHOR * ((now - start) ** 2).mean()


def spread(log_odds: Tensor) -> Tensor:
    """Uncertainty of each step: the standard deviation (n - 1) of P(correct) over heads. (heads, n) to (n,); 0 for one head."""
    p = torch.sigmoid(log_odds.float())
    return p.std(dim=0) if len(p) > 1 else torch.zeros_like(p[0])
