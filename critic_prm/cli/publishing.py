"""critic-prm dataset stats, card, export: a dataset in; what it holds, its card, or the same for another trainer out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.terminal import safe_console

Name = Annotated[str, typer.Option("--name", help="What the card calls the data set.")]
License = Annotated[str, typer.Option("--license", help="The licence the card states, such as mit; none when not given.")]
Language = Annotated[list[str] | None, typer.Option("--language", help="A language code for the card; may be repeated.")]


def stats(
    files: Annotated[list[str], typer.Argument(metavar="IN...", help="Label files, trajectories, training rows; - is stdin.")],
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw it to a .png, .svg or .pdf (extra: plot).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Count labels by class, place of the first error, length and source."""
    import json

    from critic_prm.datasets.stats import print_statistics, statistics

    summary = statistics(files)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        print_statistics(summary, safe_console())
    if plot is not None:
        from critic_prm.datasets.plot import plot_statistics

        plot_statistics(summary, plot)
        typer.echo(f"drawn to {plot}", err=True)


def card(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A training set's folder, or an exported one.")],
    name: Name = "",
    license_: License = "",
    language: Language = None,
) -> None:
    """Write README.md into the folder: the card by which `load_dataset` reads it, with counts from the files."""
    from critic_prm.datasets.card import About, write_card

    path = write_card(folder, About(name, license_, tuple(language or ())))
    typer.echo(f"wrote {path}", err=True)


def export(
    source: Annotated[str, typer.Argument(metavar="IN", help="A training set's folder, a label file, or trajectories.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="datasets, parquet, or a format of convert --list.")],
    out: Annotated[str, typer.Option("-o", "--out", help="A file; a folder when IN is one, and for datasets.")],
    neutral: Annotated[
        str, typer.Option(help="Neutral steps: keep them, take them for good or bad, or drop the label.")
    ] = "keep",
    samples: Annotated[str, typer.Option(help="thinkprm: the chain of the first judgement, or of all.")] = "first",
    name: Name = "",
    license_: License = "",
    language: Language = None,
) -> None:
    """Write a training set, or labels with their critiques, in the convention of a trainer."""
    from critic_prm.cli.selecting import tell
    from critic_prm.data.formats.convert import options_from
    from critic_prm.datasets.card import About
    from critic_prm.datasets.export import export as run
    from critic_prm.datasets.export import export_lines

    about = About(name, license_, tuple(language or ()))
    report = run(source, to, out, options_from({"neutral": neutral}), samples=samples, about=about)  # type: ignore[arg-type]
    tell(report, out, export_lines(report))
