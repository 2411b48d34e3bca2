"""Beta-Binomial likelihood of votes with mean P(correct) and a predicted concentration (BetaPRM)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets

if TYPE_CHECKING:
    from distill.settings import TrainingSettings

KAPPA_MIN = 1e-3
KAPPA_START = 4.0
EVIDENCE = 0.05
"""Strength with which a mean that misses the votes lowers kappa (lambda_e of BetaPRM, arXiv 2605.15529)."""


def mask(targets: Targets) -> Tensor:
    return (targets.n > 0) & ~targets.p.isnan()


def loss(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    """Compute -log P(k | n, mu, kappa) + EVIDENCE |mu - k/n| kappa; the second term has a gradient for kappa only."""
    z, width, used = out.log_odds(), kappa(out.extra), mask(targets)
    k, n = torch.where(used, targets.k, 0.0), torch.where(used, targets.n, 1.0)
    distance = (torch.sigmoid(z).detach() - k / n).abs()
    return torch.where(used, nll(z, width, k, n) + EVIDENCE * distance * width, 0.0)


def kappa(extra: Tensor) -> Tensor:
    """Compute the concentration alpha + beta from the head's extra output, shape (n,).

    The standard deviation of the Beta distribution is sqrt(mu (1 - mu) / (kappa + 1)).
    """
    return F.softplus(extra[:, 0].float()) + KAPPA_MIN


def nll(z: Tensor, width: Tensor, k: Tensor, n: Tensor) -> Tensor:
    """Negative log of the Beta-Binomial at k of n votes, for a mean of sigmoid(z) and concentration `width`.

    All arguments have shape (m,); k and n hold whole numbers. The terms are sums over the votes instead of differences of
    lgamma, which lose all their digits in float32 for a kappa above 1e5:

        log C(n,k) + sum_{i<k} log(mu + i/kappa) + sum_{j<n-k} log(1 - mu + j/kappa) - sum_{i<n} log(1 + i/kappa)
    """
    max_votes = max(int(n.max()), 1) if n.numel() else 1
    i = torch.arange(max_votes, device=z.device, dtype=z.dtype)
    log_ratio = i.log() - width.log()[:, None]  # log(i / kappa), -inf for i = 0
    right = torch.where(i < k[:, None], torch.logaddexp(F.logsigmoid(z)[:, None], log_ratio), 0.0)
    wrong = torch.where(i < (n - k)[:, None], torch.logaddexp(F.logsigmoid(-z)[:, None], log_ratio), 0.0)
    both = torch.where(i < n[:, None], torch.log1p(i / width[:, None]), 0.0)
    combinations = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return -(combinations + (right + wrong - both).sum(dim=1))


LOSS = Loss(
    loss,
    mask,
    "votes",
    "the likelihood of k of n votes, with a width that the network predicts per step",
    source="BetaPRM, arXiv 2605.15529",
    extra_bias=(math.log(math.expm1(KAPPA_START - KAPPA_MIN)),),
)
