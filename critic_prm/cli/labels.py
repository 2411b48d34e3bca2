"""critic-prm labels: parse the replies of a label file again, import people's answers, and merge them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from critic_prm.annotate.solutions import Selection
from critic_prm.cli.fields import Fields
from critic_prm.cli.options import InputOptions
from critic_prm.engine.options import JudgeOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from critic_prm.annotate.agreement import Agreement

app = typer.Typer()

Out = Annotated[str, typer.Option("-o", "--out", metavar="FILE", help="Label file to write; - is stdout.")]


@app.command()
def reread(
    source: Annotated[str, typer.Argument(metavar="LABELS", help="A label file; - is stdin.")],
    out: Out = "-",
    limit: Annotated[int | None, typer.Option(min=1, help="Process at most N rows.")] = None,
    *,
    options: Annotated[JudgeOptions, Fields(only=("style", "db"))],
) -> None:
    """Parse the cached replies of a label file again, for free, and report what changed.

    Reads a label file (LABELS) and the cache (--db). Writes the label file (-o). For a style of your own, give its file
    (--style). Replies that are not in the cache keep their verdicts. Exits with code 3 if labels are still unusable.

    Example: critic-prm labels reread labels.jsonl -o labels.new.jsonl
    """
    from itertools import islice

    from critic_prm.data.label_rows import label_row, read_labels
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.engine.cache import Cache
    from critic_prm.label.reread import Changes
    from critic_prm.label.reread import reread as reread_rows

    changes, failed = Changes(), 0
    cache = Cache(options.cache, readonly=True)
    try:
        with RecordWriter(out) as sink:
            for trajectory, label, card in reread_rows(islice(read_labels(source), limit), cache, changes, options.style):
                sink.write(label_row(trajectory, label, card))
                failed += label.status != "ok"
    finally:
        cache.close()
    for line in changes.lines():
        typer.echo(line, err=True)
    raise typer.Exit(3 if failed else 0)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="LABELS", help="A label file; - is stdin.")],
    answers: Annotated[
        str,
        typer.Argument(
            metavar="ANSWERS",
            help="What `annotate` or `labels merge` wrote, a filled-in escalate.jsonl, or Label Studio's JSON.",
        ),
    ],
    out: Out = "-",
    gold: Annotated[
        bool, typer.Option("--gold", help="Write the answers as gold labels of the trajectories, and only answered rows.")
    ] = False,
) -> None:
    """Apply people's answers to a label file, or write them as gold labels.

    Reads a label file (LABELS; with --gold, trajectories in any format) and the answers (ANSWERS). Writes the label file (-o):
    an answer replaces the label of its row. With --gold, the labels of critics stay, and the answers become `label` and
    `step_labels`, which `evaluate`, `calibrate` and `report` read.

    Example: critic-prm labels import labels.jsonl escalate.jsonl -o final.jsonl
    """
    from critic_prm.annotate.people import read_human_answers
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.data.human import with_answers, with_gold
    from critic_prm.data.label_rows import is_labelled
    from critic_prm.data.records.reading import RecordWriter, read_records
    from critic_prm.data.trajectory import trajectory_to_json
    from critic_prm.errors import InputError

    def labelled() -> Iterator[tuple[dict[str, Any], str]]:
        for record in read_records(source):
            if not isinstance(record.data, dict) or not is_labelled(record.data):
                problem = "this is not a row of a label file"
                raise InputError(record.where, problem, "label the trajectories first, or write gold labels with --gold")
            yield record.data, record.where

    given = read_human_answers(answers)
    with RecordWriter(out) as sink:
        if gold:
            for trajectory in read_trajectories(source):
                if (answer := given.of(trajectory)) is not None:
                    sink.write(trajectory_to_json(with_gold(trajectory, answer)))
        else:
            for row in with_answers(labelled(), given):
                sink.write(row)
    counts = [f"{len(given.used):,} answered by a person", f"{given.open:,} not answered yet"]
    if missing := len(given.answers) - len(given.used):
        counts.append(f"{missing:,} answered but not in {source}")
    typer.echo(f"{sink.rows:,} rows: {', '.join(counts)}", err=True)


@app.command()
def merge(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="ANSWERS...", help="Answers of two or more people: files of `annotate`, or JSON of Label Studio."
        ),
    ],
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="FILE", help="Write the merged answers to this file.")
    ] = None,
    disagreements: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the solutions on which people disagree, for `annotate`.")
    ] = None,
    adjudicated: Annotated[
        str | None, typer.Option(metavar="FILE", help="Answers that decide the disagreements, as `annotate` writes them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Merge the answers of several people and show how well they agree.

    Reads answers (ANSWERS). Prints the share of equal answers and Cohen's kappa with 95% intervals; writes the merged answers
    (-o) and the disagreements on request. A solution is merged if all who decided it name the same first error and no two gave
    a step different verdicts. Open the file of disagreements with `annotate` to decide them, then merge with --adjudicated.

    Example: critic-prm labels merge ada.jsonl bob.jsonl -o merged.jsonl
    """
    from critic_prm.annotate.agreement import merge as merge_answers
    from critic_prm.annotate.agreement import pairs_of
    from critic_prm.annotate.people import read_people
    from critic_prm.data.human import read_annotations
    from critic_prm.data.records.writing import encode, write_records
    from critic_prm.errors import UsageError

    read = [(name, source, rows) for source in sources for name, rows in read_people(source)]
    names = [name for name, _, _ in read]
    unique = "" not in names and len({*names}) == len(names)
    people = [(name if unique else f"{name} in {source}".removeprefix(" in "), rows) for name, source, rows in read]
    if len(people) < 2:
        raise UsageError("labels merge needs the answers of at least two people")
    merged = merge_answers(people, read_annotations(adjudicated) if adjudicated else None)
    pairs = pairs_of(people)
    if as_json:
        found = {"agreement": {pair: [one.to_json() for one in each] for pair, each in pairs}, "solutions": merged.counts}
        typer.echo(encode(found), nl=False)
    else:
        _print_agreement(pairs, merged.counts)
    for path, rows in ((out, merged.rows), (disagreements, merged.disagreements)):
        if path is not None:
            typer.echo(f"{path}: {write_records(path, rows):,} rows", err=True)


@app.command()
def export(
    source: Annotated[str, typer.Argument(metavar="FILE", help="A label file, or trajectories in any format; - is stdin.")],
    to: Annotated[Literal["label-studio", "argilla"], typer.Option(help="Annotation tool.")],
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FILE", help="File to write; Label Studio and Argilla need .json.")
    ],
    setup: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Also write the labelling configuration (XML) or the dataset's settings (JSON)."),
    ] = None,
    predictions: Annotated[
        bool, typer.Option("--predictions/--no-predictions", help="Include what judges say, as pre-annotations.")
    ] = True,
    *,
    selection: Selection,
    reading: Annotated[InputOptions, Fields(without=("limit",))],
) -> None:
    """Export solutions to an annotation tool: Label Studio or Argilla.

    Reads solutions (FILE). Writes tasks or records (-o), and on request the configuration of the project (--setup).
    `labels import` and `labels merge` read Label Studio's JSON export.

    Example: critic-prm labels export labels.jsonl --to argilla -o records.json
    """
    from critic_prm.annotate import argilla, label_studio
    from critic_prm.annotate.solutions import Solutions
    from critic_prm.cli.running import Input
    from critic_prm.data.records.writing import encode, write_records, write_whole
    from critic_prm.errors import UsageError

    if not out.endswith(".json"):
        raise UsageError(f"-o is {out!r}; Label Studio and Argilla read a JSON array: choose a name that ends in .json")
    solutions = Solutions(Input(source, reading), selection)
    places = range(len(solutions))
    if to == "label-studio":
        rows, form = (label_studio.task(solutions[at], predictions) for at in places), label_studio.CONFIG.encode()
    else:
        short = [at for at in places if solutions.step_count(at) <= argilla.MOST_STEPS]
        most = max(map(solutions.step_count, short), default=1)
        rows, form = (argilla.record(solutions[at], predictions) for at in short), encode(argilla.settings(most))
        if left := len(places) - len(short):
            typer.echo(f"left out: {left:,} solutions with more than {argilla.MOST_STEPS} steps", err=True)
    written = write_records(out, rows)
    solutions.close()
    if setup is not None:
        write_whole(setup, form)
    typer.echo(
        f"{out}: {written:,} {'tasks' if to == 'label-studio' else 'records'}" + (f"; {setup}" if setup else ""), err=True
    )


def _print_agreement(pairs: Sequence[tuple[str, Sequence[Agreement]]], counts: Mapping[str, int]) -> None:
    from critic_prm.terminal import interval, percent, plain_table, safe_console

    console = safe_console()
    for pair, each in pairs:
        rows = []
        for one in each:
            alike, bounds = one.alike_interval, interval(one.kappa_interval.low, one.kappa_interval.high, ".2f")
            kappa = "-" if one.kappa is None else f"{one.kappa:.2f}{bounds}"
            rows.append((one.what, f"{one.items:,}", percent(one.alike, alike.low, alike.high), kappa))
        console.print(f"{pair}, with 95% intervals by problem", highlight=False)
        console.print(plain_table(("agreement on", "both decided", "% agreement", "Cohen's kappa"), rows))
    states = ("agree", "disagree", "adjudicated", "by one", "undecided")
    console.print(", ".join(f"{state}: {counts[state]:,}" for state in states if counts[state]), highlight=False)
