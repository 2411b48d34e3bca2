"""Bounds from a TOML file and the numbers of analyses in, which bounds are broken out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critic_prm.data.toml_files import read_toml
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze.analysis import Table, names, numbers_of


@dataclass(frozen=True, slots=True)
class Bound:
    """A number of an analysis must be at least `least` and at most `most`; None leaves that side open."""

    analysis: str
    number: str
    least: float | None = None
    most: float | None = None

    def holds(self, value: float | None) -> bool:
        """A number that was not measured holds no bound: what cannot be checked is not known to be in order."""
        return value is not None and (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def words(self) -> str:
        sides = [f"{sign} {value:g}" for sign, value in ((">=", self.least), ("<=", self.most)) if value is not None]
        return " and ".join(sides)


@dataclass(frozen=True, slots=True)
class Checked:
    """A bound and the number that was held against it."""

    bound: Bound
    value: float | None
    holds: bool


def read_bounds(path: str | Path) -> list[Bound]:
    """Read a TOML file with a table an analysis, and in it for a number `{min = 0.1, max = 0.2}`, one of them, or both.

    Raises InputError for a file that cannot be read or bounds nothing, UsageError for what does not exist.
    """
    try:
        tables = read_toml(path)
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"it cannot be read: {error}", "guardrails are TOML: [drift] psi = {max = 0.2}") from error
    bounds = [bound for name, table in tables.items() for bound in _bounds(str(path), name, table)]
    if not bounds:
        raise InputError(str(path), "it bounds nothing", "write for instance [drift] psi = {max = 0.2}")
    return bounds


def _bounds(path: str, name: str, table: Any) -> Iterator[Bound]:
    if name not in names() or not isinstance(table, dict):
        raise UsageError(f"{path}: no analysis is called {name!r}; there are: {', '.join(names())}")
    known = numbers_of(name)
    for number, sides in table.items():
        if number not in known:
            raise UsageError(f"{path}: {name} has no number {number!r}; it has: {', '.join(known)}")
        good = isinstance(sides, dict) and sides and set(sides) <= {"min", "max"}
        if not good or not all(isinstance(side, int | float) and not isinstance(side, bool) for side in sides.values()):
            raise UsageError(f"{path}: the bounds of {name}.{number} are {sides!r}; write {{min = 0.1}}, {{max = 0.2}} or both")
        yield Bound(name, number, sides.get("min"), sides.get("max"))


def check(bounds: Sequence[Bound], numbers: Mapping[str, Mapping[str, float | None]]) -> list[Checked]:
    """Hold every bound against the numbers, by analysis and name. Raises UsageError for an analysis without numbers."""
    if missing := sorted({bound.analysis for bound in bounds} - set(numbers)):
        raise UsageError(
            f"there are bounds for {', '.join(missing)}, but no result of it; run `critic-prm analyze {missing[0]}` with --json"
        )
    pairs = [(bound, numbers[bound.analysis].get(bound.number)) for bound in bounds]
    return [Checked(bound, value, bound.holds(value)) for bound, value in pairs]


def numbers_in(rows: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, Mapping[str, float | None]]:
    """The numbers of results as `--json` prints them, each given with where it stands. Of several results of one analysis the
    last counts. Raises InputError for rows that are no results."""
    found: dict[str, Mapping[str, float | None]] = {}
    for row, where in rows:
        name, numbers = row.get("analysis"), row.get("numbers")
        if not isinstance(name, str) or not isinstance(numbers, dict):
            raise InputError(where, "this is no result of an analysis", "write one with: critic-prm analyze ... --json")
        found[name] = numbers
    return found


def table_of(checked: Sequence[Checked]) -> Table:
    """Every bound, the broken ones first."""
    ordered = sorted(checked, key=lambda one: one.holds)
    rows = tuple(
        (f"{one.bound.analysis}.{one.bound.number}", one.value, one.bound.words, "holds" if one.holds else "BROKEN")
        for one in ordered
    )
    return Table("Guardrails", ("number", "is", "must be", ""), rows)
