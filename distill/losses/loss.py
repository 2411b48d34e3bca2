"""Define the loss protocol and its inputs, and open a loss by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from critic_prm import registry
from critic_prm.errors import InputError, UsageError
from distill.data import Row, require_step_labels

if TYPE_CHECKING:
    from torch import Tensor

    from distill.settings import TrainingSettings

LabelKind: TypeAlias = Literal["labels", "votes", "outcomes"]
"""What a loss learns from: P(correct) per step, votes (k of n) per step, or one outcome per solution."""

MIN_VOTES = 3
"""Minimum votes per step.

With n = 1 the Beta-Binomial does not depend on its width, and with n = 2 hardly, so the width would not be trained.
"""


@dataclass(frozen=True, slots=True)
class Outputs:
    """Network outputs at the n step ends of a batch.

    `logits` (n, 2), float32: incorrect, correct. `hidden` (n, d): the states they were computed from. `extra` (n, e), float32:
    the extra outputs that the loss asked for; no columns if it asked for none.
    """

    logits: Tensor
    hidden: Tensor
    extra: Tensor

    def log_odds(self) -> Tensor:
        """Return log P(correct) / P(incorrect), shape (n,), float32."""
        return self.logits[:, 1].float() - self.logits[:, 0].float()


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets at the n step ends of a batch; every tensor has shape (n,)."""

    p: Tensor
    """P(correct), nan if the step has no label."""
    k: Tensor
    """Number of votes for "correct"."""
    n: Tensor
    """Number of votes, 0 if there are none."""
    weight: Tensor
    """Weight of the row."""
    row: Tensor
    """Index of the row in its split."""
    step: Tensor
    """Index of the step in its row."""
    last: Tensor
    """Whether it is the row's last step."""
    outcome: Tensor
    """1 if the solution's final answer is correct, 0 if not, nan if unknown."""
    domain: Tensor
    """Index of the row's source."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A training loss, which a module in `losses/` defines as `NAME = Loss(...)`: `BETA_BINOMIAL` is called beta-binomial."""

    loss: Callable[[Outputs, Targets, TrainingSettings], Tensor]
    """Return the loss, shape (n,), float32, before row weights; exactly 0, without gradient, where `mask` is false."""
    mask: Callable[[Targets], Tensor]
    """Return which step ends count in the divisor: (n,) bool."""
    label_kind: LabelKind
    """What it learns from; rows that lack it are refused before training."""
    objective: str
    """What it minimizes, in a few words for the documentation."""
    source: str = ""
    """Publication, for the documentation."""
    extra_bias: tuple[float, ...] = ()
    """The initial biases of the extra outputs per step that it needs from the head."""
    takes_weights: bool = False
    """Whether it uses class weights and label smoothing."""


def open_loss(name: str) -> Loss:
    """Import the loss called `name`. Raises UsageError with the available names."""
    return cast(Loss, registry.load("loss", name))


def check_settings(settings: TrainingSettings) -> None:
    """Raise UsageError for an unknown loss, and for class weights or smoothing that the loss does not use."""
    loss = open_loss(settings.loss)
    given = [
        name
        for name, value in (("class-weights", settings.class_weights), ("label-smoothing", settings.label_smoothing))
        if value
    ]
    if given and not loss.takes_weights:
        takes = ", ".join(name for name in registry.names("loss") if open_loss(name).takes_weights)
        raise UsageError(f"the loss {settings.loss} does not use {' and '.join(given)}; these losses do: {takes}")


def check_rows(name: str, rows: Sequence[Row], where: str) -> None:
    """Raise InputError if the training rows of file `where` lack what the loss called `name` learns from."""
    _LACKS[open_loss(name).label_kind](name, [row for row in rows if row.weight > 0], where)


def _labels(name: str, rows: Sequence[Row], where: str) -> None:
    require_step_labels(rows, where, f"the loss {name}")


def _votes(name: str, rows: Sequence[Row], where: str) -> None:
    counts = [n for row in rows for _, n in row.votes if n]
    enough = sum(n >= MIN_VOTES for n in counts)
    if 2 * enough <= len(counts) or not counts:
        raise InputError(
            where,
            f"the loss {name} needs {MIN_VOTES} or more votes per step, but {enough} of {len(counts)} with votes have them",
            f"judge again with --samples {MIN_VOTES} or more, or use --loss soft",
        )


def _outcomes(name: str, rows: Sequence[Row], where: str) -> None:
    known = [row.outcome for row in rows if row.outcome is not None]
    right = sum(outcome >= 0.5 for outcome in known)
    if not right or right == len(known):
        raise InputError(
            where,
            f"the loss {name} needs outcomes of both kinds, and {right} solutions are correct, {len(known) - right} incorrect,"
            f" {len(rows) - len(known)} without an outcome",
            'give each row "outcome": true if its final answer is correct, false if not',
        )


_LACKS: dict[LabelKind, Callable[[str, Sequence[Row], str], None]] = {"labels": _labels, "votes": _votes, "outcomes": _outcomes}
