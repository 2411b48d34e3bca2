"""A critic or its scores in, what is wrong with them out: one analysis a module, each with numbers that can be bounded."""

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
    """A table of results; None is a cell that is not defined."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Analysis:
    """What an analysis found.

    `numbers` are those that guardrails can bound, by the names of the module's NUMBERS, None where not defined. `findings` say
    in a sentence each what is wrong, none where nothing is; `notes` what to mind. `details` are rows for a machine.
    """

    name: str
    numbers: Mapping[str, float | None]
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    details: tuple[Mapping[str, Any], ...] = field(default=())


def names() -> list[str]:
    """The analyses there are."""
    return registry.names("analysis")


def numbers_of(name: str) -> Mapping[str, str]:
    """What the numbers of an analysis mean, by their names. Raises UsageError for an analysis that does not exist."""
    module: Any = registry.load("analysis", name)
    numbers: Mapping[str, str] = module.NUMBERS
    return numbers


def analysis_to_json(analysis: Analysis) -> dict[str, Any]:
    """Everything but the tables, which are the same numbers for people."""
    return {
        "analysis": analysis.name,
        "numbers": dict(analysis.numbers),
        "findings": list(analysis.findings),
        "notes": list(analysis.notes),
        "details": [dict(row) for row in analysis.details],
    }


def shares(flags: Iterable[bool]) -> float | None:
    """The share of what is true; None of nothing."""
    found = list(flags)
    return sum(found) / len(found) if found else None


def said(trajectory: Trajectory, *fields: str) -> str | None:
    """The first of these fields that the row, or its meta, has."""
    for name in fields:
        value = trajectory.extra.get(name, trajectory.meta.get(name))
        if value is not None:
            return str(value)
    return None


def spread_out(items: Sequence[T], most: int) -> list[T]:
    """At most `most` of the items, evenly spread: input is often sorted."""
    step = max(1.0, len(items) / most)
    return [items[int(place * step)] for place in range(min(most, len(items)))]
