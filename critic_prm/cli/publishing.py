"""critic-prm dataset stats, card, export: describe a training set, or export it for another trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.terminal import safe_console

Name = Annotated[str, typer.Option("--name", help="Name of the data set in the card.")]
License = Annotated[str, typer.Option("--license", help="Licence stated in the card, such as mit; default: none.")]
Language = Annotated[list[str] | None, typer.Option("--language", help="Language code for the card; may be repeated.")]


def stats(
    files: Annotated[
        list[str], typer.Argument(metavar="IN...", help="Label files, trajectories or training rows; - is stdin.")
    ],
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also plot to a .png, .svg or .pdf file (extra: plot).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Count labels by class, position of the first error, length and source.

    Reads label files, trajectories or training rows (IN). Prints tables, or JSON with --json; writes a plot on request
    (--plot).

    Example: critic-prm dataset stats labels.jsonl --plot labels.png
    """
    import json

    from critic_prm.datasets.describe import print_statistics, statistics

    summary = statistics(files)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        print_statistics(summary, safe_console())
    if plot is not None:
        from critic_prm.datasets.describe import plot_statistics

        plot_statistics(summary, plot)
        typer.echo(f"drawn to {plot}", err=True)


def card(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a training set or of an exported one.")],
    name: Name = "",
    license_: License = "",
    language: Language = None,
) -> None:
    """Write a dataset card.

    Reads the files of a training set (DIR). Writes README.md into the folder, with counts from the files and the settings that
    `load_dataset` needs.

    Example: critic-prm dataset card dataset --name my-labels --license mit
    """
    from critic_prm.datasets.describe import About, write_card

    path = write_card(folder, About(name, license_, tuple(language or ())))
    typer.echo(f"wrote {path}", err=True)


def export(
    source: Annotated[str, typer.Argument(metavar="IN", help="Folder of a training set, a label file, or trajectories.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="datasets, parquet, or a format from `convert --list`.")],
    out: Annotated[str, typer.Option("-o", "--out", help="File to write; a folder if IN is one, and for datasets.")],
    neutral: Annotated[
        str, typer.Option(help="Neutral steps: keep, good or bad (treat as such), or drop (remove the label).")
    ] = "keep",
    samples: Annotated[str, typer.Option(help="For thinkprm: the critique of the first judgement, or of all.")] = "first",
    name: Name = "",
    license_: License = "",
    language: Language = None,
) -> None:
    """Export a training set, or labels with critiques, in the format of a trainer.

    Reads a training set, a label file or trajectories (IN). Writes a file or a folder (-o).

    Example: critic-prm dataset export dataset --to parquet -o exported
    """
    from critic_prm.cli.selecting import tell
    from critic_prm.data.formats.convert import Options
    from critic_prm.datasets.describe import About
    from critic_prm.datasets.export import export as run
    from critic_prm.datasets.export import export_lines

    about = About(name, license_, tuple(language or ()))
    report = run(source, to, out, Options(neutral=neutral), samples=samples, about=about)  # type: ignore[arg-type]
    tell(report, out, export_lines(report))
