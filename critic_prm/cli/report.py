"""critic-prm report: label files and evaluations in, one HTML file out, and plots for papers if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="LABELS|EVAL...", help="What `label`, `evaluate --save` or `evaluate -o` wrote; 1 to 8 files."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="What the page is called.")] = "critic-prm report",
    plots: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the charts as PNG files.")] = None,
    dpi: Annotated[int, typer.Option(min=50, max=1200, help="Dots per inch of the PNG files.")] = 300,
) -> None:
    """One self-contained page: trajectories with their steps coloured by P(correct), critiques, charts, runs side by side.

    It opens from a disk, loads nothing from a network, and shows what judges wrote as text alone.
    """
    from critic_prm.evaluate.report.html import write_report
    from critic_prm.evaluate.report.runs import read_runs

    if plots is not None:
        from critic_prm.evaluate.report.plots import require_extra

        require_extra()
    runs = read_runs(sources)
    size = write_report(runs, out, title)
    rows = sum(len(run.rows) for run in runs)
    typer.echo(f"{out}: {rows:,} labels of {len(runs)} run{'s'[: len(runs) > 1]}, {size / 1e6:.1f} MB", err=True)
    if plots is not None:
        from critic_prm.evaluate.report.plots import write_plots

        for path in write_plots(runs, plots, dpi):
            typer.echo(str(path), err=True)
