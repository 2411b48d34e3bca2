"""Squared error of P(correct)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets
from distill.losses.soft import mask

if TYPE_CHECKING:
    from distill.settings import TrainingSettings


def loss(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    used = mask(targets)
    return torch.where(used, (torch.sigmoid(out.log_odds()) - torch.where(used, targets.p, 0.5)) ** 2, 0.0)


LOSS = Loss(loss, mask, "labels", "the squared error of P(correct)")
