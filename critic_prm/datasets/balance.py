"""Balance classes: thin rows, weight them, and report acceptance by class and position."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from critic_prm.data.hashing import unit
from critic_prm.datasets.rows import share

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


Stratum: TypeAlias = tuple[str, int]
"""A class and a bin: the position of the first error for erroneous solutions, the number of steps for correct ones."""

FLOOR = 20
"""Strata with fewer kept rows are merged with a neighbour of the same class, because their rate is too noisy."""

_EDGES = (1, 2, 3, 4, 6, 9, 13)


@dataclass(frozen=True, slots=True)
class Propensity:
    """Weights per stratum, with mean 1 over the kept rows unless some were `clipped` at 5."""

    weight: Mapping[Stratum, float]
    """Weight of each stratum."""
    merged: tuple[tuple[Stratum, ...], ...]
    """Groups of strata that share one rate."""
    clipped: bool
    """Whether a weight was clipped."""
    lost: tuple[str, ...]
    """Classes with no kept rows, which no weight can restore."""


def stratum(kind: str, first_error: int | None, steps: int) -> Stratum:
    """The stratum of a solution: its class, and the bin of its first error's position or, without an error, of its length."""
    position = first_error + 1 if first_error is not None and first_error >= 0 else steps
    return kind, sum(position > edge for edge in _EDGES)


def bin_name(number: int) -> str:
    """The positions in a bin, counted from 1: "1", "5-6", "14+"."""
    low = _EDGES[number - 1] + 1 if number else 1
    if number == len(_EDGES):
        return f"{low}+"
    return str(low) if _EDGES[number] == low else f"{low}-{_EDGES[number]}"


def inverse_propensity(
    offered: Mapping[Stratum, int], kept: Mapping[Stratum, int], floor: int = FLOOR, clip: float = CLIP
) -> Propensity:
    """Weights that restore the strata's proportions among the offered rows: (N/K) / (all N/all K), at most `clip`."""
    groups: list[tuple[Stratum, ...]] = []
    lost = []
    for kind in sorted({kind for kind, _ in offered}):
        strata = sorted(s for s in offered if s[0] == kind)
        if not sum(kept.get(s, 0) for s in strata):
            lost.append(kind)
            continue
        own: list[tuple[Stratum, ...]] = []
        pending: tuple[Stratum, ...] = ()
        for s in strata:
            pending = (*pending, s)
            if sum(kept.get(one, 0) for one in pending) >= floor:
                own.append(pending)
                pending = ()
        if pending:
            own[-1:] = [(*own[-1], *pending)] if own else [pending]
        groups += own
    total = {group: (sum(offered[s] for s in group), sum(kept.get(s, 0) for s in group)) for group in groups}
    mean = sum(n for n, _ in total.values()) / max(1, sum(k for _, k in total.values()))
    raw = {group: n / k / mean for group, (n, k) in total.items()}
    weight = {s: min(clip, value) for group, value in raw.items() for s in group}
    return Propensity(weight, tuple(g for g in groups if len(g) > 1), any(v > clip for v in raw.values()), tuple(lost))


VIEWS = ("gold", "a", "b")
"""The label source that defines the class of a solution."""


@dataclass(slots=True)
class Tally:
    """Offered and kept solutions by stratum, for each view; how the first errors of the two sources compare; and, if gold is
    known, the number of agreed labels of each class and how many of them match gold."""

    offered: dict[str, Counter[Stratum]] = field(default_factory=lambda: {view: Counter() for view in VIEWS})
    kept: dict[str, Counter[Stratum]] = field(default_factory=lambda: {view: Counter() for view in VIEWS})
    pairs: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    only_a: int = 0
    joined: int = 0


def accepted(
    tally: Tally,
    view: str,
    propensity: Propensity,
    written: Counter[tuple[str, float]],
    debias: str,
) -> dict[str, Any]:
    """The part of the report with the acceptance by class and position, and the effect of the weights."""
    mass: dict[str, float] = {}
    for (kind, weight), rows in written.items():
        mass[kind] = mass.get(kind, 0.0) + weight * rows
    squares = sum(weight * weight * rows for (_, weight), rows in written.items())
    offered, kept = _by_class(tally.offered[view]), _by_class(tally.kept[view])
    return {
        "joined": tally.joined,
        "only_in_a": tally.only_a,
        "first_errors": dict(tally.pairs.most_common()),
        "classes_by": view,
        "acceptance": _rates(offered, kept),
        "acceptance_by_position": _positions(tally, view),
        "acceptance_from": {
            name: _rates(_by_class(tally.offered[name]), _by_class(tally.kept[name])) for name in VIEWS if tally.offered[name]
        },
        "share_erroneous": {
            "offered": share(offered, "erroneous"),
            "kept": share(kept, "erroneous"),
            "written": share(mass, "erroneous"),
        },
        "agreed_labels_that_are_gold": {
            kind: {"kept": n, "right": tally.right[kind], "rate": tally.right[kind] / n}
            for kind, n in sorted(tally.agreed.items())
        },
        "weights": {
            "effective_rows": sum(mass.values()) ** 2 / squares if squares else 0.0,
            "largest": max((weight for _, weight in written), default=None),
            "clipped": propensity.clipped and debias == "reweight",
            "merged": [[f"{kind} {bin_name(number)}" for kind, number in group] for group in propensity.merged],
            "classes_lost": list(propensity.lost),
        },
    }


def _by_class(strata: Mapping[Stratum, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (kind, _), rows in strata.items():
        counts[kind] += rows
    return counts


def _rates(offered: Mapping[str, int], kept: Mapping[str, int]) -> dict[str, Any]:
    return {kind: _rate(n, kept.get(kind, 0)) for kind, n in sorted(offered.items())}


def _rate(offered: int, kept: int) -> dict[str, float]:
    return {"offered": offered, "kept": kept, "rate": kept / offered}


def _positions(tally: Tally, view: str) -> dict[str, Any]:
    """The acceptance rate of each stratum: erroneous solutions by position of the first error (from 1), correct ones by
    length."""
    table: dict[str, Any] = {}
    for (kind, number), n in sorted(tally.offered[view].items()):
        table.setdefault(kind, {})[bin_name(number)] = _rate(n, tally.kept[view][kind, number])
    return table


def acceptance_lines(report: Mapping[str, Any]) -> list[str]:
    """The effect of the consensus on the classes, as text."""
    rates = ", ".join(
        f"{entry['rate']:.1%} of the {kind} ({entry['kept']:,} of {entry['offered']:,})"
        for kind, entry in report["acceptance"].items()
    )
    whose = {"gold": "gold", "a": "A", "b": "B"}[report["classes_by"]]
    shown_lines = [f"joined {report['joined']:,}; kept {rates or 'nothing'}, classes by {whose}"]
    for kind, table in report["acceptance_by_position"].items():
        what = "first error at step" if kind == "erroneous" else "of so many steps"
        shown_lines.append(f"{kind}, {what}: " + ", ".join(f"{name}: {entry['rate']:.0%}" for name, entry in table.items()))
    if checked := report["agreed_labels_that_are_gold"]:
        shown = ", ".join(f"{one['rate']:.1%} of the labels {kind}" for kind, one in checked.items())
        shown_lines.append(f"where gold is known, {shown} are it")
    shares = report["share_erroneous"]
    if shares["offered"] is not None and shares["kept"] is not None:
        shown = f"share of erroneous solutions: {shares['offered']:.1%} offered, {shares['kept']:.1%} kept"
        if report["options"]["debias"] != "none" and shares["written"] is not None:
            shown += f", {shares['written']:.1%} after {report['options']['debias']}"
            shown += f" (effective rows {report['weights']['effective_rows']:,.0f})"
        elif abs(shares["offered"] - shares["kept"]) > 0.02:
            shown += "; --reweight or --resample gives the classes their shares back"
        shown_lines.append(shown)
    if lost := report["weights"]["classes_lost"]:
        shown_lines.append(f"warning: nothing {' or '.join(lost)} was kept; no weight brings it back")
    return shown_lines
