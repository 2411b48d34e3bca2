"""Describe a dataset: statistics, tables, plots and the dataset card."""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from critic_prm.data.hashing import problem_key
from critic_prm.datasets.rows import CLASSES, Row, read_rows
from critic_prm.errors import InputError, UsageError
from critic_prm.option import Option
from critic_prm.registry import extra

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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
        "sources": {
            name: {kind: kinds[kind] for kind in CLASSES if kinds[kind]} for name, kinds in sorted(tally.sources.items())
        },
        "steps": {name: tally.labels[name] for name in ("good", "bad", "unlabelled")},
        "first_error_at_step": {f"{step}{'+' * (step == LAST)}": n for step, n in sorted(tally.first_errors.items())},
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
    say = partial(console.print, highlight=False, soft_wrap=True)
    say(
        f"{summary['rows']:,} rows, {summary['problems']:,} problems, {summary['distinct_solutions']:,} distinct solutions;"
        f" steps: {', '.join(f'{n:,} {name}' for name, n in summary['steps'].items())}"
    )
    kinds = list(summary["classes"])
    sources = _table("source", *kinds, "rows")
    for name, counts in summary["sources"].items():
        sources.add_row(name, *(f"{counts.get(kind, 0):,}" for kind in kinds), f"{sum(counts.values()):,}")
    if len(summary["sources"]) > 1:
        sources.add_row("all", *(f"{n:,}" for n in summary["classes"].values()), f"{summary['rows']:,}")
    console.print(sources)
    lengths = _table("length", "mean", "median", "95%", "most")
    units = {"steps": "steps", "characters": "characters of a solution", "problem": "characters of a problem"}
    units["critique"] = "characters of a critique"
    for name, values in summary["length"].items():
        if values:
            lengths.add_row(units[name], *(f"{value:,.1f}" if q == "mean" else f"{value:,}" for q, value in values.items()))
    console.print(lengths)
    for what, counts in (("first error at step", summary["first_error_at_step"]), ("status", summary.get("status"))):
        if counts:
            say(f"{what}: {', '.join(f'{name}: {n:,}' for name, n in counts.items())}")
    if weights := summary.get("weights"):
        worth = f"{weights['rows']:,} rows are worth {weights['effective_rows']:,.0f}"
        say(f"weights: {worth}, the heaviest weighs {weights['largest']:g}")


def _table(first: str, *others: str) -> Table:
    """An empty table whose columns after the first hold numbers."""
    from rich.table import Table

    table = Table(first, box=None)
    for name in others:
        table.add_column(name, justify="right")
    return table


def print_dataset(summary: Mapping[str, Any], out: Path, console: Console) -> None:
    """Print a training set's contents, one table row per split, then the rows left out by reason and class, then
    the warnings."""
    from critic_prm.datasets.decontaminate import contamination_line

    say = partial(console.print, highlight=False, soft_wrap=True)
    say(f"{out}: kept {summary['kept']} of {summary['rows']} rows")
    columns = ("problems", "rows", "erroneous", "correct", "partial", "good steps", "bad steps")
    table = _table("split", *columns)
    for name, split in summary["splits"].items():
        counts = {**split, "good steps": split["steps"]["good"], "bad steps": split["steps"]["bad"]}
        table.add_row(name, *(f"{counts[column]:,}" for column in columns))
    console.print(table)
    for reason, kinds in summary["dropped"].items():
        detail = ", ".join(f"{count} {kind}" for kind, count in kinds.items() if kind != "unknown")
        say(f"left out: {sum(kinds.values())} {reason}" + (f" ({detail})" if detail else ""))
    if moved := summary["moved_for_classes"]:
        say(f"moved {moved} problem{'s' if moved > 1 else ''} so that every split has erroneous and correct solutions")
    if summary["excluded"]:
        say(contamination_line(summary["excluded"]))
    for warning in summary["warnings"]:
        say(f"warning: {warning}", style="yellow")


_COLOURS = {"erroneous": "#c44e52", "correct": "#4c9a6a", "partial": "#8c8c8c", "unlabelled": "#d0d0d0"}

_UNDATED: Mapping[str, Mapping[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def plot_statistics(summary: Mapping[str, Any], path: str | Path) -> None:
    """Draw the result of `statistics` to `path` as PNG, SVG or PDF, by suffix. Raises ConfigError if matplotlib is missing."""
    extra("matplotlib", "plot", f"drawing {path}")
    figure = extra("matplotlib.figure", "plot", f"drawing {path}").Figure(figsize=(11, 7), layout="constrained")
    sources, errors, steps, chances = figure.subplots(2, 2).ravel()
    names = list(summary["sources"])
    left = [0] * len(names)
    for kind in CLASSES:
        counts = [summary["sources"][name].get(kind, 0) for name in names]
        if any(counts):
            sources.barh(names, counts, left=left, color=_COLOURS[kind], label=kind)
            left = [a + b for a, b in zip(left, counts, strict=True)]
    sources.invert_yaxis()
    sources.set(title="solutions by source", xlabel="rows")
    sources.legend()
    places = summary["first_error_at_step"]
    errors.bar(list(places), list(places.values()), color=_COLOURS["erroneous"])
    errors.set(title="first error at step", ylabel="solutions")
    labels = summary["steps"]
    steps.bar(list(labels), list(labels.values()), color=["#4c9a6a", "#c44e52", "#d0d0d0"])
    steps.set(title="labels of steps", ylabel="steps")
    chances.bar([i / 10 + 0.05 for i in range(10)], summary["p_correct"], width=0.09, color="#4878a8")
    chances.set(title="P(step is correct)", xlabel="P(correct)", ylabel="steps")
    try:
        # no date: equal counts give identical files
        figure.savefig(path, dpi=120, metadata=_UNDATED.get(Path(path).suffix))
    except (OSError, ValueError) as error:
        raise InputError(
            str(path), f"the plot cannot be written: {error}", "use .png, .svg or .pdf in a folder there is"
        ) from None


FEATURES: tuple[tuple[str, str, str], ...] = (
    ("prompt", "dtype: string", "the problem"),
    ("completions", "list: string", "the steps of one solution, in order"),
    ("labels", "list: float64", "P(the step is correct) from 0 to 1 for each step; null where nothing is known of it"),
    ("votes", "list: {list: int64}", "[k, n] for each step: k of n judgements called it correct; [0, 0] without any"),
    ("weight", "dtype: float64", "what the row weighs in a loss"),
    ("id", "dtype: string", "which solution it is"),
    ("source", "dtype: string", "where it is from"),
    ("observations", "list: string", "what a tool answered after each step, null where none did; null where no step has any"),
    ("first_error", "dtype: int64", "the first error, -1 without one; null where it follows from the labels or is not known"),
)
"""The columns of a training row: name, type in dataset-card notation, meaning."""

SPLITS = {"train": "train", "dev": "validation", "validation": "validation", "test": "test"}
_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))


@dataclass(frozen=True, slots=True)
class About:
    """Metadata of a card that cannot be counted from files. Empty fields are omitted."""

    name: str = ""
    """Name of the data set in the card."""
    license: str = ""
    """Licence stated in the card, such as mit; default: none."""
    languages: Annotated[tuple[str, ...], Option(("--language",))] = ()
    """Language code for the card; may be repeated."""


def write_card(folder: str | Path, about: About | None = None) -> Path:
    """Write README.md into a folder with a training set's splits (train.jsonl, or data/train-*), and return its path.

    All figures are counted from the files. Raises InputError for unreadable rows, UsageError for a folder without splits.
    """
    place = Path(folder)
    found = dict(_splits(place))
    if not found:
        raise UsageError(f"{place} contains no train.jsonl, dev.jsonl or test.jsonl, nor data/train-*; is it a training set?")
    counted = {split: statistics([file]) for split, file in found.items()}
    counted = {split: summary for split, summary in counted.items() if summary["rows"]}
    files = {split: found[split].relative_to(place).as_posix() for split in counted}
    account = place / "dataset.json"
    made = json.loads(account.read_text("utf-8")) if account.is_file() else None
    text = card(about or About(), files, counted, made)
    path = place / "README.md"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}", "choose another folder") from None
    return path


def card(
    about: About, files: Mapping[str, str], counted: Mapping[str, Mapping[str, Any]], made: Mapping[str, Any] | None = None
) -> str:
    """The card's text. `files` and `counted` are by split; `made` is the set's dataset.json, if known."""
    from jinja2 import Environment, StrictUndefined

    rows = sum(summary["rows"] for summary in counted.values())
    sources: Counter[str] = Counter()
    for summary in counted.values():
        sources.update({name: sum(kinds.values()) for name, kinds in summary["sources"].items()})
    environment = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    environment.filters |= {"json": partial(json.dumps, ensure_ascii=False), "count": "{:,}".format}
    return environment.from_string(Path(__file__).with_name("card.md.jinja").read_text("utf-8")).render(
        about=about,
        files=files,
        counted=counted,
        made=made,
        rows=rows,
        size=next((name for limit, name in _SIZES if rows < limit), "n>10M"),
        sources=sorted(sources.items()),
        features=FEATURES,
    )


def _splits(folder: Path) -> Iterator[tuple[str, Path]]:
    for name, split in SPLITS.items():
        for pattern in (f"{name}.jsonl", f"{name}.parquet", f"data/{name}-*"):
            yield from ((split, path) for path in sorted(folder.glob(pattern))[:1] if path.stat().st_size)
