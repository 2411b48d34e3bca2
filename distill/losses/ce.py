"""Cross-entropy against hard labels: a step is correct if P(correct) is at least 0.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Outputs, Targets, Want
from distill.losses.soft import counts as counts
from distill.losses.soft import cross_entropy

if TYPE_CHECKING:
    from distill.settings import TrainingSettings

WANTS: Want = "labels"
START: tuple[float, ...] = ()
EXTRA = len(START)
TAKES_WEIGHTS = True


def loss(out: Outputs, want: Targets, settings: TrainingSettings) -> Tensor:
    hard = torch.where(want.p.isnan(), want.p, (want.p >= 0.5).to(want.p.dtype))
    return cross_entropy(out.logits, hard, settings)
