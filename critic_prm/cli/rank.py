"""critic-prm rank: candidates in, the best of each problem out, and what choosing is worth with N of them."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions


@with_judging
def rank(
    source: Annotated[str, typer.Argument(metavar="CANDIDATES", help="Several solutions a problem; with scores, or --critic.")],
    critic: Annotated[
        str | None,
        typer.Option(help="A verifier's folder, `rules`, a .toml or provider/MODEL; else the file's own scores."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("-o", "--out", metavar="FILE", help="All candidates, best first; rank reads it again."),
    ] = None,
    by: Annotated[str, typer.Option(help="How step scores become one: min, product, mean, last, cvar:0.2, ...")] = "min",
    pick: Annotated[str, typer.Option(help="best: the highest score; vote: the answer with the largest sum.")] = "best",
    floor: Annotated[
        float | None, typer.Option(help="Keep what scores at least this; the rest of the problems are escalated.")
    ] = None,
    kept: Annotated[str | None, typer.Option(metavar="FILE", help="The candidate taken of each problem.")] = None,
    escalate: Annotated[str | None, typer.Option(metavar="FILE", help="Those below --floor.")] = None,
    n: Annotated[str | None, typer.Option("-n", metavar="1,2,4", help="The N of the curves; powers of two by default.")] = None,
    bound: Annotated[
        str | None, typer.Option(help="Cautious scores: wilson, jeffreys or posterior_cvar of votes, or spread.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Judgements a candidate.")] = 1,
    draw: Annotated[int, typer.Option(help="The seed of drawn subsets and of the intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the tables.")] = False,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    *,
    judging: JudgeOptions,
) -> None:
    """Choose among candidates: best-of-N and weighted majority over final answers, by every aggregation in one pass.

    Where gold answers are known, the tables say what each way of choosing gets right with N candidates, beside pass@N (an
    oracle choosing), the majority answer and a random one.
    """
    from critic_prm.cli.ranking import numbers, print_ranking, run_ranking
    from critic_prm.data.records.reading import encode

    ranking, row = run_ranking(
        source,
        critic,
        judging,
        by=by,
        pick=pick,
        sizes=numbers(n),
        bound=bound,
        samples=samples,
        seed=draw,
        floor=floor,
        files={"out": out, "kept": kept, "escalate": escalate},
        format=format,
    )
    if as_json:
        typer.echo(encode(row), nl=False)
    else:
        print_ranking(ranking, row)
    raise typer.Exit(3 if row["failed"] else 0)
