"""critic-prm cascade: a cheap critic first, a judge where it is in doubt; how wide the doubt should be."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions

app = typer.Typer(help="A cheap critic first, a judge where it is in doubt.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keeps `tune` a command of its own while it is the only one."""


@app.command()
@with_judging
def tune(
    source: Annotated[str, typer.Argument(metavar="DEV", help="Solutions with gold labels, none of them used in training.")],
    first: Annotated[list[str], typer.Option(help="The cheap critic; several are used by their mean.")],
    judge: Annotated[str | None, typer.Option(help="provider/MODEL, or any critic.")] = None,
    judged: Annotated[
        str | None, typer.Option(metavar="FILE", help="A label file of the judge on DEV, instead of asking it.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(help="Ask about each step in doubt, or the whole solution; by the judge's style if not given.")
    ] = None,
    target_f1: Annotated[
        float | None, typer.Option("--target-f1", min=0, max=1, help="The cheapest band for this F1; default: the judge's own.")
    ] = None,
    budget: Annotated[
        float | None, typer.Option(min=0, help="The best F1 for so many judge calls a solution, on average.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="Write the cascade: a critic as TOML.")
    ] = None,
    escalate: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where that cascade writes what no judge could decide.")
    ] = None,
    draw: Annotated[int, typer.Option(help="Which problems choose, and which measure.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    *,
    judging: JudgeOptions,
) -> None:
    """Choose the band of P(error) in which the judge is asked: on half of DEV's problems, measured once on the other half.

    Prints F1 against cost for the bands that no cheaper one beats. The cascade in FILE is a critic: `label --judge FILE`,
    `evaluate FILE`, `rank --critic FILE`.
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
