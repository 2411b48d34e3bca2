"""critic-prm judge-eval: compare judges and styles by accuracy and cost on step-labelled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions


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
    samples: Annotated[int, typer.Option(min=1, help="Judgements per solution.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="Evaluate a fixed sample of N solutions per subset.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Also write the JSON to this file.")] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Number of bootstrap resamples for the intervals.")] = 2000,
    bootstrap_seed: Annotated[int, typer.Option(help="Random seed of the bootstrap intervals.")] = 0,
    *,
    judging: JudgeOptions,
) -> None:
    """Compare judges and styles on step-labelled data: F1, calibration, unusable replies, tokens and cost.

    Reads benchmarks (BENCH) and cached replies (--db); gold labels are hidden from the judge. Prints a table and writes JSON
    (-o) on request. Cached replies cost nothing; with --offline only these are used.

    Example: critic-prm judge-eval openai/MODEL in.jsonl --styles stepwise,yes-no
    """
    from critic_prm.cli import judging_runs
    from critic_prm.cli.judgetable import print_resistance, print_worths
    from critic_prm.data.records.reading import encode, write_records
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.benchmarks.benchmark import open_benchmark
    from critic_prm.evaluate.judges import worths_to_json

    if judging.with_reference:
        raise UsageError("--with-reference does not fit here: an evaluation hides the reference answer from the judge")
    parts = [part for spec in bench for part in open_benchmark(spec)]
    pairs = [(name, style) for name in judge.split(",") for style in (styles or judging.style).split(",")]
    run = judging_runs.Run(judging, parts, limit, samples, resamples, bootstrap_seed, consensus)
    if attack:
        found = judging_runs.attacked(pairs, run)
        row, failed = judging_runs.attacked_to_json(found), [one.run for _, one in found]
    else:
        worths, compared = judging_runs.evaluated(pairs, run)
        row, failed = worths_to_json(worths, compared), [one.evaluation.run for one in worths]
    if out is not None:
        write_records(out, [row])
    if as_json:
        typer.echo(encode(row), nl=False)
    elif attack:
        print_resistance(found)
    else:
        print_worths(worths, compared)
    raise typer.Exit(3 if any(run["labels"].get("provider_error") for run in failed) else 0)
