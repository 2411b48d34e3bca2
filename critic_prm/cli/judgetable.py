"""Print scores and attack results of judges as tables, with an explanation of the columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from rich.table import Table

    from critic_prm.cli.judging_runs import Compared, Pair
    from critic_prm.evaluate.attacks import Resistance
    from critic_prm.evaluate.judges import JudgeScore
    from critic_prm.metrics.scorecard import Metric

COLUMNS = {
    "F1 [95%]": "f1",
    "err": "accuracy_erroneous",
    "corr": "accuracy_correct",
    "binary": "binary_f1_correct",
    "steps": "step_accuracy",
    "ECE": "ece",
}


def print_worths(worths: Sequence[JudgeScore], compared: Compared) -> None:
    """Print one row per judge and style, then the pairwise comparisons, the unusable judgements and the column legend."""

    console = safe_console()
    several = len({one.judge for one in worths}) > 1
    names = [f"{one.judge} {one.style}" if several else one.style for one in worths]
    table = _worths_table(worths, names)
    if console.measure(table, options=console.options.update(max_width=10_000)).maximum > console.width:
        # A name broken over two lines cannot be copied, so numbers replace names that do not fit.
        for number, name in enumerate(names, 1):
            console.print(f"{number}: {name}", highlight=False, markup=False, soft_wrap=True)
        table = _worths_table(worths, [str(number) for number in range(1, len(names) + 1)])
    console.print(table)
    for a, b, found in compared:
        low, high, p = found.mean.interval.low, found.mean.interval.high, found.mean.p
        interval = f" [{100 * low:+.1f}, {100 * high:+.1f}]" if low is not None and high is not None else ""
        chance = "" if p is None else f", p {p:.4f}"
        pair = " minus ".join(f"{w.judge} {w.style}" if several else w.style for w in (a, b))
        console.print(f"F1 of {pair}: {100 * found.mean.difference:+.1f}{interval}{chance}", highlight=False, markup=False)
    for line in _notes(worths):
        console.print(line, style="dim", highlight=False, markup=False)


def _worths_table(worths: Sequence[JudgeScore], names: Sequence[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in (*COLUMNS, "unread", "tokens", "USD"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, one in zip(names, worths, strict=True):
        mean = one.evaluation.scores.mean
        cells = [_cell(mean[metric], interval=place == 0) for place, metric in enumerate(COLUMNS.values())]
        table.add_row(Text(name), *cells, f"{1 - one.statuses.get('ok', 0.0):.1%}", _tokens(one), _usd(one.usd))
    return table


def print_resistance(found: Sequence[tuple[Pair, Resistance]]) -> None:
    """Print one row per attack for each judge, and the share of attacks that succeeded."""
    from rich.table import Table

    console = safe_console()
    for (judge, style), one in found:
        if len(found) > 1:  # with one judge, its name was already printed at the start
            console.print(f"{judge} with {style}", highlight=False, markup=False, soft_wrap=True)
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column("attack")
        for name in ("held", "fell", "moved", "unusable"):
            table.add_column(name, justify="right")
        for name, counts in one.outcomes.items():
            table.add_row(name, *(f"{counts.get(outcome, 0):,}" for outcome in ("held", "fell", "moved", "unusable")))
        console.print(table)
        console.print(
            f"The error was found in {one.found:,} of {one.erroneous:,} erroneous solutions; only those were attacked.",
            highlight=False,
        )
        if one.fell is not None:
            low, high = one.interval.low, one.interval.high
            interval = f" [{low:.1%}, {high:.1%}]" if low is not None and high is not None else ""
            control = "" if one.by_itself is None else f"; with the control, {one.by_itself:.1%}"
            console.print(
                f"The wrong step passed in {one.fell:.1%}{interval} of the attacks that could be read{control}.",
                highlight=False,
            )
    console.print(
        "held: the same first error; fell: a later one or none; moved: an earlier one. The control is harmless:"
        " what changes with it changes by chance.",
        style="dim",
        highlight=False,
    )


def _cell(metric: Metric, *, interval: bool) -> str:
    if metric.value is None:
        return "-"
    cell = f"{100 * metric.value:.1f}"
    return (
        f"{cell} [{100 * metric.low:.1f}, {100 * metric.high:.1f}]"
        if interval and metric.low is not None and metric.high is not None
        else cell
    )


def _tokens(one: JudgeScore) -> str:
    return "-" if one.input_tokens is None or one.output_tokens is None else f"{one.input_tokens:,.0f}+{one.output_tokens:,.0f}"


def _usd(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"


def _notes(worths: Sequence[JudgeScore]) -> list[str]:
    lines = []
    for one in worths:
        bad = Counter({status: share for status, share in one.statuses.items() if status != "ok"})
        if bad:
            shares = ", ".join(f"{status} {share:.1%}" for status, share in bad.most_common())
            lines.append(f"{one.judge} {one.style}, judgements that could not be used: {shares}")
        more = {word: n for word, n in one.how.items() if word not in ("plain", "schema")}
        if more:
            lines.append(
                f"{one.judge} {one.style}, verdicts got otherwise: " + ", ".join(f"{w} {n:,}" for w, n in more.items())
            )
    scores = worths[0].evaluation.scores
    lines += [
        "F1, err, corr: ProcessBench's; binary: any error or none, right solutions positive; steps: called what they are.",
        "Unusable judgements count as wrong. tokens: in+out a solution, whenever they were paid. ECE in percent.",
        f"Means over {len(scores.subsets)} subsets; intervals and p: bootstrap by problem, {scores.replicates:,} resamples, not"
        " adjusted for the number of comparisons.",
    ]
    return lines
