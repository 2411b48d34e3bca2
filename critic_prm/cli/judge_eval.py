"""critic-prm judge-eval: judges, styles and benchmarks in, what each is worth and costs out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions


@with_judging
def judge_eval(
    judge: Annotated[str, typer.Argument(metavar="JUDGE", help="provider/MODEL; a,b are two judges, a+b is the two together.")],
    bench: Annotated[
        list[str],
        typer.Argument(metavar="BENCH...", help="name:path (processbench:DIR) or a path to anything with gold labels."),
    ],
    styles: Annotated[str | None, typer.Option(help="Styles to compare, with commas between them; else --style.")] = None,
    attack: Annotated[
        bool, typer.Option("--attack", help="Instead, put hostile words into wrong steps and count verdicts that flip.")
    ] = False,
    consensus: Annotated[
        str, typer.Option(help="How judges together add up: majority, unanimous, weighted:ACCURACIES or weighted:FILE.")
    ] = "majority",
    samples: Annotated[int, typer.Option(min=1, help="Judgements a solution.")] = 1,
    limit: Annotated[int | None, typer.Option(min=1, help="A fixed sample of so many solutions of each subset.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    out: Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Also write the JSON here.")] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples of the intervals.")] = 2000,
    bootstrap_seed: Annotated[int, typer.Option(help="The same seed gives the same intervals.")] = 0,
    *,
    judging: JudgeOptions,
) -> None:
    """What a judge and a style are worth on step-labelled data: F1, calibration, unusable replies, tokens and cost.

    Gold is hidden from the judge. Replies that are in the cache cost nothing; with --offline nothing else is used.
    """
    from critic_prm.cli import judging_runs
    from critic_prm.cli.judgetable import print_resistance, print_worths
    from critic_prm.data.records.reading import encode, write_records
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.benchmarks.benchmark import open_benchmark
    from critic_prm.evaluate.judges import worths_to_json

    if judging.reference:
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
