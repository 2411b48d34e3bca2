"""Compute inverse-propensity weights per stratum from the numbers of offered and kept rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from critic_prm.datasets.balance import CLIP

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
