"""Balance the classes of a training set by thinning rows or step labels, and compute row weights."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from critic_prm.data.hashing import unit

Balance = Literal["none", "step", "first-error"]

CLIP = 5.0
"""Maximum weight of a row, relative to the mean."""


@dataclass(slots=True)
class Thinning:
    """Draws a random number for every row or step label in the first pass; in the second, keeps the lowest ones of the larger
    class.

    The numbers depend only on the seed and the content, so whether a trajectory is kept does not depend on its position.
    """

    how: Balance
    seed: int
    _lots: dict[str, array[float]] = field(default_factory=dict)
    _limits: dict[str, float] = field(default_factory=dict)

    def note(self, kind: str, labels: Sequence[float | None], content: str) -> None:
        """First pass: add a row of the train split. `kind` is its class, `content` the id of its content."""
        for name, lot in self._draw(kind, labels, content):
            self._lots.setdefault(name, array("d")).append(lot)

    def decide(self) -> None:
        """Between the passes: find the cutoff below which each class is kept."""
        pair = ("good", "bad") if self.how == "step" else ("erroneous", "correct")
        keep = min(len(self._lots.get(name, ())) for name in pair)
        for name in pair:
            lots = self._lots.get(name, array("d"))
            self._limits[name] = 1.0 if keep == len(lots) else sorted(lots)[keep - 1] if keep else -1.0
        self._lots.clear()

    def thin(self, kind: str, labels: Sequence[float | None], content: str) -> list[float | None]:
        """Second pass: the labels that are kept; all None if the row is dropped."""
        lots = self._draw(kind, labels, content)
        if self.how == "none":
            return list(labels)
        if self.how == "first-error":
            stays = all(lot <= self._limits.get(name, 1.0) for name, lot in lots)
            return list(labels) if stays else [None] * len(labels)
        rest = iter(lots)
        return [None if p is None or (lot := next(rest))[1] > self._limits[lot[0]] else p for p in labels]

    def _draw(self, kind: str, labels: Sequence[float | None], content: str) -> list[tuple[str, float]]:
        if self.how == "first-error":
            return [(kind, unit("row", self.seed, content))]
        if self.how == "step":
            steps = ((i, "good" if p >= 0.5 else "bad") for i, p in enumerate(labels) if p is not None)
            return [(name, unit("step", self.seed, content, i)) for i, name in steps]
        return []


def acceptance_weights(offered: Mapping[str, int], accepted: Mapping[str, int]) -> dict[str, float]:
    """Row weights by class: the inverse of the class's acceptance rate, with mean 1 over the accepted rows, at most 5.

    Filtering by agreement drops more rows of one class than of the other. The weights restore the class proportions only:
    within a class, the hard cases are still the ones that were dropped. A class without accepted rows gets no weight.
    """
    raw = {kind: offered[kind] / accepted[kind] for kind in sorted(offered) if accepted.get(kind)}
    total = sum(accepted[kind] for kind in raw)
    mean = sum(raw[kind] * accepted[kind] for kind in raw) / total if total else 1.0
    return {kind: min(CLIP, weight / mean) for kind, weight in raw.items()}


def effective_rows(weights: Mapping[str, float], mass: Mapping[str, float], squares: Mapping[str, float]) -> float:
    """The effective sample size of weighted rows: (sum w)^2 / sum w^2.

    `mass` and `squares` are, by class, the sums of the rows' own weights and of their squares. `weights` multiplies them; a
    class without an entry has weight 1.
    """
    total = sum(weights.get(kind, 1.0) * own for kind, own in mass.items())
    square = sum(weights.get(kind, 1.0) ** 2 * own for kind, own in squares.items())
    return total * total / square if square else 0.0
