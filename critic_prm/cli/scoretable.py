"""Print an evaluation as a table and notes for a terminal of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from critic_prm.evaluate.run import Evaluation
    from critic_prm.metrics.scorecard import Comparison, Metric

NAMES = {
    "f1": "F1",
    "f1_oracle": "F1 (oracle threshold)",
    "prm_score": "PRMScore",
    "accuracy_erroneous": "err",
    "accuracy_correct": "corr",
    "auroc": "AUROC",
    "ece": "ECE",
    "step_accuracy": "steps",
}
PERCENT = {"f1", "f1_oracle", "prm_score", "accuracy_erroneous", "accuracy_correct", "step_accuracy"}

MEANINGS = {
    "f1": "F1: ProcessBench's, the harmonic mean of err (first error found exactly) and corr (right solutions left alone)",
    "prm_score": "PRMScore: the mean of the F1 of good and of bad steps; steps: share of steps called what they are",
}


def print_evaluation(evaluation: Evaluation, console: Console, sizes: Mapping[str, int], headline: str = "f1") -> None:
    """Print one row per subset and the unweighted mean, then a legend and caveats."""
    oracle = evaluation.scores.threshold_from == "oracle"
    f1 = "f1_oracle" if oracle else "f1"
    if headline == "prm_score":
        columns = ("prm_score", f1, "step_accuracy", "auroc", "ece")
    else:
        columns = (f1, "accuracy_erroneous", "accuracy_correct", "auroc", "ece")
    console.print(_table(evaluation, columns))
    for line in (MEANINGS[headline], *_notes(evaluation, sizes)):
        console.print(line, style="dim", highlight=False)


def _table(evaluation: Evaluation, columns: tuple[str, ...]) -> Table:
    from rich.table import Table

    scores = evaluation.scores
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("", overflow="fold")
    table.add_column("n", justify="right", no_wrap=True)
    for place, name in enumerate(columns):
        heading = NAMES[name] + (" [95%]" if place == 0 else "")
        table.add_column(heading, justify="right", min_width=18 if place == 0 else None)
    table.add_column("unusable", justify="right", no_wrap=True)
    for subset in scores.subsets:
        share = sum(subset.unusable.values()) / subset.solutions
        table.add_row(subset.name, f"{subset.solutions:,}", *_cells(subset.metrics, columns), f"{share:.1%}")
    if len(scores.subsets) > 1:
        solutions = sum(subset.solutions for subset in scores.subsets)
        unusable = sum(sum(s.unusable.values()) / s.solutions for s in scores.subsets) / len(scores.subsets)
        table.add_row("mean", f"{solutions:,}", *_cells(scores.mean, columns), f"{unusable:.1%}", style="bold")
    return table


def _cells(metrics: Mapping[str, Metric], columns: tuple[str, ...]) -> Iterator[str]:
    for place, name in enumerate(columns):
        metric = metrics[name]
        cell = _number(name, metric.value)
        if place == 0 and metric.value is not None and metric.low is not None:
            cell += f" [{_number(name, metric.low)}, {_number(name, metric.high)}]"
        yield cell


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{100 * value:.1f}" if name in PERCENT else f"{value:.3f}"


def _notes(evaluation: Evaluation, sizes: Mapping[str, int]) -> Iterator[str]:
    scores = evaluation.scores
    binary = [scores.mean[f"binary_f1_{positive}"].value for positive in ("correct", "error")]
    shown = [_number("f1", value) for value in binary]
    yield f"Binary F1 (any error or none; ThinkPRM's): {shown[0]} with correct, {shown[1]} with erroneous solutions as positive"
    samples = f", {evaluation.samples} samples" if evaluation.samples > 1 else ""
    yield f"First errors: {evaluation.threshold}{samples}. Intervals: bootstrap by problem, {scores.replicates:,} resamples"
    unusable = sum((Counter(subset.unusable) for subset in scores.subsets), Counter[str]())
    if unusable:
        detail = ", ".join(f"{count:,} {status}" for status, count in unusable.most_common())
        yield f"Unusable judgements, counted as wrong: {detail}"
    judged, steps = sum(s.judged for s in scores.subsets), sum(s.steps for s in scores.subsets)
    if judged < steps:
        yield f"AUROC and ECE rest on the {judged:,} of {steps:,} labelled steps that got a score"
    short = [f"{s.name} {s.solutions:,} of {sizes[s.name]:,}" for s in scores.subsets if s.solutions < sizes.get(s.name, 0)]
    if short:
        yield f"Not the whole benchmark, so not comparable with published figures: {', '.join(short)}"
    if evaluation.without_gold:
        yield f"{evaluation.without_gold:,} solutions without a gold label were not judged"
    tokens = evaluation.run.get("tokens")
    if isinstance(tokens, Mapping):
        cost = evaluation.run.get("cost_usd")
        price = "price unknown" if cost is None else f"${cost:.4f}"
        yield f"Tokens bought now: {tokens['input']:,} in, {tokens['output']:,} out, {price}"


def print_comparison(comparison: Comparison, other: str, console: Console) -> None:
    """Print the difference in F1 to the other run, one row per subset."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("", "F1 difference [95%]", "p"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=bool(heading))
    rows = dict(comparison.subsets)
    if len(rows) > 1:
        rows["mean"] = comparison.mean
    for name, difference in rows.items():
        low, high = difference.interval.low, difference.interval.high
        cell = f"{100 * difference.difference:+.1f}"
        cell += f" [{100 * low:+.1f}, {100 * high:+.1f}]" if low is not None and high is not None else ""
        table.add_row(name, cell, "-" if difference.p is None else f"{difference.p:.4f}")
    console.print(f"Compared with {other} on {comparison.matched:,} solutions that both have judged", highlight=False)
    console.print(table)
    if comparison.unmatched:
        console.print(f"{comparison.unmatched:,} solutions have no counterpart with the same gold label", style="dim")
