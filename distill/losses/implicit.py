"""Outcome-only loss of the implicit PRM: the log odds of a solution are the sum of its steps' rewards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets

if TYPE_CHECKING:
    from distill.settings import TrainingSettings


def mask(targets: Targets) -> Tensor:
    """Select the last step of each row, since there is one loss per solution."""
    return targets.last & ~targets.outcome.isnan()


def loss(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    """Compute -o log sigmoid(r) - (1 - o) log sigmoid(-r) for outcome o, where r sums the row's log odds (arXiv 2412.01981).

    If the log odds of a step are beta times the log ratio of policy to reference over its tokens, this is the implicit PRM. If
    they come from a head, it is an outcome model that is a sum over steps.
    """
    _, index = torch.unique(targets.row, return_inverse=True)
    odds = out.log_odds()
    total = torch.zeros_like(odds).index_add(0, index, odds)[index]
    used = mask(targets)
    o = torch.where(used, targets.outcome, 0.5)
    return torch.where(used, -o * F.logsigmoid(total) - (1 - o) * F.logsigmoid(-total), 0.0)


LOSS = Loss(loss, mask, "outcomes", "the log odds of the outcome are the sum of those of the steps", source="arXiv 2412.01981")
