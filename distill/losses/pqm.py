"""Ranking within a trajectory: wrong steps below 0 below right ones, later right ones higher (PQM)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from distill.losses.loss import Outputs, Targets, Want

if TYPE_CHECKING:
    from distill.training.settings import TrainingSettings

WANTS: Want = "labels"
START: tuple[float, ...] = ()
EXTRA = len(START)
TAKES_WEIGHTS = False

ZETA = 4.0
"""The margin between wrong steps and right ones (arXiv 2410.11287)."""


def counts(want: Targets) -> Tensor:
    """The first labelled step of each row: the loss is one number a trajectory."""
    known = ~want.p.isnan()
    earlier = (want.row[:, None] == want.row) & (want.step[:, None] > want.step) & known
    return known & ~earlier.any(dim=1)


def loss(out: Outputs, want: Targets, settings: TrainingSettings) -> Tensor:
    return ranking(out.log_odds(), want, ZETA)


def ranking(q: Tensor, want: Targets, zeta: float) -> Tensor:
    """On each row's first labelled step, the mean over its right steps c, and over one virtual step with Q = 0 where the row
    has wrong steps, of

        log(e^{Q_c} + 1 + sum_{earlier right} e^Q + sum_{wrong} e^{Q + zeta}) - Q_c

    (for the virtual step: log(1 + sum_{wrong} e^{Q + zeta})). `q` is (n,), the log odds. 0 elsewhere.
    """
    known, same = ~want.p.isnan(), want.row[:, None] == want.row
    right, wrong = known & (want.p >= 0.5), known & (want.p < 0.5)
    below = torch.where(same & wrong, q + zeta, -torch.inf)
    upto = same & right & right[:, None] & (want.step <= want.step[:, None])
    zero = torch.zeros_like(q)[:, None]
    # One row of the matrix per step; that of a wrong step holds the row's wrong steps and 0 alone: the virtual step's term.
    terms = torch.logsumexp(torch.cat([zero, torch.where(upto, q, below)], dim=1), dim=1) - torch.where(right, q, 0.0)
    first_wrong = wrong & ~(same & wrong & (want.step < want.step[:, None])).any(dim=1)
    used = right | first_wrong
    means = (same * torch.where(used, terms, 0.0)).sum(dim=1) / (same & used).sum(dim=1).clamp(min=1)
    return torch.where(counts(want), means, 0.0)
