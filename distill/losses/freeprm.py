"""Outcome-only loss: steps inherit the outcome as label, with a buffer class for those that differ (FreePRM)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets

if TYPE_CHECKING:
    from distill.settings import TrainingSettings


BUFFER = 0.5
"""Share of the buffer's probability that counts for the outcome (arXiv 2506.03570).

At 1, a network that always predicts "buffer" has a loss of 0; at 0.5 that loss is log 2, so the network learns.
"""


def mask(targets: Targets) -> Tensor:
    return ~targets.outcome.isnan()


def loss(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    """Compute the loss of the three classes.

    Scores ignore the buffer: P(correct) is p_right / (p_right + p_wrong), the softmax of the two logits that are kept.
    """
    share = torch.where(targets.last, 0.0, BUFFER).to(out.logits.dtype)
    return buffered(torch.cat([out.logits.float(), out.extra.float()], dim=1), targets.outcome, share)


def buffered(logits: Tensor, outcome: Tensor, share: Tensor) -> Tensor:
    """-log(p_right + b p_buffer) if the outcome is right, -log(p_wrong + b p_buffer) if it is wrong, 0 if it is nan.

    `logits` (n, 3): wrong, right, buffer. `share` (n,): b in [0, 1]; it is 0 on a row's last step, whose label is certain.
    """
    used = ~outcome.isnan()
    target = torch.where(torch.where(used, outcome, 0.0) >= 0.5, logits[:, 1], logits[:, 0])
    buffer = torch.where(share > 0, logits[:, 2] + share.clamp(min=1e-30).log(), -math.inf)
    return torch.where(used, torch.logsumexp(logits, dim=1) - torch.logaddexp(target, buffer), 0.0)


LOSS = Loss(
    loss,
    mask,
    "outcomes",
    "every step gets the label of the final answer, with a third class for steps that differ",
    source="FreePRM, arXiv 2506.03570",
    extra_bias=(0.0,),
)
