"""Report how many solutions two label sources agreed on, by class and by position of the first error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from critic_prm.datasets.account import share
from critic_prm.datasets.propensity import Propensity, Stratum, bin_name

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
    return {
        kind: {"offered": n, "kept": kept.get(kind, 0), "rate": kept.get(kind, 0) / n} for kind, n in sorted(offered.items())
    }


def _positions(tally: Tally, view: str) -> dict[str, Any]:
    """The acceptance rate of each stratum: erroneous solutions by position of the first error (from 1), correct ones by
    length."""
    table: dict[str, Any] = {}
    for (kind, number), n in sorted(tally.offered[view].items()):
        kept = tally.kept[view][kind, number]
        table.setdefault(kind, {})[bin_name(number)] = {"offered": n, "kept": kept, "rate": kept / n}
    return table


def acceptance_lines(report: Mapping[str, Any]) -> list[str]:
    """The effect of the consensus on the classes, as text."""
    rates = ", ".join(
        f"{entry['rate']:.1%} of the {kind} ({entry['kept']:,} of {entry['offered']:,})"
        for kind, entry in report["acceptance"].items()
    )
    whose = {"gold": "gold", "a": "A", "b": "B"}[report["classes_by"]]
    said = [f"joined {report['joined']:,}; kept {rates or 'nothing'}, classes by {whose}"]
    for kind, table in report["acceptance_by_position"].items():
        what = "first error at step" if kind == "erroneous" else "of so many steps"
        said.append(f"{kind}, {what}: " + ", ".join(f"{name}: {entry['rate']:.0%}" for name, entry in table.items()))
    if checked := report["agreed_labels_that_are_gold"]:
        shown = ", ".join(f"{one['rate']:.1%} of the labels {kind}" for kind, one in checked.items())
        said.append(f"where gold is known, {shown} are it")
    shares = report["share_erroneous"]
    if shares["offered"] is not None and shares["kept"] is not None:
        shown = f"share of erroneous solutions: {shares['offered']:.1%} offered, {shares['kept']:.1%} kept"
        if report["options"]["debias"] != "none" and shares["written"] is not None:
            shown += f", {shares['written']:.1%} after {report['options']['debias']}"
            shown += f" (effective rows {report['weights']['effective_rows']:,.0f})"
        elif abs(shares["offered"] - shares["kept"]) > 0.02:
            shown += "; --reweight or --resample gives the classes their shares back"
        said.append(shown)
    if lost := report["weights"]["classes_lost"]:
        said.append(f"warning: nothing {' or '.join(lost)} was kept; no weight brings it back")
    return said
