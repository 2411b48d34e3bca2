"""A loss by name: what the network gave at step ends and what was wanted of it in, one number per step end out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast

from critic_prm import registry
from critic_prm.errors import InputError, UsageError
from distill.data import Row, require_step_labels

if TYPE_CHECKING:
    from torch import Tensor

    from distill.training.settings import TrainingSettings

Want: TypeAlias = Literal["labels", "votes", "outcomes"]
"""What a loss learns from: P(correct) per step, votes (k of n) per step, or one outcome per solution."""

MIN_VOTES = 3
"""With n = 1 votes of k the Beta-Binomial does not depend on its width, with n = 2 hardly: nothing would train it."""


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the network gives at the n step ends of a batch.

    `logits` (n, 2), float32: incorrect, correct. `hidden` (n, d): the state they were read from. `extra` (n, EXTRA), float32:
    the further numbers that the loss asked for, and no columns where it asked for none.
    """

    logits: Tensor
    hidden: Tensor
    extra: Tensor

    def log_odds(self) -> Tensor:
        """log P(correct) / P(incorrect), shape (n,), float32."""
        return self.logits[:, 1].float() - self.logits[:, 0].float()


@dataclass(frozen=True, slots=True)
class Targets:
    """What is wanted at the n step ends of a batch; every tensor has shape (n,).

    `p`: P(correct), nan where the step has no label. `k` of `n` votes, n = 0 where there are none. `weight`: of the row. `row`:
    number of the row in its split. `step`: number of the step in its row. `last`: the row's last step. `outcome`: 1 if the
    solution's final answer is right, 0 if not, nan where unknown. `domain`: number of the row's source.
    """

    p: Tensor
    k: Tensor
    n: Tensor
    weight: Tensor
    row: Tensor
    step: Tensor
    last: Tensor
    outcome: Tensor
    domain: Tensor


class Loss(Protocol):
    """A module in `losses/`."""

    @property
    def WANTS(self) -> Want: ...

    @property
    def START(self) -> tuple[float, ...]:
        """The bias to begin with of each further number it needs of the head."""
        ...

    @property
    def EXTRA(self) -> int:
        """How many further numbers a step: the length of START."""
        ...

    @property
    def TAKES_WEIGHTS(self) -> bool:
        """Whether class weights and label smoothing mean something to it."""
        ...

    def counts(self, want: Targets) -> Tensor:
        """Which step ends count in the divisor: (n,) bool."""
        ...

    def loss(self, out: Outputs, want: Targets, settings: TrainingSettings) -> Tensor:
        """Shape (n,), float32, before row weights; exactly 0, without gradient, where `counts` is false."""
        ...


def open_loss(name: str) -> Loss:
    """Import the loss called `name`. Raises UsageError that lists the available ones."""
    return cast(Loss, registry.load("loss", name))


def check_settings(settings: TrainingSettings) -> None:
    """Raises UsageError for an unknown loss, and for weights or smoothing that the loss does not take."""
    loss = open_loss(settings.loss)
    given = [
        name
        for name, value in (("class-weights", settings.class_weights), ("label-smoothing", settings.label_smoothing))
        if value
    ]
    if given and not loss.TAKES_WEIGHTS:
        takes = ", ".join(name for name in registry.names("loss") if open_loss(name).TAKES_WEIGHTS)
        raise UsageError(f"the loss {settings.loss} has no {' and no '.join(given)}; these have: {takes}")


def check_rows(name: str, rows: Sequence[Row], where: str) -> None:
    """Raises InputError when the training rows, of the file `where`, lack what the loss called `name` learns from."""
    _LACKS[open_loss(name).WANTS](name, [row for row in rows if row.weight > 0], where)


def _labels(name: str, rows: Sequence[Row], where: str) -> None:
    require_step_labels(rows, where, f"the loss {name}")


def _votes(name: str, rows: Sequence[Row], where: str) -> None:
    counts = [n for row in rows for _, n in row.votes if n]
    enough = sum(n >= MIN_VOTES for n in counts)
    if 2 * enough <= len(counts) or not counts:
        raise InputError(
            where,
            f"the loss {name} wants {MIN_VOTES} or more votes a step, and {enough} of {len(counts)} steps with votes have them",
            f"judge again with --samples {MIN_VOTES} or more, or take --loss soft",
        )


def _outcomes(name: str, rows: Sequence[Row], where: str) -> None:
    known = [row.outcome for row in rows if row.outcome is not None]
    right = sum(outcome >= 0.5 for outcome in known)
    if not right or right == len(known):
        raise InputError(
            where,
            f"the loss {name} wants outcomes of both kinds, and {right} solutions are right, {len(known) - right} wrong,"
            f" {len(rows) - len(known)} without an outcome",
            'give each row "outcome": true when its final answer is right, false when it is not',
        )


_LACKS: dict[Want, Callable[[str, Sequence[Row], str], None]] = {"labels": _labels, "votes": _votes, "outcomes": _outcomes}
