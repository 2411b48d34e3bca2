"""critic-prm evaluate: score a critic on benchmarks, with confidence intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions
from critic_prm.terminal import safe_console


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
    samples: Annotated[int, typer.Option(min=1, help="Judgements per solution.")] = 1,
    threshold: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Count a step as wrong below this P(correct); replaces the critic's own rule."),
    ] = None,
    oracle_threshold: Annotated[
        bool, typer.Option("--oracle-threshold", help="Choose the threshold on the benchmark itself; gives an upper bound.")
    ] = False,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples for the intervals.")] = 2000,
    bootstrap_seed: Annotated[int, typer.Option(help="Random seed of the bootstrap intervals.")] = 0,
    *,
    judging: JudgeOptions,
) -> None:
    """Score a critic on benchmarks with gold labels.

    Reads the benchmarks (BENCH); gold labels, answers and notes are hidden from the critic. Prints a table with confidence
    intervals; writes JSON (-o) and predictions (--save) on request.

    A judge's first errors come from its verdicts, a verifier's from the threshold chosen on its dev split. --threshold and
    --oracle-threshold change this.

    Example: critic-prm evaluate verifier processbench:data/ProcessBench
    """

    from critic_prm.cli.evaluating import run_evaluation
    from critic_prm.cli.scoretable import print_comparison, print_evaluation
    from critic_prm.critics.open import open_critic
    from critic_prm.data.records.reading import encode, write_records
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.benchmarks.benchmark import headline_of, open_benchmark, read_benchmarks, sizes_of
    from critic_prm.evaluate.run import evaluation_to_json, read_predictions
    from critic_prm.metrics.scorecard import compare

    if threshold is not None and oracle_threshold:
        raise UsageError("--threshold and --oracle-threshold exclude each other; give one")
    if judging.with_reference:
        raise UsageError("--with-reference does not fit here: an evaluation hides the reference answer from the critic")
    parts = [part for spec in bench for part in open_benchmark(spec)]
    other = read_predictions(against) if against else None
    result = run_evaluation(
        open_critic(critic, judging),
        read_benchmarks(parts, limit),
        samples=samples,
        workers=judging.max_connections,
        threshold=threshold,
        oracle=oracle_threshold,
        replicates=resamples,
        seed=bootstrap_seed,
        save=save,
    )
    row = evaluation_to_json(result)
    comparison = compare(result.cases, other, threshold=result.scores.threshold, replicates=resamples) if other else None
    if comparison is not None:
        row["against"] = comparison
    if out is not None:
        write_records(out, [row])
    if as_json:
        typer.echo(encode(row), nl=False)
    else:
        print_evaluation(result, safe_console(), sizes_of(parts), headline_of(parts))
        if comparison is not None:
            print_comparison(comparison, str(against), safe_console())
    raise typer.Exit(3 if result.run["labels"].get("provider_error") else 0)
