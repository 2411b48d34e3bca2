"""critic-prm report: write an HTML report of label files and evaluations, with optional PNG plots."""

from __future__ import annotations

from pathlib import Path
from shlex import join
from typing import Annotated

import typer

from critic_prm.registry import extra


def report(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="LABELS|EVAL...", help="1 to 8 files written by `label`, `evaluate --save` or `evaluate -o`."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.")] = "critic-prm report",
    plots: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write the charts to this folder as PNG files.")
    ] = None,
    dpi: Annotated[int, typer.Option(min=50, max=1200, help="Resolution of the PNG files in dots per inch.")] = 300,
) -> None:
    """Write a self-contained HTML report of one or several runs.

    Reads label files and evaluations. Writes one HTML page (-o): trajectories with steps coloured by P(correct), critiques,
    charts, and runs side by side. The page loads nothing from the network and shows replies of judges as plain text.

    Example: critic-prm report labels.jsonl -o report.html
    """
    from datetime import UTC, datetime

    from critic_prm import __version__
    from critic_prm.evaluate.report.html import Made, write_report
    from critic_prm.evaluate.report.runs import read_runs

    if plots is not None:
        extra("matplotlib", "plot", "a plot")
    runs = read_runs(sources)
    command = join(["critic-prm", "report", *sources, "-o", str(out)])
    made = Made(datetime.now(UTC).isoformat(timespec="seconds"), f"critic-prm {__version__}", command)
    size = write_report(runs, out, title, made)
    rows = sum(len(run.rows) for run in runs)
    typer.echo(f"{out}: {rows:,} labels of {len(runs)} run{'s'[: len(runs) > 1]}, {size / 1e6:.1f} MB", err=True)
    if plots is not None:
        from critic_prm.evaluate.report.plots import write_plots

        for path in write_plots(runs, plots, dpi):
            typer.echo(str(path), err=True)
