"""critic-prm analyze: find weaknesses of a critic's scores and check them against bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.engine.options import JudgeOptions

app = typer.Typer(help="Find weaknesses of a critic's scores.", no_args_is_help=True)

CriticName = Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier folder, `rules`, or provider/MODEL.")]
Solutions = Annotated[str, typer.Argument(metavar="INPUT", help="Solutions in any format that `convert` reads; - is stdin.")]
Labels = Annotated[list[str], typer.Argument(metavar="LABELS...", help="Label files.")]
Format = Annotated[str, typer.Option("--from", help="Input format.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Out = Annotated[Path | None, typer.Option("-o", "--out", metavar="FILE", help="Also write the JSON to this file.")]
Bounds = Annotated[Path | None, typer.Option(metavar="TOML", help="Guardrails: exit with code 3 if a number is out of bounds.")]
Aggregation = Annotated[str, typer.Option(help="Aggregation of step scores into a solution's score.")]
Chance = Annotated[int, typer.Option("--chance-seed", help="Random seed of all sampling and of the intervals.")]


@app.callback()
def analyze() -> None:
    """Find weaknesses of a critic's scores."""


@app.command()
def counterfactual(
    critic: CriticName,
    source: Solutions,
    each: Annotated[int, typer.Option(min=1, help="Steps to change per solution.")] = 1,
    limit: Annotated[int, typer.Option(min=1, help="Use at most N solutions, evenly spread over the input.")] = 200,
    aggregation: Aggregation = "min",
    format: Format = "auto",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
    *,
    judging: JudgeOptions,
) -> None:
    """Corrupt, drop, mask and swap steps, and measure how scores and the first error change.

    Reads solutions (INPUT). Prints findings and tables, among them whether the critic fails to react; writes JSON (-o) on
    request. Planted errors are verified by arithmetic, so solutions must contain equations. Costs about 5 judgements per
    changed step.

    Example: critic-prm analyze counterfactual verifier solutions.jsonl
    """
    from critic_prm.cli.analysing import finish, read_solutions, run
    from critic_prm.critics.open import open_critic
    from critic_prm.evaluate.analyze.counterfactual import counterfactual as analyse

    solutions = read_solutions(source, format, limit)
    found, code = run(
        open_critic(critic, judging),
        lambda critic, tally: analyse(
            solutions, critic, how=aggregation, each=each, workers=judging.max_connections, seed=chance_seed, tally=tally
        ),
    )
    finish(found, as_json, out, bounds, code)


@app.command()
def credit(
    critic: CriticName,
    source: Solutions,
    limit: Annotated[int, typer.Option(min=1, help="Use at most N solutions, evenly spread over the input.")] = 20,
    orders: Annotated[int, typer.Option(min=2, help="Permutations to sample for solutions of more than 6 steps.")] = 16,
    aggregation: Aggregation = "mean",
    format: Format = "auto",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
    *,
    judging: JudgeOptions,
) -> None:
    """Compute each step's contribution to the score: Shapley values and leave-one-out.

    Reads solutions (INPUT). Prints findings and tables; writes JSON (-o) on request. Exact for up to n = 6 steps, with 2^n
    judgements; sampled for longer solutions, with about 2 * n * ORDERS judgements.

    Example: critic-prm analyze credit verifier solutions.jsonl --limit 50
    """
    from critic_prm.cli.analysing import finish, read_solutions, run
    from critic_prm.critics.open import open_critic
    from critic_prm.evaluate.analyze.credit import credit as analyse

    solutions = read_solutions(source, format, limit)
    found, code = run(
        open_critic(critic, judging),
        lambda critic, tally: analyse(
            solutions, critic, how=aggregation, orders=orders, workers=judging.max_connections, seed=chance_seed, tally=tally
        ),
    )
    finish(found, as_json, out, bounds, code)


@app.command()
def risk(
    labels: Labels,
    alpha: Annotated[float, typer.Option(help="Share of the lowest scores whose mean is the tail (CVaR).")] = 0.2,
    least: Annotated[int, typer.Option(min=2, help="Minimum number of continuations per prefix.")] = 4,
    good: Annotated[float, typer.Option(help="A prefix looks good if its mean is at least this.")] = 0.5,
    floor: Annotated[float, typer.Option(help="A prefix that looks good is risky if its tail is below this.")] = 0.2,
    aggregation: Aggregation = "min",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
) -> None:
    """Measure the spread and the tail of scores among continuations of the same prefix.

    Reads label files (LABELS). Prints findings and tables; writes JSON (-o) on request. Continuations are the solutions of one
    problem, the solutions that share their first steps, or the rollouts after each step.

    Example: critic-prm analyze risk labels.jsonl
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
    author: Annotated[str | None, typer.Option(metavar="FIELD", help="Field that names the author of a solution.")] = None,
    least: Annotated[float, typer.Option(min=0, help="Report effects of at least this size as bias.")] = 0.1,
    aggregation: Aggregation = "min",
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
) -> None:
    """Test scores for bias by position, length, verbosity, style and the judge's own model family.

    Reads label files (LABELS). Prints findings and tables; writes JSON (-o) on request. Use rows with gold labels if possible,
    so that only equally correct solutions are compared. To test for self-preference, give label files of judges from two model
    families on the same solutions.

    Example: critic-prm analyze bias gpt.labels.jsonl claude.labels.jsonl
    """
    from critic_prm.cli.analysing import finish
    from critic_prm.data.label_rows import read_labels
    from critic_prm.evaluate.analyze.bias import bias as analyse

    rows = (row for path in labels for row in read_labels(path))
    finish(analyse(rows, how=aggregation, author=author, least=least, seed=chance_seed), as_json, out, bounds)


@app.command()
def drift(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Label file of an earlier run.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Label file of a later run or of another version.")],
    subset: Annotated[str | None, typer.Option(metavar="FIELD", help="Field that names the subset of a row.")] = None,
    as_json: AsJson = False,
    out: Out = None,
    bounds: Bounds = None,
    chance_seed: Chance = 0,
) -> None:
    """Measure what changed between two runs: score distribution, decisions, flips and unusable judgements.

    Reads two label files (OLD, NEW). Prints findings and tables, overall and by subset; writes JSON (-o) on request. Solutions
    with the same id are compared pairwise; without common ids the two distributions are compared.

    Example: critic-prm analyze drift old.labels.jsonl new.labels.jsonl
    """
    from critic_prm.cli.analysing import finish
    from critic_prm.data.label_rows import read_labels
    from critic_prm.evaluate.analyze.drift import drift as analyse

    finish(analyse(read_labels(old), read_labels(new), subset=subset, seed=chance_seed), as_json, out, bounds)


@app.command()
def guardrails(
    bounds: Annotated[Path, typer.Argument(metavar="TOML", help="Bounds of each analysis, such as drift.psi = {max = 0.2}.")],
    results: Annotated[
        list[str], typer.Argument(metavar="RESULT...", help="JSON that analyses printed with --json or wrote with -o.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check results of analyses against bounds; exit with code 3 if one is broken.

    Reads bounds (TOML) and results. Prints a table, or JSON lines with --json. A number that could not be measured breaks its
    bounds.

    Example: critic-prm analyze guardrails bounds.toml drift.json
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
