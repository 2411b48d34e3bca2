"""Cross-entropy against soft labels, the targets being [P(correct), 1 - P(correct)]."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets

if TYPE_CHECKING:
    from distill.settings import TrainingSettings


def mask(targets: Targets) -> Tensor:
    return ~targets.p.isnan()


def loss(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    return cross_entropy(out.logits, targets.p, settings)


def cross_entropy(logits: Tensor, p: Tensor, settings: TrainingSettings) -> Tensor:
    """Compute -w1 q log P(correct) - w0 (1 - q) log P(incorrect), q = (1 - e) p + e / 2; 0 where p is nan.

    w0, w1 = `settings.class_weights` (1, 1 if None) and e = `settings.label_smoothing`. It equals torch's own cross_entropy for
    two classes.
    """
    labelled = ~p.isnan()
    smooth = settings.label_smoothing
    q = (1 - smooth) * torch.where(labelled, p, 0.5).float() + smooth / 2
    log_p = F.log_softmax(logits.float(), dim=-1)
    wrong, right = settings.class_weights or (1.0, 1.0)
    return torch.where(labelled, -right * q * log_p[:, 1] - wrong * (1 - q) * log_p[:, 0], 0.0)


LOSS = Loss(loss, mask, "labels", "cross-entropy with [p, 1 - p]", takes_weights=True)
