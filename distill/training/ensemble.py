"""Several heads on one network: what keeps them apart while they learn, and how far they disagree afterwards (ActPRM)."""

from __future__ import annotations

import torch
from torch import Tensor

ANCHOR = 0.5
"""How hard a head is held to where it began: the recipe's lambda (arXiv 2504.10559). Heads that begin apart and see different
halves of the data stay apart where the data do not decide, which is what their spread is to show."""


def anchor(now: Tensor, start: Tensor) -> Tensor:
    """ANCHOR times the mean squared way that the heads' parameters went; to be added to the loss of a batch."""
    return ANCHOR * ((now - start) ** 2).mean()


def spread(log_odds: Tensor) -> Tensor:
    """The uncertainty of each step: the standard deviation (n - 1) of P(correct) over heads. (heads, n) to (n,); 0 for one."""
    p = torch.sigmoid(log_odds.float())
    return p.std(dim=0) if len(p) > 1 else torch.zeros_like(p[0])
