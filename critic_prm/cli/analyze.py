"""critic-prm analyze: find weaknesses of a critic's scores and check them against bounds."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from critic_prm.cli.fields import Fields
from critic_prm.cli.options import InputOptions, JsonOutput, ReadingOptions
from critic_prm.engine.options import JudgeOptions
from critic_prm.evaluate.settings import BiasSettings, CounterfactualSettings, CreditSettings, DriftSettings, RiskSettings
from critic_prm.option import Option
from critic_prm.registry import load
from critic_prm.terminal import plain_table, safe_console

if TYPE_CHECKING:
    from critic_prm.data import LabelledTrajectory, Trajectory
    from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table

app = typer.Typer()

BROKEN = 3
"""Exit code if a number is out of bounds or requests failed."""

CriticName = Annotated[str, typer.Argument(metavar="CRITIC", help="A verifier folder, `rules`, or provider/MODEL.")]
Solutions = Annotated[str, typer.Argument(metavar="INPUT", help="Solutions in any format that `convert` reads; - is stdin.")]
Labels = Annotated[list[str], typer.Argument(metavar="LABELS...", help="Label files.")]
Limit = Annotated[int, typer.Option(min=1, help="Use at most N solutions, evenly spread over the input.")]


@dataclass(frozen=True, slots=True)
class Output(JsonOutput):
    """Where the result of an analysis goes, and what it is checked against."""

    bounds: Annotated[Path | None, Option(metavar="TOML")] = None
    """Guardrails: exit with code 3 if a number is out of bounds."""


@app.command()
def counterfactual(
    critic: CriticName,
    source: Solutions,
    limit: Limit = 200,
    *,
    reading: ReadingOptions,
    settings: CounterfactualSettings,
    output: Output,
    judging: JudgeOptions,
) -> None:
    """Corrupt, drop, mask and swap steps, and measure how scores and the first error change.

    Reads solutions (INPUT). Prints findings and tables, among them whether the critic fails to react; writes JSON (-o) on
    request. Planted errors are verified by arithmetic, so solutions must contain equations. Costs about 5 judgements per
    changed step.

    Example: critic-prm analyze counterfactual verifier solutions.jsonl
    """
    _run("counterfactual", critic, _read_solutions(source, reading, limit), settings, output, judging)


@app.command()
def credit(
    critic: CriticName,
    source: Solutions,
    limit: Limit = 20,
    *,
    reading: ReadingOptions,
    settings: CreditSettings,
    output: Output,
    judging: JudgeOptions,
) -> None:
    """Compute each step's contribution to the score: Shapley values and leave-one-out.

    Reads solutions (INPUT). Prints findings and tables; writes JSON (-o) on request. Exact for up to n = 6 steps, with 2^n
    judgements; sampled for longer solutions, with about 2 * n * ORDERS judgements.

    Example: critic-prm analyze credit verifier solutions.jsonl --limit 50
    """
    _run("credit", critic, _read_solutions(source, reading, limit), settings, output, judging)


@app.command()
def risk(labels: Labels, *, settings: RiskSettings, output: Output) -> None:
    """Measure the spread and the tail of scores among continuations of the same prefix.

    Reads label files (LABELS). Prints findings and tables; writes JSON (-o) on request. Continuations are the solutions of one
    problem, the solutions that share their first steps, or the rollouts after each step.

    Example: critic-prm analyze risk labels.jsonl
    """
    _finish(_analysis("risk")(_read_labels(*labels), settings), output)


@app.command()
def bias(labels: Labels, *, settings: BiasSettings, output: Output) -> None:
    """Test scores for bias by position, length, verbosity, style and the judge's own model family.

    Reads label files (LABELS). Prints findings and tables; writes JSON (-o) on request. Use rows with gold labels if possible,
    so that only equally correct solutions are compared. To test for self-preference, give label files of judges from two model
    families on the same solutions.

    Example: critic-prm analyze bias gpt.labels.jsonl claude.labels.jsonl
    """
    _finish(_analysis("bias")(_read_labels(*labels), settings), output)


@app.command()
def drift(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Label file of an earlier run, or a verifier's folder.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Label file of a later run or of another version.")],
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Profile of the verifier OLD, or none; default: the one in use."),
    ] = None,
    *,
    settings: DriftSettings,
    output: Output,
) -> None:
    """Measure what changed between two runs: score distribution, decisions, flips and unusable judgements.

    Reads two label files (OLD, NEW). Prints findings and tables, overall and by subset; writes JSON (-o) on request. Solutions
    with the same id are compared pairwise; without common ids the two distributions are compared. If OLD is a verifier, NEW is
    a file that it scored, and is compared with the solutions that its threshold was chosen on.

    Example: critic-prm analyze drift old.labels.jsonl new.labels.jsonl
    """
    from critic_prm.errors import UsageError

    if (Path(old) / "verifier.json").exists():
        from critic_prm.evaluate.analyze.drift import drift_from_calibration

        _finish(drift_from_calibration(old, _read_labels(new), profile), output)
    if profile is not None:
        raise UsageError(f"--profile {profile}: {old} is not a verifier and has no profiles")
    _finish(_analysis("drift")(_read_labels(old), _read_labels(new), settings), output)


@app.command()
def guardrails(
    bounds: Annotated[Path, typer.Argument(metavar="TOML", help="Bounds of each analysis, such as drift.psi = {max = 0.2}.")],
    results: Annotated[
        list[str], typer.Argument(metavar="RESULT...", help="JSON that analyses printed with --json or wrote with -o.")
    ],
    *,
    output: Annotated[Output, Fields(only=("as_json",))],
) -> None:
    """Check results of analyses against bounds; exit with code 3 if one is broken.

    Reads bounds (TOML) and results. Prints a table, or JSON lines with --json. A number that could not be measured breaks its
    bounds.

    Example: critic-prm analyze guardrails bounds.toml drift.json
    """
    from critic_prm.data.records.reading import read_records
    from critic_prm.data.records.writing import encode
    from critic_prm.evaluate.analyze.analysis import check, numbers_in, read_bounds, table_of

    rows = [(record.data, record.where) for path in results for record in read_records(path)]
    checked = check(read_bounds(bounds), numbers_in(rows))
    if output.as_json:
        typer.echo(b"".join(encode(asdict(one)) for one in checked), nl=False)
    else:
        _print_tables([table_of(checked)])
    raise typer.Exit(0 if all(one.holds for one in checked) else BROKEN)


def _read_labels(*paths: str) -> Iterator[LabelledTrajectory]:
    from critic_prm.data.label_rows import read_labels

    return (row for path in paths for row in read_labels(path))


def _read_solutions(source: str, reading: InputOptions, limit: int) -> list[Trajectory]:
    """Read the solutions of a file, or at most `limit` of them, evenly spread. Raises InputError if there are none."""
    from critic_prm.cli.running import Input
    from critic_prm.data.label_rows import without_labels
    from critic_prm.errors import InputError
    from critic_prm.evaluate.analyze.analysis import spread_out

    solutions = [without_labels(trajectory) for trajectory in Input(source, reading)]
    if not solutions:
        raise InputError(source, "the file has no solutions")
    return spread_out(solutions, limit)


def _analysis(name: str) -> Any:
    """The function of an analysis, which is called as its module."""
    return vars(load("analysis", name))[name]


def _run(name: str, critic: str, solutions: Sequence[Trajectory], settings: Any, output: Output, judging: JudgeOptions) -> None:
    """Run an analysis that asks a critic, with progress and cost on stderr; then print it and exit."""
    from critic_prm.cli.running import run_with_progress
    from critic_prm.critics.open import open_critic
    from critic_prm.label.progress import RunStats, describe

    opened, failed = open_critic(critic, judging), False

    async def work(tally: RunStats) -> Analysis:
        nonlocal failed
        try:
            workers = judging.max_connections
            result: Analysis = await _analysis(name)(solutions, opened, settings, workers=workers, tally=tally)
        finally:
            print(describe(tally, opened.client, final=True), file=sys.stderr, flush=True)
        failed = bool(tally.labels["provider_error"])
        return result

    _finish(run_with_progress(opened, work), output, failed)


def _finish(analysis: Analysis, output: Output, failed: bool = False) -> None:
    """Print an analysis, check it against its bounds, and exit; the exit code is 3 if a bound is broken or requests failed."""
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.analyze.analysis import analysis_to_json, check, read_bounds, table_of

    bounds = [] if output.bounds is None else [b for b in read_bounds(output.bounds) if b.analysis == analysis.name]
    if output.bounds is not None and not bounds:
        raise UsageError(f"{output.bounds} has no bounds for this analysis; add a table [{analysis.name}]")
    checked = check(bounds, {analysis.name: analysis.numbers})
    if output.write(analysis_to_json(analysis)):
        _print_analysis(analysis)
    if checked:
        _print_tables([table_of(checked)], stderr=output.as_json)
    raise typer.Exit(BROKEN if failed or not all(one.holds for one in checked) else 0)


def _print_analysis(analysis: Analysis) -> None:
    """Print the findings first, then the tables, then the notes."""
    console = safe_console(highlight=False)
    for finding in analysis.findings:
        console.print(f"! {finding}", style="bold")
    if not analysis.findings:
        console.print("no problem found")
    console.print()
    _print_tables(analysis.tables)
    for note in analysis.notes:
        console.print(note, style="dim")


def _print_tables(tables: Sequence[Table], *, stderr: bool = False) -> None:
    console = safe_console(stderr=stderr)
    for table in tables:
        console.print(table.title, style="italic", highlight=False)
        shown = plain_table(table.columns, (map(_cell, row) for row in table.rows), gap=1)
        if not table.columns[1]:  # the text of a step
            shown.columns[1].justify = "left"
        console.print(shown)
        console.print()


def _cell(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.3f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
