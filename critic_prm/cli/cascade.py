"""critic-prm cascade: tune a cascade of a cheap critic and a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions

app = typer.Typer(help="Tune a cascade: a cheap critic, and a judge for uncertain cases.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `tune` a subcommand even though it is the only one."""


@app.command()
def tune(
    source: Annotated[str, typer.Argument(metavar="DEV", help="Solutions with gold labels that were not used in training.")],
    first: Annotated[list[str], typer.Option(help="The cheap critic; repeat it to use the mean of several.")],
    judge: Annotated[str | None, typer.Option(help="The judge: provider/MODEL, or any critic.")] = None,
    judged: Annotated[
        str | None, typer.Option(metavar="FILE", help="Label file of the judge on DEV, instead of --judge.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Ask the judge about each uncertain step or the whole solution; default: by its style.")
    ] = None,
    target_f1: Annotated[
        float | None,
        typer.Option("--target-f1", min=0, max=1, help="Choose the cheapest band with this F1; default: the judge's."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="Choose the best F1 with at most N judge calls per solution on average.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the cascade as a critic in TOML.")
    ] = None,
    escalate: Annotated[
        str | None, typer.Option(metavar="FILE", help="File to which the cascade writes cases that no judge could decide.")
    ] = None,
    draw: Annotated[int, typer.Option(help="Random seed of the split of DEV.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    format: Annotated[str, typer.Option("--from", help="Input format.")] = "auto",
    *,
    judging: JudgeOptions,
) -> None:
    """Choose the band of P(error) in which a cascade asks the judge.

    Reads solutions with gold labels (DEV). The band is chosen on half of the problems and measured once on the other half.
    Prints F1 and cost of the Pareto-optimal bands. Writes the cascade (-o FILE), which is a critic: `label --judge FILE`,
    `evaluate FILE`, `rank --critic FILE`.

    Example: critic-prm cascade tune dev.jsonl --first rules --judge openai/MODEL
    """
    from critic_prm.cli.cascading import print_tuned, run_tuning
    from critic_prm.data.records.reading import encode

    tuned, row = run_tuning(
        source,
        first,
        judge,
        judged,
        judging,
        by=by,
        target=target_f1,
        budget=budget,
        seed=draw,
        out=out,
        escalate=escalate,
        format=format,
    )
    if as_json:
        typer.echo(encode(row), nl=False)
    else:
        print_tuned(tuned, row)
