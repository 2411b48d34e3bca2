"""Losses on step labels and votes: cross-entropy, squared error, a ranking (PQM) and the likelihood of votes (BetaPRM)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets
from distill.settings import TrainingSettings

ZETA = 4.0
"""Margin between wrong and correct steps in PQM (arXiv 2410.11287)."""

KAPPA_MIN = 1e-3
KAPPA_START = 4.0
EVIDENCE = 0.05
"""Strength with which a mean that misses the votes lowers kappa (lambda_e of BetaPRM, arXiv 2605.15529)."""


def labelled(targets: Targets) -> Tensor:
    return ~targets.p.isnan()


def soft(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    return cross_entropy(out.logits, targets.p, settings)


def ce(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    hard = torch.where(targets.p.isnan(), targets.p, (targets.p >= 0.5).to(targets.p.dtype))
    return cross_entropy(out.logits, hard, settings)


def cross_entropy(logits: Tensor, p: Tensor, settings: TrainingSettings) -> Tensor:
    """Compute -w1 q log P(correct) - w0 (1 - q) log P(incorrect), q = (1 - e) p + e / 2; 0 where p is nan.

    w0, w1 = `settings.class_weights` (1, 1 if None) and e = `settings.label_smoothing`. It equals torch's own cross_entropy for
    two classes.
    """
    known = ~p.isnan()
    smooth = settings.label_smoothing
    q = (1 - smooth) * torch.where(known, p, 0.5).float() + smooth / 2
    log_p = F.log_softmax(logits.float(), dim=-1)
    wrong, right = settings.class_weights or (1.0, 1.0)
    return torch.where(known, -right * q * log_p[:, 1] - wrong * (1 - q) * log_p[:, 0], 0.0)


def mse(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    used = labelled(targets)
    return torch.where(used, (torch.sigmoid(out.log_odds()) - torch.where(used, targets.p, 0.5)) ** 2, 0.0)


SOFT = Loss(soft, labelled, "labels", "cross-entropy with [p, 1 - p]", takes_weights=True)
CE = Loss(ce, labelled, "labels", "cross-entropy with correct (p >= 0.5) or incorrect", takes_weights=True)
MSE = Loss(mse, labelled, "labels", "the squared error of P(correct)")


def first_labelled(targets: Targets) -> Tensor:
    """Select the first labelled step of each row, since there is one loss per trajectory."""
    known = labelled(targets)
    earlier = (targets.row[:, None] == targets.row) & (targets.step[:, None] > targets.step) & known
    return known & ~earlier.any(dim=1)


def pqm(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    """Compute the ranking loss of each row on its first labelled step, 0 elsewhere.

    With the log odds as Q and the margin zeta = ZETA, it is the mean, over the row's correct steps c and, if the row has wrong
    steps, one virtual step with Q = 0, of

        log(e^{Q_c} + 1 + sum_{earlier right} e^Q + sum_{wrong} e^{Q + zeta}) - Q_c

    For the virtual step, the term is log(1 + sum_{wrong} e^{Q + zeta}).
    """
    q, known, same = out.log_odds(), labelled(targets), targets.row[:, None] == targets.row
    right, wrong = known & (targets.p >= 0.5), known & (targets.p < 0.5)
    below = torch.where(same & wrong, q + ZETA, -torch.inf)
    upto = same & right & right[:, None] & (targets.step <= targets.step[:, None])
    zero = torch.zeros_like(q)[:, None]
    # One row of the matrix per step. The row of a wrong step holds only the wrong steps and 0: the virtual step's term.
    terms = torch.logsumexp(torch.cat([zero, torch.where(upto, q, below)], dim=1), dim=1) - torch.where(right, q, 0.0)
    first_wrong = wrong & ~(same & wrong & (targets.step < targets.step[:, None])).any(dim=1)
    used = right | first_wrong
    means = (same * torch.where(used, terms, 0.0)).sum(dim=1) / (same & used).sum(dim=1).clamp(min=1)
    return torch.where(first_labelled(targets), means, 0.0)


PQM = Loss(
    pqm,
    first_labelled,
    "labels",
    "a ranking within the trajectory: incorrect < 0 < correct, later correct steps higher",
    source="PQM, arXiv 2410.11287",
)


def voted(targets: Targets) -> Tensor:
    return (targets.n > 0) & labelled(targets)


def beta_binomial(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    """Compute -log P(k | n, mu, kappa) + EVIDENCE |mu - k/n| kappa; the second term has a gradient for kappa only."""
    z, width, used = out.log_odds(), kappa(out.extra), voted(targets)
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


BETA_BINOMIAL = Loss(
    beta_binomial,
    voted,
    "votes",
    "the likelihood of k of n votes, with a width that the network predicts per step",
    source="BetaPRM, arXiv 2605.15529",
    extra_bias=(math.log(math.expm1(KAPPA_START - KAPPA_MIN)),),
)
