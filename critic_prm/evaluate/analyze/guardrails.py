"""Check the numbers of analyses against bounds from a TOML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critic_prm.data.trust import read_toml
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.analyze.analysis import Table, names, numbers_of


@dataclass(frozen=True, slots=True)
class Bound:
    """Bounds on one number of an analysis: at least `least` and at most `most`; None for no bound."""

    analysis: str
    number: str
    least: float | None = None
    most: float | None = None

    def holds(self, value: float | None) -> bool:
        """Whether the value is within the bounds. A missing value is not: what was not measured cannot be assumed to be in
        order."""
        return value is not None and (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def words(self) -> str:
        sides = [f"{sign} {value:g}" for sign, value in ((">=", self.least), ("<=", self.most)) if value is not None]
        return " and ".join(sides)


@dataclass(frozen=True, slots=True)
class Checked:
    """A bound and the value it was checked against."""

    bound: Bound
    value: float | None
    holds: bool


def read_bounds(path: str | Path) -> list[Bound]:
    """Read a TOML file with a table per analysis and, for each number, `{min = 0.1, max = 0.2}` or one of the two.

    Raises InputError for a file that cannot be read or contains no bounds, UsageError for an unknown analysis or number.
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
        raise UsageError(f"{path}: there is no analysis {name!r}; available: {', '.join(names())}")
    known = numbers_of(name)
    for number, sides in table.items():
        if number not in known:
            raise UsageError(f"{path}: {name} has no number {number!r}; it has: {', '.join(known)}")
        good = isinstance(sides, dict) and sides and set(sides) <= {"min", "max"}
        if not good or not all(isinstance(side, int | float) and not isinstance(side, bool) for side in sides.values()):
            raise UsageError(f"{path}: the bounds of {name}.{number} are {sides!r}; write {{min = 0.1}}, {{max = 0.2}} or both")
        yield Bound(name, number, sides.get("min"), sides.get("max"))


def check(bounds: Sequence[Bound], numbers: Mapping[str, Mapping[str, float | None]]) -> list[Checked]:
    """Check every bound against the numbers, by analysis and name. Raises UsageError for an analysis without numbers."""
    if missing := sorted({bound.analysis for bound in bounds} - set(numbers)):
        raise UsageError(
            f"there are bounds for {', '.join(missing)}, but no result of it; run `critic-prm analyze {missing[0]}` with --json"
        )
    pairs = [(bound, numbers[bound.analysis].get(bound.number)) for bound in bounds]
    return [Checked(bound, value, bound.holds(value)) for bound, value in pairs]


def numbers_in(rows: Sequence[tuple[Mapping[str, Any], str]]) -> dict[str, Mapping[str, float | None]]:
    """The numbers in results printed by `--json`, each given with its location. Of several results of one analysis the last
    counts. Raises InputError for rows that are not results."""
    found: dict[str, Mapping[str, float | None]] = {}
    for row, where in rows:
        name, numbers = row.get("analysis"), row.get("numbers")
        if not isinstance(name, str) or not isinstance(numbers, dict):
            raise InputError(where, "this is not the result of an analysis", "write one with: critic-prm analyze ... --json")
        found[name] = numbers
    return found


def table_of(checked: Sequence[Checked]) -> Table:
    """A table of all bounds, violated ones first."""
    ordered = sorted(checked, key=lambda one: one.holds)
    rows = tuple(
        (f"{one.bound.analysis}.{one.bound.number}", one.value, one.bound.words, "holds" if one.holds else "BROKEN")
        for one in ordered
    )
    return Table("Guardrails", ("number", "is", "must be", ""), rows)
