"""Losses on outcomes alone, without step labels: the sum of the steps' log odds (implicit PRM), and FreePRM."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets
from distill.settings import TrainingSettings

BUFFER = 0.5
"""Share of the buffer's probability that counts for the outcome in FreePRM (arXiv 2506.03570).

At 1, a network that always predicts "buffer" has a loss of 0; at 0.5 that loss is log 2, so the network learns.
"""


def last_step(targets: Targets) -> Tensor:
    """Select the last step of each row, since there is one loss per solution."""
    return targets.last & known_outcome(targets)


def known_outcome(targets: Targets) -> Tensor:
    return ~targets.outcome.isnan()


def implicit(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    """Compute -o log sigmoid(r) - (1 - o) log sigmoid(-r) for outcome o, where r sums the row's log odds (arXiv 2412.01981).

    If the log odds of a step are beta times the log ratio of policy to reference over its tokens, this is the implicit PRM. If
    they come from a head, it is an outcome model that is a sum over steps.
    """
    _, index = torch.unique(targets.row, return_inverse=True)
    odds = out.log_odds()
    total = torch.zeros_like(odds).index_add(0, index, odds)[index]
    used = last_step(targets)
    o = torch.where(used, targets.outcome, 0.5)
    return torch.where(used, -o * F.logsigmoid(total) - (1 - o) * F.logsigmoid(-total), 0.0)


def freeprm(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    """Compute the loss of three classes: the steps inherit the outcome as label, and the buffer is for those that differ.

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


IMPLICIT = Loss(
    implicit, last_step, "outcomes", "the log odds of the outcome are the sum of those of the steps", source="arXiv 2412.01981"
)
FREEPRM = Loss(
    freeprm,
    known_outcome,
    "outcomes",
    "every step gets the label of the final answer, with a third class for steps that differ",
    source="FreePRM, arXiv 2506.03570",
    extra_bias=(0.0,),
)
