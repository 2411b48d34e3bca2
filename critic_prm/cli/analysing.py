"""Run an analysis with progress and cost on stderr, print its tables and check its bounds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from critic_prm import signals
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from critic_prm.data.critic import Critic
    from critic_prm.data.trajectory import Trajectory
    from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table
    from critic_prm.label.run import RunStats

BROKEN = 3


def read_solutions(source: str, format: str, limit: int | None) -> list[Trajectory]:
    """Read the solutions of a file, or at most `limit` of them, evenly spread. Raises InputError if there are none."""
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.label_rows import without_labels
    from critic_prm.errors import InputError
    from critic_prm.evaluate.analyze.analysis import spread_out

    found = [without_labels(trajectory) for trajectory in read_trajectories(source, format)]
    if not found:
        raise InputError(source, "the file contains no solutions")
    return spread_out(found, limit) if limit else found


def run(critic: Critic, analyse: Callable[[Critic, RunStats], Coroutine[Any, Any, Analysis]]) -> tuple[Analysis, int]:
    """Run an analysis that asks a critic. Returns it with the exit code: 0, or 3 if requests failed."""
    from critic_prm.label.progress import describe, watch
    from critic_prm.label.run import RunStats

    tally = RunStats()
    client = critic.client

    async def body() -> Analysis:
        watching = asyncio.create_task(watch(tally, client))
        try:
            return await analyse(critic, tally)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await critic.close()
            print(describe(tally, client, final=True), file=sys.stderr, flush=True)

    return signals.run(body()), BROKEN if tally.labels.get("provider_error") else 0


def finish(analysis: Analysis, as_json: bool, out: Path | None, bounds: Path | None, code: int = 0) -> None:
    """Print an analysis, check it against its bounds, and exit; the exit code is 3 if a bound is broken."""
    from critic_prm.data.records.reading import encode, write_records
    from critic_prm.errors import UsageError
    from critic_prm.evaluate.analyze.analysis import analysis_to_json
    from critic_prm.evaluate.analyze.guardrails import check, read_bounds, table_of

    checked = []
    if bounds is not None:
        mine = [bound for bound in read_bounds(bounds) if bound.analysis == analysis.name]
        if not mine:
            raise UsageError(f"{bounds} has no bounds for this analysis; add a table [{analysis.name}]")
        checked = check(mine, {analysis.name: analysis.numbers})
    row = analysis_to_json(analysis)
    if out is not None:
        write_records(out, [row])
    if as_json:
        typer.echo(encode(row), nl=False)
    else:
        print_analysis(analysis)
    if checked:
        print_tables([table_of(checked)], stderr=as_json)
    raise typer.Exit(BROKEN if not all(one.holds for one in checked) else code)


def print_analysis(analysis: Analysis) -> None:
    """Print the findings first, then the tables, then the notes."""

    console = safe_console()
    for finding in analysis.findings:
        console.print(f"! {finding}", style="bold", highlight=False, markup=False)
    if not analysis.findings:
        console.print("nothing found that is wrong", highlight=False)
    console.print()
    print_tables(analysis.tables)
    for note in analysis.notes:
        console.print(note, style="dim", highlight=False, markup=False)


def print_tables(tables: Sequence[Table], *, stderr: bool = False) -> None:
    """Print tables to stdout, or to stderr."""
    from rich.table import Table as Shown
    from rich.text import Text

    console = safe_console(stderr=stderr)
    for table in tables:
        console.print(Text(table.title, style="italic"))
        shown = Shown(box=None, padding=(0, 1, 0, 0))
        for place, name in enumerate(table.columns):
            texts = any(isinstance(row[place], str) and row[place] for row in table.rows) and place < 2
            left = place == 0 or (texts and not name)
            shown.add_column(Text(name), justify="left" if left else "right", overflow="fold")
        for row in table.rows:
            shown.add_row(*(Text(_cell(cell)) for cell in row))
        console.print(shown)
        console.print()


def _cell(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, float):
        return f"{cell:.3f}"
    return f"{cell:,}" if isinstance(cell, int) else cell
