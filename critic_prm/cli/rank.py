"""critic-prm rank: pick the best candidate per problem and estimate best-of-N accuracy."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions


def rank(
    source: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATES", help="Several solutions per problem: a label file, or trajectories with --critic."
        ),
    ],
    critic: Annotated[
        str | None,
        typer.Option(help="A verifier folder, `rules`, a .toml file or provider/MODEL; default: use the scores in CANDIDATES."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("-o", "--out", metavar="FILE", help="Write all candidates, best first; `rank` can read this file."),
    ] = None,
    by: Annotated[str, typer.Option(help="Aggregation of step scores: min, product, mean, last, cvar:0.2, ...")] = "min",
    pick: Annotated[
        str, typer.Option(help="best: the highest score; vote: the answer with the largest sum of scores.")
    ] = "best",
    floor: Annotated[
        float | None, typer.Option(help="Keep problems whose chosen candidate scores at least this; escalate the others.")
    ] = None,
    kept: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the chosen candidate of each problem that is kept.")
    ] = None,
    escalate: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the chosen candidates that score below --floor.")
    ] = None,
    n: Annotated[
        str | None, typer.Option("-n", metavar="1,2,4", help="Values of N for the curves; default: powers of two.")
    ] = None,
    bound: Annotated[
        str | None, typer.Option(help="Use conservative scores: wilson, jeffreys or posterior_cvar of the votes, or spread.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Judgements per candidate.")] = 1,
    draw: Annotated[int, typer.Option(help="Random seed for subsets of candidates and for the intervals.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the tables.")] = False,
    format: Annotated[str, typer.Option("--from", help="Input format.")] = "auto",
    *,
    judging: JudgeOptions,
) -> None:
    """Choose the best candidate per problem, by best-of-N or weighted majority over final answers.

    Reads candidates (CANDIDATES). Prints accuracy tables; writes the ranked (-o), chosen (--kept) and escalated candidates
    (--escalate) on request. All aggregations are computed in one pass.

    If gold answers are known, the tables show the accuracy of each method with N candidates, beside pass@N (an oracle), the
    majority answer and a random choice.

    Example: critic-prm rank candidates.jsonl --critic verifier -o ranked.jsonl
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
