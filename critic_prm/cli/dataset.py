"""critic-prm dataset: build, filter, mix, describe and export training sets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from critic_prm.cli import sft
from critic_prm.cli.fields import Fields
from critic_prm.data.formats.common import Options
from critic_prm.datasets.build import DatasetOptions
from critic_prm.datasets.consensus import ConsensusOptions
from critic_prm.datasets.decontaminate import DecontaminateOptions
from critic_prm.datasets.describe import About
from critic_prm.datasets.duplicates import DedupeOptions
from critic_prm.datasets.filters import FilterOptions
from critic_prm.datasets.mix import MixOptions
from critic_prm.datasets.pairs import PairOptions
from critic_prm.terminal import safe_console

Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="File to write; - is stdout.")]
In = Annotated[
    str, typer.Argument(metavar="IN", help="A label file, trajectories in any format, or training rows; - is stdin.")
]
Removed = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="List removed rows with their matches here; default: OUT.removed.jsonl."),
]

Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Leave out problems of this benchmark, by the rules of `dataset decontaminate`: copies, near copies, and the same"
        " with other names and numbers. May be repeated.",
    ),
]

app = typer.Typer()


@app.command()
def build(
    labels: Annotated[
        list[str], typer.Argument(metavar="LABELS...", help="Label files, or trajectories with gold labels; - is stdin.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder to write.")],
    options: DatasetOptions,
    same: DecontaminateOptions,
    exclude: Exclude = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print dataset.json to stdout.")] = False,
) -> None:
    """Build a training set from labels.

    Reads label files, or trajectories with gold labels. Writes train.jsonl, dev.jsonl, test.jsonl and dataset.json, which
    accounts for every row, to a folder (-o). Only judgements with status ok are used. Problems are split by a hash of their
    text: the same problem is never in two splits, and rows added later move no problem to another split.

    Example: critic-prm dataset build labels.jsonl -o dataset --min-agreement 0.75
    """
    from critic_prm.datasets.build import build_dataset
    from critic_prm.datasets.describe import print_dataset

    summary = build_dataset(labels, out, options, exclude=exclude or (), same=same)
    print_dataset(summary, out, safe_console(stderr=True))
    if as_json:
        typer.echo((out / "dataset.json").read_text(encoding="utf-8"), nl=False)


@app.command()
def consensus(
    a: Annotated[str, typer.Argument(metavar="A", help="Labels to keep, usually a judge's label file.")],
    b: Annotated[
        str, typer.Argument(metavar="B", help="Labels to compare with: Monte Carlo labels, gold labels, or a judge's.")
    ],
    options: Annotated[ConsensusOptions, Fields(without=("debias",))],
    out: Out = "-",
    reweight: Annotated[
        bool, typer.Option("--reweight", help="Weight rows by the inverse acceptance rate of their class and position.")
    ] = False,
    resample: Annotated[
        bool, typer.Option("--resample", help="Instead, subsample classes and positions that were accepted more often.")
    ] = False,
) -> None:
    """Keep the trajectories on which two label sources agree.

    Reads two label sources (A, B); rows are joined by id, else by content. Writes the kept rows of A (-o), with the agreed
    labels as gold labels. Reports on stderr how the selection changes the class balance.

    Example: critic-prm dataset consensus judge.jsonl mc.jsonl -o agreed.jsonl
    """
    from critic_prm.datasets.balance import acceptance_lines
    from critic_prm.datasets.consensus import consensus as run
    from critic_prm.errors import UsageError

    if reweight and resample:
        raise UsageError("--reweight and --resample undo the same bias; choose one")
    report = run(a, b, out, replace(options, debias="reweight" if reweight else "resample" if resample else "none"))
    _tell(report, out, acceptance_lines(report))


@app.command("filter")
def filter_(
    source: In,
    options: FilterOptions,
    out: Out = "-",
    preset: Annotated[
        str | None, typer.Option(help="Apply the rules of a published system: thinkprm. Other options are added.")
    ] = None,
) -> None:
    """Keep the rows, and in label files the judgements, that pass all given rules.

    Reads a label file, trajectories or training rows (IN). Writes the kept rows (-o). Reports on stderr how many rows of each
    class every rule dropped.

    Example: critic-prm dataset filter labels.jsonl --ok --complete -o kept.jsonl
    """
    from critic_prm.datasets.filters import filter_rows, preset_rules, rule_lines

    warnings: list[str] = []
    report = filter_rows(source, out, preset_rules(preset, options) if preset else options, warnings.append)
    _tell(report, out, [*rule_lines(report), *(f"warning: {warning}" for warning in warnings)])


@app.command()
def dedupe(
    source: In,
    options: DedupeOptions,
    out: Out = "-",
    exact: Annotated[bool, typer.Option("--exact", help="Remove exact duplicates only.")] = False,
    removed: Removed = None,
) -> None:
    """Remove exact and near duplicates; the first row of each group is kept.

    Reads a label file, trajectories or training rows (IN). Writes the kept rows (-o) and a list of the removed rows with the
    row that each one duplicates (--removed).

    Example: critic-prm dataset dedupe labels.jsonl -o unique.jsonl
    """
    from critic_prm.datasets.duplicates import dedupe as run

    report = run(source, out, replace(options, near=None) if exact else options, _listing(out, removed))
    kept = report["near_copies_with_another_first_error_kept"]
    more = [f"kept {kept:,} near copies whose first error is another one; --across-labels drops them"] if kept else []
    _tell(report, out, more)


@app.command()
def decontaminate(
    source: In,
    against: Annotated[
        list[str], typer.Option("--against", metavar="BENCH", help="Benchmark whose problems to remove; may be repeated.")
    ],
    options: DecontaminateOptions,
    out: Out = "-",
    removed: Removed = None,
) -> None:
    """Remove problems of benchmarks: copies, near copies, and copies with other names and numbers.

    Reads a label file, trajectories or training rows (IN) and benchmarks (--against). Writes the kept rows (-o) and a list of
    the removed rows with their matches (--removed).

    Example: critic-prm dataset decontaminate in.jsonl --against math500.jsonl
    """
    from critic_prm.datasets.decontaminate import contamination_line
    from critic_prm.datasets.decontaminate import decontaminate as run

    report = run(source, against, out, options, _listing(out, removed))
    _tell(report, out, [contamination_line(report)])


@app.command()
def pairs(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="Scored or labelled solutions, output of `refine`, or a tree of `search`.")
    ],
    options: PairOptions,
    out: Out = "-",
) -> None:
    """Make preference pairs for DPO or KTO: better and worse solutions of a problem, or better and worse next steps.

    Reads several solutions per problem with scores or labels (IN). Writes one row per pair (-o), in the columns of a trainer
    (--to). Reports on stderr how many prompts gave a pair, and whether chosen texts are longer than rejected ones.

    Example: critic-prm dataset pairs scored.jsonl -o pairs.jsonl --level step
    """
    from critic_prm.datasets.pairs import pairs as run

    for line in run(source, out, options).lines(out):
        typer.echo(line, err=True)


@app.command()
def mix(
    sources: Annotated[list[str], typer.Argument(metavar="FILE=WEIGHT...", help="Files of rows with their weights.")],
    options: MixOptions,
    out: Out = "-",
) -> None:
    """Draw rows from several files in given proportions and shuffle them.

    Reads files of rows, each with its weight. Writes the mixed rows (-o). Add rows from `generate` families to train only: a
    threshold chosen on such rows in dev does not transfer to other solutions.

    Example: critic-prm dataset mix a.jsonl=0.7 b.jsonl=0.3 -o mixed.jsonl
    """
    from critic_prm.datasets.mix import mix as run
    from critic_prm.datasets.mix import mix_lines, parse_sources

    report = run(parse_sources(sources), out, options)
    _tell(report, out, mix_lines(report))


@app.command()
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

    from critic_prm.datasets.describe import plot_statistics, print_statistics, statistics

    summary = statistics(files)
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
    else:
        print_statistics(summary, safe_console())
    if plot is not None:
        plot_statistics(summary, plot)
        typer.echo(f"drawn to {plot}", err=True)


@app.command()
def card(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a training set or of an exported one.")],
    about: About,
) -> None:
    """Write a dataset card.

    Reads the files of a training set (DIR). Writes README.md into the folder, with counts from the files and the settings that
    `load_dataset` needs.

    Example: critic-prm dataset card dataset --name my-labels --license mit
    """
    from critic_prm.datasets.describe import write_card

    typer.echo(f"wrote {write_card(folder, about)}", err=True)


@app.command()
def export(
    source: Annotated[str, typer.Argument(metavar="IN", help="Folder of a training set, a label file, or trajectories.")],
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="datasets, parquet, or a format from `convert --list`.")],
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FILE|DIR", help="File to write; a folder if IN is one, and for datasets.")
    ],
    options: Annotated[Options, Fields(only=("neutral", "corrected"))],
    about: About,
    samples: Annotated[str, typer.Option(help="For thinkprm: the critique of the first judgement, or of all.")] = "first",
) -> None:
    """Export a training set, or labels with critiques, in the format of a trainer.

    Reads a training set, a label file or trajectories (IN). Writes a file or a folder (-o).

    Example: critic-prm dataset export dataset --to parquet -o exported
    """
    from critic_prm.datasets.export import export as run
    from critic_prm.datasets.export import export_lines

    report = run(source, to, out, options, samples=samples, about=about)  # type: ignore[arg-type]  # checked by export
    _tell(report, out, export_lines(report))


app.command()(sft.sft)


def _tell(report: dict[str, Any], out: str | Path, more: Iterable[str]) -> None:
    """Print the report of a dataset command to stderr."""
    from critic_prm.datasets.rows import lines

    for line in (*lines(report, out), *more):
        typer.echo(line, err=True)


def _listing(out: str, removed: str | None) -> str | None:
    return removed if removed is not None or out == "-" else f"{out}.removed.jsonl"
