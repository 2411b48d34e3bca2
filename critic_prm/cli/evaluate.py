"""critic-prm evaluate: score a critic on benchmarks, with confidence intervals."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli.options import FieldNames
from critic_prm.engine.options import JudgeOptions
from critic_prm.evaluate.settings import EvaluationSettings
from critic_prm.terminal import safe_console, say


def evaluate(
    critic: Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier folder, `rules`, or provider/MODEL.")],
    bench: Annotated[
        list[str],
        typer.Argument(metavar="BENCH...", help="name:path (processbench:DIR), or a path to trajectories with gold labels."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Also write the JSON to this file.")] = None,
    save: Annotated[str | None, typer.Option(metavar="FILE", help="Write every prediction to this label file.")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare F1 with the predictions that an earlier run wrote with --save.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate a fixed sample of N solutions per subset.")] = None,
    threshold_from: Annotated[
        str | None,
        typer.Option(metavar="BENCH[#SUBSET]", help="Choose the threshold on this subset, such as processbench:DIR#gsm8k."),
    ] = None,
    *,
    reading: FieldNames,
    settings: EvaluationSettings,
    judging: JudgeOptions,
) -> None:
    """Score a critic on benchmarks with gold labels.

    Reads the benchmarks (BENCH); gold labels, answers and notes are hidden from the critic. Prints a table with confidence
    intervals; writes JSON (-o) and predictions (--save) on request.

    A judge's first errors come from its verdicts, a verifier's from its own decision. --threshold, --threshold-from and
    --oracle-threshold change this.

    Example: critic-prm evaluate verifier processbench:data/ProcessBench
    """
    from critic_prm.cli.outputs import this_run
    from critic_prm.cli.running import run_with_progress
    from critic_prm.cli.scoretable import print_comparison, print_evaluation
    from critic_prm.cli.swapped import check_order
    from critic_prm.critics.open import open_critic
    from critic_prm.data.records.writing import RecordWriter, encode, write_records
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.benchmarks import headline_of, open_benchmark, read_benchmarks, sizes_of
    from critic_prm.evaluate.run import evaluate as evaluate_critic
    from critic_prm.evaluate.run import evaluation_to_json, read_predictions
    from critic_prm.evaluate.threshold import open_threshold_source
    from critic_prm.metrics.scorecard import compare

    if judging.with_reference:
        raise UsageError("--with-reference cannot be used here: an evaluation hides the reference answer from the critic")
    check_order("evaluate", critic, *bench)
    parts = [part for spec in bench for part in open_benchmark(spec)]
    other = read_predictions(against) if against else None
    source = open_threshold_source(threshold_from, limit) if threshold_from else None
    opened, benchmark, workers = (
        open_critic(critic, judging),
        read_benchmarks(parts, limit, reading.conversion()),
        judging.max_connections,
    )
    with RecordWriter(save) if save else nullcontext() as sink:
        each = sink.write if sink is not None else None
        result = run_with_progress(
            opened,
            lambda tally: evaluate_critic(
                opened, benchmark, settings, workers=workers, tally=tally, each=each, threshold_from=source
            ),
        )
    if result.scores.threshold_from == "verdicts":  # what the critic says about its own decision
        for line in result.messages:
            say(line)
    row = {**evaluation_to_json(result), "command": this_run()}
    comparison = None
    if other:
        threshold, resamples = result.scores.threshold, settings.resamples
        row["against"] = comparison = compare(result.cases, other, threshold=threshold, replicates=resamples)
    if out is not None:
        write_records(out, [row])
    if as_json:
        typer.echo(encode(row), nl=False)
    else:
        print_evaluation(result, safe_console(), sizes_of(parts), headline_of(parts))
        if comparison is not None:
            print_comparison(comparison, str(against), safe_console())
    raise typer.Exit(3 if result.run["labels"].get("provider_error") else 0)
