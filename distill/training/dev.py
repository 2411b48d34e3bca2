"""Score and evaluate the dev split during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from critic_prm.metrics.scores import auroc, brier
from distill.data import Row
from distill.losses.loss import Outputs, open_loss
from distill.threshold import choose_threshold
from distill.training.batches import Prepared, in_order, move
from distill.training.loop import ProcessGroup, StepNetwork, micro_tokens, step_losses, weighed
from distill.training.settings import TrainingSettings

Floats = NDArray[np.float64]


def look(
    network: StepNetwork, data: Prepared, rows: Sequence[Row], settings: TrainingSettings, team: ProcessGroup
) -> dict[str, Any]:
    """Compute the loss, the first-error F1 at its best threshold, step AUROC and Brier score of a split, from raw scores.

    A metric that is undefined on these rows is None.
    """
    scores, loss = score(network, data, settings, team)
    labels = np.array([np.nan if x is None else x for row in rows for x in row.labels[: len(row.steps)]])
    flat = np.concatenate(
        [np.pad(s, (0, len(r.steps) - len(s)), constant_values=np.nan) for s, r in zip(scores, rows, strict=True)]
    )
    known = ~np.isnan(labels) & ~np.isnan(flat)
    p, y = flat[known], labels[known]
    choice = choose_threshold(
        scores, [_gold(row, len(s)) for row, s in zip(rows, scores, strict=True)], [r.weight for r in rows]
    )
    return {
        "loss": loss,
        "f1": choice.f1,
        "auroc": auroc(y >= 0.5, p),
        "brier": brier(y, p),
    }


def _gold(row: Row, seen: int) -> int | None:
    """Return the first error among the steps in context; None if it lies beyond them or is unknown."""
    first = row.first_error()
    return None if first is None or first >= seen or (first < 0 and seen < len(row.steps)) else first


@torch.no_grad()
def score(
    network: StepNetwork, data: Prepared, settings: TrainingSettings, team: ProcessGroup
) -> tuple[list[list[float]], float]:
    """Return the raw P(correct) of every kept step of every row, and the loss."""
    loss, device = open_loss(settings.loss), network.device
    half = torch.ones((len(data.encoded), network.heads), dtype=torch.bool) * 0.5
    p = torch.zeros(len(data.want.p), device=device)
    sums = torch.zeros(2, device=device)
    for number, (rows, batch) in enumerate(in_order(data, micro_tokens(settings, device))):
        if number % team.size != team.rank:
            continue
        want = move(data.batch(rows)[1], device)
        outs = network(batch.to(device))
        places = np.concatenate([np.arange(data.begin[r], data.begin[r + 1]) for r in rows])
        p[torch.from_numpy(places).to(device)] = p_correct(outs)
        sums[1] += weighed(loss, want).sum()
        sums[0] += (step_losses(outs, want, half, loss, settings) * want.weight).sum()
    team.sum([p, sums])
    flat = p.cpu().tolist()
    each = [flat[a:b] for a, b in zip(data.begin[:-1], data.begin[1:], strict=True)]
    return each, float(sums[0] / sums[1].clamp(min=1e-9))


def p_correct(outs: Sequence[Outputs]) -> torch.Tensor:
    """Return P(correct), shape (n,): the softmax of the heads' mean logits, as the exported plain model computes it."""
    mean = torch.stack([out.logits.float() for out in outs]).mean(0)
    return torch.sigmoid(mean[:, 1] - mean[:, 0])
