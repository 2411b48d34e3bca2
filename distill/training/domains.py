"""Weight the sources of training rows, with fixed weights or weights learned on a small trusted set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from critic_prm.errors import InputError, UsageError
from distill.data import Row, read_rows
from distill.losses.loss import Outputs, Targets, open_loss
from distill.settings import TrainingSettings
from distill.training.batches import Prepared, micro, move

if TYPE_CHECKING:
    from distill.training.loop import StepNetwork

EVERY = 20
"""Optimizer steps between two updates from the trusted set."""
RATE = 0.1
LOW, HIGH = 0.2, 5.0
TRUSTED_ROWS, DOMAIN_ROWS = 64, 16
AT_ONCE = 2048
"""Tokens per forward pass of an update."""
ENOUGH = 200
"""Warn when there are fewer trusted solutions: the weights then mostly reflect noise."""


def domain_numbers(rows: Sequence[Row]) -> dict[str, int]:
    """Number the sources of `rows` in alphabetical order."""
    return {name: number for number, name in enumerate(sorted({row.source for row in rows if row.weight > 0}))}


def parse_weights(text: str, domains: Mapping[str, int]) -> Tensor:
    """Parse "gsm8k=1.5,math=0.5" into the weight of every domain, 1 if not named, shape (domains,). Raises UsageError."""
    weights = torch.ones(len(domains))
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.rpartition("=")
        if name not in domains:
            known = ", ".join(domains) or "none"
            raise UsageError(
                f"domain-weights names {name or part!r}, which is not a source of the training rows; they are: {known}"
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
    """Split the rows into training rows and trusted rows.

    `trusted` is a source of `rows`, which is then removed from them, a file of training rows, or "" for none. A trusted file
    that shares a problem with `rows` is rejected, because the trusted set must be held out. Raises InputError.
    """
    if not trusted:
        return list(rows), []
    kept = [row for row in rows if row.source != trusted]
    if len(kept) < len(rows):
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
            "remove them from one",
        )
    return list(rows), found


@dataclass(slots=True)
class DomainWeights:
    """The weight of each source, shape (domains,), and whether it is learned (see `DomainWeightLearner`)."""

    values: Tensor
    names: tuple[str, ...]
    learned: bool = False

    def factors(self, targets: Targets) -> Tensor:
        """Return the factor of each step end, shape (n,)."""
        return self.values.to(targets.domain.device)[targets.domain]

    def by_name(self) -> dict[str, float]:
        """Return the weight of each source by name."""
        return {name: round(value, 4) for name, value in zip(self.names, self.values.tolist(), strict=True)}


def make_weights(
    settings: TrainingSettings, domains: Mapping[str, int], trusted: Sequence[Row], say: Callable[[str], None]
) -> DomainWeights | None:
    """Create the weights that the settings ask for, or None. Raises UsageError and InputError."""
    if not settings.domain_weights and not settings.trusted:
        return None
    if trusted and len(domains) < 2:
        raise UsageError(f"trusted: the training rows are all of one source, {', '.join(domains)}; leave --trusted out")
    if trusted and all(row.outcome is None and set(row.labels) == {None} for row in trusted):
        raise InputError(settings.trusted, "no row of the trusted set has a step label or an outcome")
    if 0 < len(trusted) < ENOUGH:
        say(f"the trusted set has {len(trusted)} solutions; with fewer than {ENOUGH}, the weights are noisy")
    return DomainWeights(parse_weights(settings.domain_weights, domains), tuple(domains), bool(trusted))


@dataclass(frozen=True, slots=True)
class DomainWeightLearner:
    """Learns the source weights alongside the model; called by `loop.train`, which stores its state in every checkpoint.

    The method is that of DreamPRM (arXiv 2505.20241) without its second derivatives. One optimizer step moves the heads by -eps
    sum_k w_k g_k, so the loss on the trusted set changes by -eps w_k <g_trusted, g_k> for domain k. The weight of a domain
    whose gradient aligns with that of the trusted set grows: w_k is multiplied by exp(RATE cos(g_trusted, g_k)), then all
    weights are normalized to a mean of 1 and clamped to [LOW, HIGH]. The cosine is used because the losses of domains differ in
    scale.

    Updates start after a quarter of the run, when the heads have learned something, and happen every EVERY steps. Both
    gradients are computed on the current model, because gradients of earlier steps belong to a model that has since moved along
    them. They are gradients of the heads only, from DOMAIN_ROWS rows of each domain and TRUSTED_ROWS trusted rows, drawn by
    seed and step, so that every process draws the same rows.
    """

    weights: DomainWeights
    network: StepNetwork
    data: Prepared
    trusted: Prepared
    settings: TrainingSettings
    seed: int

    def after(self, step: int, of: int) -> None:
        if step % EVERY or 4 * step < of:
            return
        loss, draw = open_loss(self.settings.loss), np.random.default_rng([self.seed, 2 << 20, step])
        domain = self.data.targets.domain[torch.from_numpy(self.data.begin[:-1])].numpy()

        def gradient(data: Prepared, rows: Any, count: int, value: Callable[[Outputs, Targets], Tensor]) -> Tensor:
            return head_gradient(self.network, data, draw.permutation(rows)[:count], value)

        trusted = gradient(self.trusted, np.arange(len(self.trusted.encoded)), TRUSTED_ROWS, trusted_loss)
        each = [
            gradient(
                self.data, np.flatnonzero(domain == d), DOMAIN_ROWS, lambda out, targets: loss.loss(out, targets, self.settings)
            )
            for d in range(len(self.weights.values))
        ]
        self.weights.values = updated_weights(self.weights.values, torch.stack(each), trusted)

    def state(self) -> dict[str, Any]:
        return {"values": self.weights.values.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.weights.values = torch.tensor(state["values"])


def head_gradient(network: StepNetwork, data: Prepared, rows: Any, value: Callable[[Outputs, Targets], Tensor]) -> Tensor:
    """Return the gradient of the sum of `value`, (n,), over these rows with respect to the heads' weights and biases.

    Its shape is (heads * 2 * (d + 1),). Only the heads are differentiated, so it costs one forward pass.
    """
    total = torch.zeros(0)
    for part in micro(np.asarray(rows), data.lengths, AT_ONCE):
        batch, targets = data.batch(part)
        targets = move(targets, network.device)
        with torch.no_grad():
            outs = network(batch.to(network.device))
        heads = []
        for out in outs:
            logits = out.logits.detach().requires_grad_()
            losses = value(Outputs(logits, out.hidden, out.extra), targets)
            (by_logits,) = torch.autograd.grad(losses.sum(), logits)
            hidden = torch.cat([out.hidden.float(), torch.ones_like(by_logits[:, :1])], dim=1)
            heads.append((by_logits.T @ hidden).flatten().cpu())
        total = torch.cat(heads) + (total if len(total) else 0.0)
    return total


def updated_weights(weights: Tensor, gradients: Tensor, trusted: Tensor) -> Tensor:
    """Return the updated weights (domains,), from the domains' gradients (domains, d) and the trusted set's gradient (d,).

    A domain without rows has no gradient and keeps its share.
    """
    size = gradients.norm(dim=1) * trusted.norm()
    cosine = torch.where(size > 0, gradients @ trusted / size.clamp(min=1e-30), 0.0)
    updated = weights * torch.exp(RATE * cosine)
    updated = (updated / updated.mean()).clamp(LOW, HIGH)
    return updated / updated.mean()


def trusted_loss(out: Outputs, targets: Targets) -> Tensor:
    """Loss of the trusted set per step end, (n,): the cross-entropy of its step labels.

    For a row with an outcome R and no step labels, it is the (A - R)^2 of DreamPRM on the last step, where A is the sigmoid of
    the mean log odds of the row's steps.
    """
    z = out.log_odds()
    known = ~targets.p.isnan()
    p = torch.where(known, targets.p, 0.5)
    steps = -p * torch.nn.functional.logsigmoid(z) - (1 - p) * torch.nn.functional.logsigmoid(-z)
    _, index = torch.unique(targets.row, return_inverse=True)
    count = torch.zeros_like(z).index_add(0, index, torch.ones_like(z))
    mean = (torch.zeros_like(z).index_add(0, index, z) / count.clamp(min=1))[index]
    labelled = torch.zeros_like(z).index_add(0, index, known.to(z.dtype))[index] > 0
    by_outcome = targets.last & ~targets.outcome.isnan() & ~labelled
    outcome = (torch.sigmoid(mean) - torch.where(by_outcome, targets.outcome, 0.5)) ** 2
    return torch.where(known, steps, torch.where(by_outcome, outcome, 0.0))
