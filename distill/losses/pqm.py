"""Ranking loss within a trajectory: wrong steps below 0, correct ones above and increasing (PQM)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Loss, Outputs, Targets

if TYPE_CHECKING:
    from distill.settings import TrainingSettings


ZETA = 4.0
"""Margin between wrong and correct steps (arXiv 2410.11287)."""


def mask(targets: Targets) -> Tensor:
    """Select the first labelled step of each row, since there is one loss per trajectory."""
    labelled = ~targets.p.isnan()
    earlier = (targets.row[:, None] == targets.row) & (targets.step[:, None] > targets.step) & labelled
    return labelled & ~earlier.any(dim=1)


def loss(out: Outputs, targets: Targets, settings: TrainingSettings) -> Tensor:
    return ranking(out.log_odds(), targets, ZETA)


def ranking(q: Tensor, targets: Targets, zeta: float) -> Tensor:
    """Compute the ranking loss of each row on its first labelled step, 0 elsewhere. `q` (n,) holds the log odds.

    It is the mean, over the row's correct steps c and, if the row has wrong steps, one virtual step with Q = 0, of

        log(e^{Q_c} + 1 + sum_{earlier right} e^Q + sum_{wrong} e^{Q + zeta}) - Q_c

    For the virtual step, the term is log(1 + sum_{wrong} e^{Q + zeta}).
    """
    labelled, same = ~targets.p.isnan(), targets.row[:, None] == targets.row
    right, wrong = labelled & (targets.p >= 0.5), labelled & (targets.p < 0.5)
    below = torch.where(same & wrong, q + zeta, -torch.inf)
    upto = same & right & right[:, None] & (targets.step <= targets.step[:, None])
    zero = torch.zeros_like(q)[:, None]
    # One row of the matrix per step. The row of a wrong step holds only the wrong steps and 0: the virtual step's term.
    terms = torch.logsumexp(torch.cat([zero, torch.where(upto, q, below)], dim=1), dim=1) - torch.where(right, q, 0.0)
    first_wrong = wrong & ~(same & wrong & (targets.step < targets.step[:, None])).any(dim=1)
    used = right | first_wrong
    means = (same * torch.where(used, terms, 0.0)).sum(dim=1) / (same & used).sum(dim=1).clamp(min=1)
    return torch.where(mask(targets), means, 0.0)


LOSS = Loss(
    loss,
    mask,
    "labels",
    "a ranking within the trajectory: incorrect < 0 < correct, later correct steps higher",
    source="PQM, arXiv 2410.11287",
)
