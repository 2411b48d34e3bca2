"""critic-prm analyze: a critic or its label files in, what is wrong with its scores out, and exit 3 where a bound is broken."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli.options import with_judging
from critic_prm.engine.options import JudgeOptions

app = typer.Typer(help="See what is wrong with a critic's scores.", no_args_is_help=True)

CriticName = Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier's folder, `rules`, or provider/MODEL.")]
Solutions = Annotated[str, typer.Argument(metavar="INPUT", help="Solutions in any format `convert` reads; - is stdin.")]
Labels = Annotated[list[str], typer.Argument(metavar="LABELS...", help="Label files.")]
Format = Annotated[str, typer.Option("--from", help="The input's format.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Out = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Also write the JSON here.")]
Bounds = Annotated[Path | None, typer.Option(metavar="TOML", help="Guardrails: exit 3 when a number is out of its bounds.")]
Aggregation = Annotated[str, typer.Option(help="How step scores become a solution's.")]
Chance = Annotated[int, typer.Option("--chance-seed", help="The same seed chooses the same and gives the same intervals.")]


@app.callback()
def analyze() -> None:
    """See what is wrong with a critic's scores."""


@app.command()
@with_judging
def counterfactual(
    critic: CriticName,
    source: Solutions,
    each: Annotated[int, typer.Option(min=1, help="Steps of a solution that are changed.")] = 1,
    limit: Annotated[int, typer.Option(min=1, help="Most solutions, evenly spread over the input.")] = 200,
    aggregation: Aggregation = "min",
    format: Format = "auto",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
    *,
    judging: JudgeOptions,
) -> None:
    """Corrupt, drop, mask and swap steps, and see how scores and the first error move; name a critic that does not react.

    Planted errors are shown to be errors by arithmetic, so solutions need equations. Costs about 5 judgements a changed step.
    """
    from critic_prm.cli.analysing import finish, read_solutions, run
    from critic_prm.critics.open import open_critic
    from critic_prm.evaluate.analyze.counterfactual import counterfactual as analyse

    solutions = read_solutions(source, format, limit)
    found, code = run(
        open_critic(critic, judging),
        lambda critic, tally: analyse(
            solutions, critic, how=aggregation, each=each, workers=judging.connections, seed=chance_seed, tally=tally
        ),
    )
    finish(found, as_json, out, bounds, code)


@app.command()
@with_judging
def credit(
    critic: CriticName,
    source: Solutions,
    limit: Annotated[int, typer.Option(min=1, help="Most solutions, evenly spread over the input.")] = 20,
    orders: Annotated[int, typer.Option(min=2, help="Orders sampled for solutions of more than 6 steps.")] = 16,
    aggregation: Aggregation = "mean",
    format: Format = "auto",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
    *,
    judging: JudgeOptions,
) -> None:
    """What each step contributes to the score: Shapley values and leave-one-out.

    Exact for up to 6 steps, with 2^n judgements; sampled beyond, with about 2 n ORDERS.
    """
    from critic_prm.cli.analysing import finish, read_solutions, run
    from critic_prm.critics.open import open_critic
    from critic_prm.evaluate.analyze.credit import credit as analyse

    solutions = read_solutions(source, format, limit)
    found, code = run(
        open_critic(critic, judging),
        lambda critic, tally: analyse(
            solutions, critic, how=aggregation, orders=orders, workers=judging.connections, seed=chance_seed, tally=tally
        ),
    )
    finish(found, as_json, out, bounds, code)


@app.command()
def risk(
    labels: Labels,
    alpha: Annotated[float, typer.Option(help="The worst share of the futures that the tail is the mean of.")] = 0.2,
    least: Annotated[int, typer.Option(min=2, help="Futures that a beginning needs.")] = 4,
    good: Annotated[float, typer.Option(help="A mean from which on a beginning looks good.")] = 0.5,
    floor: Annotated[float, typer.Option(help="A tail below which it is not.")] = 0.2,
    aggregation: Aggregation = "min",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
) -> None:
    """Spread and tail of the scores of all solutions that begin alike; or of the rollouts after each step.

    Several solutions of one problem are futures of that problem; solutions that share steps are futures of these too.
    """
    from critic_prm.cli.analysing import finish
    from critic_prm.data.label_rows import read_labels
    from critic_prm.evaluate.analyze.risk import risk as analyse

    rows = (row for path in labels for row in read_labels(path))
    found = analyse(rows, how=aggregation, alpha=alpha, least=least, good=good, floor=floor, seed=chance_seed)
    finish(found, as_json, out, bounds)


@app.command()
def bias(
    labels: Labels,
    author: Annotated[str | None, typer.Option(metavar="FIELD", help="The field that says who wrote a solution.")] = None,
    least: Annotated[float, typer.Option(min=0, help="An effect from which on a bias is one.")] = 0.1,
    aggregation: Aggregation = "min",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
) -> None:
    """What scores go with that they should not: place, length, verbosity, style, and a judge's own family.

    Best on rows with gold labels: what is compared is then as right as each other. For self-preference give the label files of
    judges of two families on the same solutions.
    """
    from critic_prm.cli.analysing import finish
    from critic_prm.data.label_rows import read_labels
    from critic_prm.evaluate.analyze.bias import bias as analyse

    rows = (row for path in labels for row in read_labels(path))
    finish(analyse(rows, how=aggregation, author=author, least=least, seed=chance_seed), as_json, out, bounds)


@app.command()
def drift(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A label file of an earlier run.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A label file of a later run, or of another version.")],
    subset: Annotated[str | None, typer.Option(metavar="FIELD", help="The field that says which subset a row is of.")] = None,
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
) -> None:
    """What changed between two runs: the distribution of scores, decisions, flips, unusable judgements; in all and by subset.

    On the same solutions (by id) these are compared one by one, else the two populations.
    """
    from critic_prm.cli.analysing import finish
    from critic_prm.data.label_rows import read_labels
    from critic_prm.evaluate.analyze.drift import drift as analyse

    finish(analyse(read_labels(old), read_labels(new), subset=subset, seed=chance_seed), as_json, out, bounds)


@app.command()
def guardrails(
    bounds: Annotated[Path, typer.Argument(metavar="TOML", help="A table an analysis: [drift] psi = {max = 0.2}.")],
    results: Annotated[list[str], typer.Argument(metavar="RESULT...", help="What analyses printed with --json or wrote.")],
    as_json: AsJson = False,
) -> None:
    """Hold the results of analyses against bounds; exit 3 when one is broken, for CI.

    A number that could not be measured breaks its bounds. `critic-prm analyze guardrails BOUNDS RESULT... --json` says the same
    to a machine.
    """
    from dataclasses import asdict

    from critic_prm.cli.analysing import BROKEN, print_tables
    from critic_prm.data.records.reading import encode, read_records
    from critic_prm.evaluate.analyze.guardrails import check, numbers_in, read_bounds, table_of

    rows = [(record.data, record.where) for path in results for record in read_records(path)]
    checked = check(read_bounds(bounds), numbers_in(rows))
    if as_json:
        typer.echo(b"".join(encode(asdict(one)) for one in checked), nl=False)
    else:
        print_tables([table_of(checked)])
    raise typer.Exit(0 if all(one.holds for one in checked) else BROKEN)
