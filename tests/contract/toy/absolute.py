"""Absolute error of P(correct)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets

if TYPE_CHECKING:
    from distill.settings import TrainingSettings


def mask(want: Targets) -> Tensor:
    return ~want.p.isnan()


def loss(out: Outputs, want: Targets, settings: TrainingSettings) -> Tensor:
    known = mask(want)
    return torch.where(known, (torch.sigmoid(out.log_odds()) - torch.where(known, want.p, 0.5)).abs(), 0.0)


ABSOLUTE = Loss(loss, mask, "labels", "the absolute error of P(correct)")
