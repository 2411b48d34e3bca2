"""Squared error of P(correct)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Outputs, Targets, Want
from distill.losses.soft import counts as counts

if TYPE_CHECKING:
    from distill.settings import TrainingSettings

WANTS: Want = "labels"
START: tuple[float, ...] = ()
EXTRA = len(START)
TAKES_WEIGHTS = False


def loss(out: Outputs, want: Targets, settings: TrainingSettings) -> Tensor:
    known = counts(want)
    return torch.where(known, (torch.sigmoid(out.log_odds()) - torch.where(known, want.p, 0.5)) ** 2, 0.0)
