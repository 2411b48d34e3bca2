"""Outcomes alone: a solution is right with the log odds that its steps' rewards add up to (the implicit PRM)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.losses.loss import Outputs, Targets, Want

if TYPE_CHECKING:
    from distill.training.settings import TrainingSettings

WANTS: Want = "outcomes"
START: tuple[float, ...] = ()
EXTRA = len(START)
TAKES_WEIGHTS = False


def counts(want: Targets) -> Tensor:
    """The last step of each row: the loss is one number a solution."""
    return want.last & ~want.outcome.isnan()


def loss(out: Outputs, want: Targets, settings: TrainingSettings) -> Tensor:
    """-o log sigmoid(r) - (1 - o) log sigmoid(-r), r = the sum of the row's log odds; o is the outcome (arXiv 2412.01981).

    With the log odds of a step being beta times its tokens' log ratios of policy to reference, this is the implicit PRM; with a
    head's, an outcome model that is a sum over steps.
    """
    _, at = torch.unique(want.row, return_inverse=True)
    odds = out.log_odds()
    total = torch.zeros_like(odds).index_add(0, at, odds)[at]
    known = counts(want)
    o = torch.where(known, want.outcome, 0.5)
    return torch.where(known, -o * F.logsigmoid(total) - (1 - o) * F.logsigmoid(-total), 0.0)
