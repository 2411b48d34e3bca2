"""Count labels by class, first-error positions, lengths, sources and repeated problems in dataset files."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from critic_prm.data.hashing import problem_key
from critic_prm.datasets.rows import CLASSES, Row, read_rows

if TYPE_CHECKING:
    from rich.console import Console

LAST = 15
"""First errors at this step or later are counted together."""


@dataclass(slots=True)
class _Tally:
    classes: Counter[str] = field(default_factory=Counter)
    sources: dict[str, Counter[str]] = field(default_factory=dict)
    statuses: Counter[str] = field(default_factory=Counter)
    first_errors: Counter[int] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    deciles: Counter[int] = field(default_factory=Counter)
    lengths: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q") for name in ("steps", "characters", "problem")}
    )
    problems: set[bytes] = field(default_factory=set)
    contents: set[bytes] = field(default_factory=set)
    weights: array[float] = field(default_factory=lambda: array("d"))
    critiques: array[int] = field(default_factory=lambda: array("q"))
    judgements: Counter[int] = field(default_factory=Counter)


def statistics(paths: Sequence[str | Path]) -> dict[str, Any]:
    """Statistics of the files as a JSON object. Rows are streamed; about 100 bytes per row are held. Raises InputError."""
    tally = _Tally()
    files = []
    for path in paths:
        before = tally.classes.total()
        for row in read_rows(path):
            _count(tally, row, Path(path).name.partition(".")[0])
        files.append({"name": Path(path).name, "rows": tally.classes.total() - before})
    rows = tally.classes.total()
    summary: dict[str, Any] = {
        "files": files,
        "rows": rows,
        "problems": len(tally.problems),
        "distinct_solutions": len(tally.contents),
        "classes": {kind: tally.classes[kind] for kind in CLASSES if tally.classes[kind]},
        "sources": {name: _ordered(kinds) for name, kinds in sorted(tally.sources.items())},
        "steps": {name: tally.labels[name] for name in ("good", "bad", "unlabelled")},
        "first_error_at_step": {_place(step): tally.first_errors[step] for step in sorted(tally.first_errors)},
        "p_correct": [tally.deciles[decile] for decile in range(10)],
        "length": {name: _quantiles(values) for name, values in tally.lengths.items()},
    }
    if tally.statuses:
        summary["status"] = dict(tally.statuses.most_common())
    if tally.judgements:
        summary["judgements_a_row"] = {str(n): tally.judgements[n] for n in sorted(tally.judgements)}
        summary["length"]["critique"] = _quantiles(tally.critiques)
    if tally.weights:
        total, squares = sum(tally.weights), sum(w * w for w in tally.weights)
        summary["weights"] = {
            "rows": len(tally.weights),
            "effective_rows": total * total / squares if squares else 0.0,
            "largest": max(tally.weights),
        }
    return summary


def _count(tally: _Tally, row: Row, file: str) -> None:
    kind, trajectory = row.kind, row.trajectory
    tally.classes[kind] += 1
    source = str(trajectory.extra.get("source") or trajectory.meta.get("source") or file)
    tally.sources.setdefault(source, Counter())[kind] += 1
    if row.first_error is not None and row.first_error >= 0:
        tally.first_errors[min(row.first_error + 1, LAST)] += 1
    for p in row.labels:
        tally.labels["unlabelled" if p is None else "good" if p >= 0.5 else "bad"] += 1
        if p is not None:
            tally.deciles[min(9, int(p * 10))] += 1
    tally.lengths["steps"].append(len(trajectory.steps))
    tally.lengths["problem"].append(len(trajectory.problem))
    tally.lengths["characters"].append(sum(len(text) for text in trajectory.texts))
    tally.problems.add(bytes.fromhex(problem_key(trajectory.problem)))
    tally.contents.add(bytes.fromhex(row.content))
    if row.shape == "label file":
        tally.statuses[row.data["status"]] += 1
        judgements = row.data.get("judgements") or ()
        tally.judgements[len(judgements)] += 1
        for judgement in judgements:
            tally.critiques.extend(len(verdict.get("critique") or "") for verdict in judgement.get("verdicts") or ())
    if isinstance(weight := row.data.get("weight"), int | float):
        tally.weights.append(weight)


def _place(step: int) -> str:
    return f"{step}+" if step == LAST else str(step)


def _ordered(kinds: Mapping[str, int]) -> dict[str, int]:
    return {kind: kinds[kind] for kind in CLASSES if kinds.get(kind)}


def _quantiles(values: Sequence[int]) -> dict[str, float]:
    """Mean, median, 95th percentile and maximum."""
    if not values:
        return {}
    ranked = sorted(values)
    return {
        "mean": sum(ranked) / len(ranked),
        "median": ranked[(len(ranked) - 1) // 2],
        "95%": ranked[(len(ranked) - 1) * 95 // 100],
        "most": ranked[-1],
    }


def print_statistics(summary: Mapping[str, Any], console: Console) -> None:
    """Print the statistics as tables that fit a terminal."""
    from rich.table import Table

    console.print(
        f"{summary['rows']:,} rows, {summary['problems']:,} problems, {summary['distinct_solutions']:,} distinct solutions;"
        f" steps: {', '.join(f'{n:,} {name}' for name, n in summary['steps'].items())}",
        highlight=False,
        soft_wrap=True,
    )
    kinds = list(summary["classes"])
    table = Table("source", box=None)
    for kind in (*kinds, "rows"):
        table.add_column(kind, justify="right")
    for name, counts in summary["sources"].items():
        table.add_row(name, *(f"{counts.get(kind, 0):,}" for kind in kinds), f"{sum(counts.values()):,}")
    if len(summary["sources"]) > 1:
        table.add_row("all", *(f"{n:,}" for n in summary["classes"].values()), f"{summary['rows']:,}")
    console.print(table)
    lengths = Table("length", box=None)
    for name in ("mean", "median", "95%", "most"):
        lengths.add_column(name, justify="right")
    units = {"steps": "steps", "characters": "characters of a solution", "problem": "characters of a problem"}
    units["critique"] = "characters of a critique"
    for name, values in summary["length"].items():
        if values:
            lengths.add_row(units[name], *(f"{value:,.1f}" if q == "mean" else f"{value:,}" for q, value in values.items()))
    console.print(lengths)
    for what, counts in (("first error at step", summary["first_error_at_step"]), ("status", summary.get("status"))):
        if counts:
            console.print(f"{what}: {_said(counts.items())}", highlight=False, soft_wrap=True)
    if weights := summary.get("weights"):
        console.print(
            f"weights: {weights['rows']:,} rows are worth {weights['effective_rows']:,.0f}, the heaviest weighs"
            f" {weights['largest']:g}",
            highlight=False,
            soft_wrap=True,
        )


def _said(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name}: {n:,}" for name, n in counts)
