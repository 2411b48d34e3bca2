"""critic-prm judge-eval: compare judges and styles by accuracy and cost on step-labelled data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.fields import Fields
from critic_prm.cli.options import FieldNames, JsonOutput
from critic_prm.engine.options import JudgeOptions
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.terminal import interval, note, percent, plain_table, safe_console

if TYPE_CHECKING:
    from rich.table import Table

    from critic_prm.data import Critic
    from critic_prm.evaluate.judges import ComparedPair, JudgeScore, Outcome, Resistance

COLUMNS = {
    "F1 [95%]": "f1",
    "err": "accuracy_erroneous",
    "corr": "accuracy_correct",
    "binary": "binary_f1_correct",
    "steps": "step_accuracy",
    "ECE": "ece",
}
OUTCOMES: tuple[Outcome, ...] = ("held", "fell", "moved", "unusable")


def judge_eval(
    judge: Annotated[
        str, typer.Argument(metavar="JUDGE", help="provider/MODEL; a,b compares two judges, a+b is their consensus.")
    ],
    bench: Annotated[
        list[str],
        typer.Argument(metavar="BENCH...", help="name:path (processbench:DIR), or a path to trajectories with gold labels."),
    ],
    styles: Annotated[str | None, typer.Option(help="Styles to compare, separated by commas; default: --style.")] = None,
    attack: Annotated[
        bool, typer.Option("--attack", help="Instead, insert adversarial text into wrong steps and count flipped verdicts.")
    ] = False,
    consensus: Annotated[
        str, typer.Option(help="How to combine judges joined by +: majority, unanimous, weighted:ACCURACIES or weighted:FILE.")
    ] = "majority",
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate a fixed sample of N solutions per subset.")] = None,
    *,
    reading: FieldNames,
    output: JsonOutput,
    settings: Annotated[EvaluationSettings, Fields(without=("threshold", "oracle_threshold"))],
    judging: JudgeOptions,
) -> None:
    """Compare judges and styles on step-labelled data: F1, calibration, unusable replies, tokens and cost.

    Reads benchmarks (BENCH) and cached replies (--db); gold labels are hidden from the judge. Prints a table and writes JSON
    (-o) on request. Cached replies cost nothing; with --offline only these are used.

    Example: critic-prm judge-eval openai/MODEL in.jsonl --styles stepwise,yes-no
    """
    from critic_prm.cli.running import open_judges, run_with_progress
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.benchmarks import open_benchmark, read_benchmarks
    from critic_prm.evaluate.judges import JudgeCost, attacks, compare_pairs, judges_to_json, score_judge
    from critic_prm.evaluate.judges import attack as attack_judge
    from critic_prm.evaluate.run import evaluate
    from critic_prm.label.run import Samples

    if judging.with_reference:
        raise UsageError("--with-reference cannot be used here: an evaluation hides the reference answer from the judge")
    parts = [part for spec in bench for part in open_benchmark(spec)]
    pairs = [pair for name in judge.split(",") for pair in _styled(name, (styles or judging.style).split(","))]
    samples, workers = Samples(settings.samples, settings.samples), judging.max_connections

    def opened(name: str, style: str) -> Critic:
        note(_named(name, style, " with "))
        return open_judges(name.split("+"), replace(judging, style=style or judging.style), consensus, samples)[0]

    def run_attack(name: str, style: str) -> Resistance:
        critic, solutions = (
            opened(name, style),
            (solution for _, solution in read_benchmarks(parts, limit, reading.conversion())),
        )
        return run_with_progress(
            critic, lambda tally: attack_judge(critic, solutions, attacks(), settings, workers=workers, tally=tally)
        )

    def run_evaluation(name: str, style: str) -> JudgeScore:
        critic, benchmark, cost = opened(name, style), read_benchmarks(parts, limit, reading.conversion()), JudgeCost()
        evaluation = run_with_progress(
            critic, lambda tally: evaluate(critic, benchmark, settings, workers=workers, tally=tally, each=cost.add)
        )
        return score_judge(name, style, evaluation, cost, judging.prices)

    if attack:
        resistances = [run_attack(*pair) for pair in pairs]
        judges = [{"judge": n, "style": s or None, **asdict(one)} for (n, s), one in zip(pairs, resistances, strict=True)]
        if output.write({"judges": judges}):
            _print_resistance(pairs, resistances)
        runs = [one.run for one in resistances]
    else:
        scores = [run_evaluation(*pair) for pair in pairs]
        comparisons = compare_pairs(scores, settings)
        if output.write(judges_to_json(scores, comparisons)):
            _print_scores(scores, comparisons)
        runs = [one.evaluation.run for one in scores]
    raise typer.Exit(3 if any(run["labels"].get("provider_error") for run in runs) else 0)


def _styled(name: str, styles: Sequence[str]) -> list[tuple[str, str]]:
    """A judge with each style; once, with the style "", if none of its critics reads one, such as `rules`."""
    from critic_prm.critics.open import options_read

    return [(name, style) for style in styles] if any("style" in options_read(one) for one in name.split("+")) else [(name, "")]


def _named(judge: str, style: str, between: str = " ") -> str:
    return f"{judge}{between}{style}" if style else judge


def _print_scores(scores: Sequence[JudgeScore], comparisons: Sequence[ComparedPair]) -> None:
    """Print one row per judge and style, then the pairwise comparisons, the unusable judgements and the column legend."""
    console = safe_console(highlight=False)
    several = len({one.judge for one in scores}) > 1
    names = [_named(one.judge, one.style) if several or not one.style else one.style for one in scores]
    table = _table(scores, names)
    if console.measure(table, options=console.options.update(max_width=10_000)).maximum > console.width:
        # A name broken over two lines cannot be copied, so numbers replace names that do not fit.
        for number, name in enumerate(names, 1):
            console.print(f"{number}: {name}", soft_wrap=True)
        table = _table(scores, [str(number) for number in range(1, len(names) + 1)])
    console.print(table)
    for a, b, comparison in comparisons:
        mean = comparison.mean
        difference = percent(mean.difference, mean.interval.low, mean.interval.high, "+")
        pair = " minus ".join(_named(one.judge, one.style) if several else one.style for one in (a, b))
        console.print(f"F1 of {pair}: {difference}" + ("" if mean.p is None else f", p {mean.p:.4f}"))
    for line in _notes(scores):
        console.print(line, style="dim")


def _table(scores: Sequence[JudgeScore], names: Sequence[str]) -> Table:
    rows = []
    for name, one in zip(names, scores, strict=True):
        metrics = [one.evaluation.scores.mean[metric] for metric in COLUMNS.values()]
        cells = [percent(metrics[0].value, metrics[0].low, metrics[0].high), *(percent(metric.value) for metric in metrics[1:])]
        known = one.input_tokens is not None and one.output_tokens is not None
        tokens = f"{one.input_tokens:,.0f}+{one.output_tokens:,.0f}" if known else "-"
        usd = "-" if one.usd is None else f"{one.usd:.5f}"
        rows.append((name, *cells, f"{1 - one.statuses.get('ok', 0.0):.1%}", tokens, usd))
    return plain_table(("", *COLUMNS, "unread", "tokens", "USD"), rows, gap=1, no_wrap=True)


def _print_resistance(pairs: Sequence[tuple[str, str]], resistances: Sequence[Resistance]) -> None:
    """Print one row per attack for each judge, and the share of attacks that succeeded."""
    console = safe_console(highlight=False)
    for (judge, style), one in zip(pairs, resistances, strict=True):
        if len(pairs) > 1:  # with one judge, its name was already printed at the start
            console.print(_named(judge, style, " with "), soft_wrap=True)
        rows = [(name, *(f"{counts.get(outcome, 0):,}" for outcome in OUTCOMES)) for name, counts in one.outcomes.items()]
        console.print(plain_table(("attack", *OUTCOMES), rows, gap=1))
        found = f"{one.found:,} of {one.erroneous:,} erroneous solutions"
        console.print(f"The error was found in {found}; only those were attacked.")
        if one.fell is not None:
            around = interval(one.interval.low, one.interval.high, ".1%")
            control = "" if one.by_itself is None else f"; with the control, {one.by_itself:.1%}"
            console.print(f"The wrong step passed in {one.fell:.1%}{around} of the attacks that could be read{control}.")
    console.print(
        "held: the same first error; fell: a later one or none; moved: an earlier one. The control is harmless:"
        " what changes with it changes by chance.",
        style="dim",
    )


def _notes(scores: Sequence[JudgeScore]) -> Iterator[str]:
    for one in scores:
        unusable = Counter({status: share for status, share in one.statuses.items() if status != "ok"})
        if unusable:
            shares = ", ".join(f"{status} {share:.1%}" for status, share in unusable.most_common())
            yield f"{_named(one.judge, one.style)}, unusable judgements: {shares}"
        methods = {method: n for method, n in one.how.items() if method not in ("plain", "schema")}
        if methods:
            counts = ", ".join(f"{method} {n:,}" for method, n in methods.items())
            yield f"{_named(one.judge, one.style)}, verdicts obtained otherwise: {counts}"
    card = scores[0].evaluation.scores
    yield "F1, err, corr: ProcessBench's; binary: any error or none, right solutions positive; steps: step accuracy."
    yield "Unusable judgements count as wrong. tokens: in+out per solution, paid now or earlier. ECE in percent."
    yield (
        f"Means over {len(card.subsets)} subsets; intervals and p: bootstrap by problem, {card.replicates:,} resamples, not"
        " adjusted for the number of comparisons."
    )
