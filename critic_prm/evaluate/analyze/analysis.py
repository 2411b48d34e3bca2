"""Common interface of the analyses: each module reports named numbers that guardrails can bound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from critic_prm import registry
from critic_prm.data.trajectory import Trajectory

T = TypeVar("T")
Cell: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True)
class Table:
    """A table of results; None marks an undefined cell."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of an analysis."""

    name: str
    numbers: Mapping[str, float | None]
    """Values that guardrails can bound, keyed by the names in the module's NUMBERS; None if undefined."""
    findings: tuple[str, ...] = ()
    """One sentence per problem found."""
    notes: tuple[str, ...] = ()
    """Caveats."""
    tables: tuple[Table, ...] = ()
    details: tuple[Mapping[str, Any], ...] = field(default=())
    """Machine-readable rows."""


def names() -> list[str]:
    """The names of all analyses."""
    return registry.names("analysis")


def numbers_of(name: str) -> Mapping[str, str]:
    """The meaning of an analysis' numbers, by name. Raises UsageError for an unknown analysis."""
    module: Any = registry.load("analysis", name)
    numbers: Mapping[str, str] = module.NUMBERS
    return numbers


def analysis_to_json(analysis: Analysis) -> dict[str, Any]:
    """Everything except the tables, which show the same numbers for reading."""
    return {
        "analysis": analysis.name,
        "numbers": dict(analysis.numbers),
        "findings": list(analysis.findings),
        "notes": list(analysis.notes),
        "details": [dict(row) for row in analysis.details],
    }


def shares(flags: Iterable[bool]) -> float | None:
    """The share of true flags; None if there are none."""
    found = list(flags)
    return sum(found) / len(found) if found else None


def said(trajectory: Trajectory, *fields: str) -> str | None:
    """The first of these fields that is present in the row or its meta."""
    for name in fields:
        value = trajectory.extra.get(name, trajectory.meta.get(name))
        if value is not None:
            return str(value)
    return None


def spread_out(items: Sequence[T], most: int) -> list[T]:
    """At most `most` items, evenly spaced, since input files are often sorted."""
    step = max(1.0, len(items) / most)
    return [items[int(place * step)] for place in range(min(most, len(items)))]
