"""Cross-entropy against hard labels: a step is correct if P(correct) is at least 0.5."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets
from distill.losses.soft import cross_entropy, mask

if TYPE_CHECKING:
    from distill.settings import TrainingSettings


def loss(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    hard = torch.where(targets.p.isnan(), targets.p, (targets.p >= 0.5).to(targets.p.dtype))
    return cross_entropy(out.logits, hard, settings)


LOSS = Loss(loss, mask, "labels", "cross-entropy with correct (p >= 0.5) or incorrect", takes_weights=True)
