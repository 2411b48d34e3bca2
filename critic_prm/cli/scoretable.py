"""Print an evaluation as a table and notes for a terminal of 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from critic_prm.terminal import percent, plain_table

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
    scores, rows = evaluation.scores, []
    for subset in scores.subsets:
        share = sum(subset.unusable.values()) / subset.solutions
        rows.append((subset.name, f"{subset.solutions:,}", *_cells(subset.metrics, columns), f"{share:.1%}"))
    if len(scores.subsets) > 1:
        solutions = sum(subset.solutions for subset in scores.subsets)
        unusable = sum(sum(s.unusable.values()) / s.solutions for s in scores.subsets) / len(scores.subsets)
        rows.append(("mean", f"{solutions:,}", *_cells(scores.mean, columns), f"{unusable:.1%}"))
    first, *others = (NAMES[name] for name in columns)
    table = plain_table(("", "n", f"{first} [95%]", *others, "unusable"), rows, gap=1)
    table.columns[1].no_wrap = table.columns[-1].no_wrap = True
    table.columns[2].min_width = 18
    if len(scores.subsets) > 1:
        table.rows[-1].style = "bold"
    return table


def _cells(metrics: Mapping[str, Metric], columns: tuple[str, ...]) -> Iterator[str]:
    first, *others = columns
    yield percent(metrics[first].value, metrics[first].low, metrics[first].high)
    for name in others:
        value = metrics[name].value
        yield percent(value) if name in PERCENT or value is None else f"{value:.3f}"


def _notes(evaluation: Evaluation, sizes: Mapping[str, int]) -> Iterator[str]:
    scores = evaluation.scores
    binary = [scores.mean[f"binary_f1_{positive}"].value for positive in ("correct", "error")]
    shown = [percent(value) for value in binary]
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
    differences = dict(comparison.subsets)
    if len(differences) > 1:
        differences["mean"] = comparison.mean
    rows = []
    for name, one in differences.items():
        cell = percent(one.difference, one.interval.low, one.interval.high, "+")
        rows.append((name, cell, "-" if one.p is None else f"{one.p:.4f}"))
    console.print(f"Compared with {other} on {comparison.matched:,} solutions that both have judged", highlight=False)
    console.print(plain_table(("", "F1 difference [95%]", "p"), rows))
    if comparison.unmatched:
        console.print(f"{comparison.unmatched:,} solutions have no counterpart with the same gold label", style="dim")
