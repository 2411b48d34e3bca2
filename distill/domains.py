"""What each source of the training rows counts: weights given by hand, or learned from how it helps on a small trusted set."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from critic_prm.errors import InputError, UsageError
from distill.losses import Outputs, Targets

if TYPE_CHECKING:
    from distill.data import Row

EVERY = 20
"""Optimizer steps between two looks at the trusted set."""
RATE = 0.1
LOW, HIGH = 0.2, 5.0
TRUSTED_ROWS = 64
"""Rows of the trusted set in one look, drawn anew each time."""
ENOUGH = 200
"""Trusted solutions below which the weights follow noise more than use, so that it is said."""


def domain_numbers(rows: Sequence[Row]) -> dict[str, int]:
    """The sources of `rows`, in order of their names."""
    return {name: number for number, name in enumerate(sorted({row.source for row in rows}))}


def parse_weights(text: str, domains: Mapping[str, int]) -> Tensor:
    """Read "gsm8k=1.5,math=0.5": the weight of every domain, 1 where not named, shape (domains,). Raises UsageError."""
    weights = torch.ones(len(domains))
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.rpartition("=")
        if name not in domains:
            known = ", ".join(domains) or "none"
            raise UsageError(
                f"domain-weights names {name or part!r}, which is no source of the training rows; they are: {known}"
            )
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not equals or not 0 <= number < math.inf:
            raise UsageError(f"domain-weights: {name} is {value!r}; it must be a number from 0 upwards")
        weights[domains[name]] = number
    return weights


def split_trusted(rows: Sequence[Row], trusted: str) -> tuple[list[Row], list[Row]]:
    """Training rows and trusted rows: `trusted` is a source of `rows`, which then leaves them, or a file of training rows.

    A measure that is trained on measures nothing; so rows of a trusted file whose problem is in `rows` are refused. Raises
    InputError.
    """
    from pathlib import Path

    from distill.data import read_rows

    kept = [row for row in rows if row.source != trusted]
    if trusted and len(kept) < len(rows):
        return kept, [row for row in rows if row.source == trusted]
    path = Path(trusted)
    if not path.is_file():
        names = ", ".join(domain_numbers(rows)) or "none"
        raise InputError(
            trusted, "the trusted set is neither a file nor a source of the training rows", f"the sources are: {names}"
        )
    found = read_rows(path)
    shared = {row.problem for row in rows} & {row.problem for row in found}
    if shared:
        raise InputError(
            trusted,
            f"{len(shared)} of its problems are in the training rows too, as {min(shared)[:60]!r}",
            "take them out of one",
        )
    return list(rows), found


@dataclass(slots=True)
class DomainWeights:
    """The weights, shape (domains,), and, where they are learned, what was seen of each domain since the last look.

    Learned after DreamPRM (arXiv 2505.20241), without its second derivatives: one step of the optimizer moves the head by
    -eps sum_k w_k g_k, so the loss on the trusted set moves by -eps w_k <g_trusted, g_k> for domain k. A domain whose gradient
    points where the trusted set's does gets heavier: w_k times exp(RATE cos(g_trusted, g_k)), then all are brought to a mean of
    1 and into [LOW, HIGH]. The cosine, because losses of domains differ in size. Gradients are those of the heads' weights and
    biases, summed up for nothing from what the training steps computed.
    """

    values: Tensor
    learned: bool = False
    gradients: Tensor = field(default_factory=lambda: torch.zeros(0))
    history: list[list[float]] = field(default_factory=list)

    def of(self, want: Targets) -> Tensor:
        """The factor of each step end, shape (n,)."""
        return self.values.to(want.domain.device)[want.domain]

    def watch(self, out: Sequence[Outputs], want: Targets, losses: Tensor) -> None:
        """Add a training batch: the outputs of its heads and their losses (n,), before any row or domain weight."""
        if not self.learned:
            return
        found = head_gradients(out, want.domain, losses, len(self.values)).cpu()
        self.gradients = found if not self.gradients.numel() else self.gradients + found

    def look(self, trusted: Tensor) -> None:
        """Move the weights by the trusted set's gradient, (1, d) of `head_gradients`; what was watched is forgotten."""
        self.values = moved(self.values, self.gradients, trusted[0].cpu())
        self.gradients = torch.zeros(0)
        self.history.append([round(w, 4) for w in self.values.tolist()])

    def state(self) -> dict[str, Any]:
        """Everything that a run which is taken up again needs."""
        return {"values": self.values, "gradients": self.gradients, "history": self.history}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.values, self.gradients, self.history = state["values"], state["gradients"], state["history"]


def head_gradients(out: Sequence[Outputs], group: Tensor, losses: Tensor, groups: int) -> Tensor:
    """The gradient of the sum of `losses` (n,) by the heads' weights and biases, apart for each group of step ends.

    `group` (n,): number of each step end's group. Returns (groups, heads * 2 * (d + 1)). The losses' graph is left as it is.
    """
    rows = []
    for head in out:
        (by_logits,) = torch.autograd.grad(losses.sum(), head.logits, retain_graph=True)
        hidden = torch.cat([head.hidden.detach().float(), torch.ones_like(by_logits[:, :1])], dim=1)
        each = torch.zeros(groups, 2, hidden.shape[1], device=hidden.device)
        for number in group.unique().tolist():
            here = group == number
            each[number] = by_logits[here].T @ hidden[here]
        rows.append(each.flatten(1))
    return torch.cat(rows, dim=1)


def moved(weights: Tensor, gradients: Tensor, trusted: Tensor) -> Tensor:
    """The next weights: (domains,) from (domains,), the domains' gradients (domains, d) and the trusted set's (d,).

    A domain that was not seen has no gradient and keeps its share.
    """
    size = gradients.norm(dim=1) * trusted.norm()
    cosine = torch.where(size > 0, gradients @ trusted / size.clamp(min=1e-30), 0.0)
    fresh = weights * torch.exp(RATE * cosine)
    fresh = (fresh / fresh.mean()).clamp(LOW, HIGH)
    return fresh / fresh.mean()


def trusted_loss(out: Outputs, want: Targets) -> Tensor:
    """What the trusted set asks, (n,): the cross-entropy of its step labels; where a row has none but an outcome R, the
    (A - R)^2 of DreamPRM on its last step, A = sigmoid of the mean log odds of the row's steps."""
    z = out.log_odds()
    known = ~want.p.isnan()
    p = torch.where(known, want.p, 0.5)
    steps = -p * torch.nn.functional.logsigmoid(z) - (1 - p) * torch.nn.functional.logsigmoid(-z)
    _, at = torch.unique(want.row, return_inverse=True)
    count = torch.zeros_like(z).index_add(0, at, torch.ones_like(z))
    mean = (torch.zeros_like(z).index_add(0, at, z) / count.clamp(min=1))[at]
    labelled = torch.zeros_like(z).index_add(0, at, known.to(z.dtype))[at] > 0
    by_outcome = want.last & ~want.outcome.isnan() & ~labelled
    outcome = (torch.sigmoid(mean) - torch.where(by_outcome, want.outcome, 0.5)) ** 2
    return torch.where(known, steps, torch.where(by_outcome, outcome, 0.0))
