"""Common interface of the analyses: named numbers, effects with intervals, tables, and bounds on the numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from critic_prm import registry
from critic_prm.data.trajectory import Trajectory
from critic_prm.data.trust import read_toml
from critic_prm.errors import InputError, UsageError
from critic_prm.metrics.bootstrap import REPLICATES, Clusters, bootstrap, of_sums, ratio, two_sided
from critic_prm.metrics.scores import Array
from critic_prm.terminal import interval

HIDDEN = "(this step is not shown)"
"""Text in place of a step that is hidden from the critic."""

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


def numbers_of(name: str) -> Mapping[str, str]:
    """The meaning of an analysis' numbers, by name. Raises UsageError for an unknown analysis."""
    module: Any = registry.load("analysis", name)
    numbers: Mapping[str, str] = module.NUMBERS
    return numbers


def analysis_to_json(analysis: Analysis) -> dict[str, Any]:
    """Everything except the tables, which show the same numbers for reading."""
    row = asdict(analysis)
    del row["tables"]
    return {"analysis": row.pop("name"), **row}


def share(flags: Iterable[bool]) -> float | None:
    """The share of true flags; None if there are none."""
    return mean(map(float, flags))


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known; None if there are none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def first_field(trajectory: Trajectory, *fields: str) -> str | None:
    """The first of these fields that is present in the row or its meta, as text."""
    values = (trajectory.extra.get(name, trajectory.meta.get(name)) for name in fields)
    return next((str(value) for value in values if value is not None), None)


def shortened(text: str, length: int = 30) -> str:
    """The beginning of a text on one line."""
    text = " ".join(text.split())
    return text[: length - 3] + "..." if len(text) > length else text


def spread_out(items: Sequence[T], most: int) -> list[T]:
    """At most `most` items, evenly spaced, since input files are often sorted."""
    step = max(1.0, len(items) / most)
    return [items[int(place * step)] for place in range(min(most, len(items)))]


@dataclass(frozen=True, slots=True)
class Effect:
    """A value with its 95% interval over problems and a two-sided p-value against 0; None where undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n: int = 0

    @property
    def interval(self) -> str:
        """The interval as text; "" if unknown."""
        return interval(self.low, self.high, ".3f")


def effect(
    problems: Sequence[Hashable],
    rows: ArrayLike,
    statistic: Callable[[Array], Array],
    *,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Effect:
    """A statistic of summed feature rows (n, f), with interval and p-value from resampling whole problems."""
    features = np.asarray(rows, dtype=np.float64)
    n = len(features)
    if not n:
        return Effect(None)
    value = float(statistic(features.sum(axis=0)))
    if np.isnan(value):
        return Effect(None, n=n)
    clusters = Clusters(problems)
    around, values = bootstrap(of_sums(clusters.sums(features), statistic), clusters.count, replicates, seed)
    return Effect(value, around.low, around.high, None if values is None else two_sided(values), n)


def mean_effect(
    problems: Sequence[Hashable], values: Sequence[float], *, replicates: int = REPLICATES, seed: int = 0
) -> Effect:
    """The mean of values, tested against 0."""
    return effect(problems, [(1.0, value) for value in values], ratio, replicates=replicates, seed=seed)


def correct(p_values: Sequence[float | None]) -> list[float | None]:
    """p-values corrected for multiple testing, controlling the false discovery rate (Benjamini and Hochberg 1995). None stays
    None and is not counted as a test."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    corrected: list[float | None] = [None] * len(p_values)
    lowest = 1.0
    for rank, (p, place) in reversed(list(enumerate(known, 1))):
        corrected[place] = lowest = min(lowest, p * len(known) / rank)
    return corrected


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
        raise InputError(str(path), "it has no bounds", "add one, for instance [drift] psi = {max = 0.2}")
    return bounds


def _bounds(path: str, name: str, table: Any) -> Iterator[Bound]:
    analyses = registry.names("analysis")
    if name not in analyses or not isinstance(table, dict):
        raise UsageError(f"{path}: there is no analysis {name!r}; available: {', '.join(analyses)}")
    numbers = numbers_of(name)
    for number, sides in table.items():
        if number not in numbers:
            raise UsageError(f"{path}: {name} has no number {number!r}; it has: {', '.join(numbers)}")
        valid = isinstance(sides, dict) and sides and set(sides) <= {"min", "max"}
        if not valid or not all(isinstance(side, int | float) and not isinstance(side, bool) for side in sides.values()):
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


def numbers_in(rows: Iterable[tuple[Mapping[str, Any], str]]) -> dict[str, Mapping[str, float | None]]:
    """The numbers in results printed by `--json`, each given with its location. Of several results of one analysis the last
    counts. Raises InputError for rows that are not results."""
    results: dict[str, Mapping[str, float | None]] = {}
    for row, where in rows:
        name, numbers = row.get("analysis"), row.get("numbers")
        if not isinstance(name, str) or not isinstance(numbers, dict):
            raise InputError(where, "this is not the result of an analysis", "write one with: critic-prm analyze ... --json")
        results[name] = numbers
    return results


def table_of(checked: Sequence[Checked]) -> Table:
    """A table of all bounds, violated ones first."""
    rows = [
        (f"{one.bound.analysis}.{one.bound.number}", one.value, one.bound.words, "met" if one.holds else "NOT MET")
        for one in sorted(checked, key=lambda one: one.holds)
    ]
    return Table("Guardrails", ("number", "is", "must be", ""), tuple(rows))
