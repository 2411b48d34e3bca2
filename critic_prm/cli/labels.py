"""critic-prm labels: parse the replies of a label file again, and import human answers."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.fields import Fields
from critic_prm.engine.options import JudgeOptions

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

    Reads a label file (LABELS) and the cache (--db). Writes the label file (-o). A custom style is found by its file (--style).
    Replies that are not in the cache keep their verdicts. Exits with code 3 if labels are still unusable.

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
    answers: Annotated[str, typer.Argument(metavar="ANSWERS", help="A filled-in escalate.jsonl of a cascade.")],
    out: Out = "-",
) -> None:
    """Apply the answers of a person to the rows of a label file that no judge could decide.

    Reads a label file (LABELS) and the answers (ANSWERS). Writes the label file (-o).

    Example: critic-prm labels import labels.jsonl escalate.jsonl -o final.jsonl
    """
    from critic_prm.data.human import read_answers, with_answers
    from critic_prm.data.label_rows import is_labelled
    from critic_prm.data.records.reading import RecordWriter, read_records
    from critic_prm.errors import InputError

    given = read_answers(answers)
    with RecordWriter(out) as sink:
        for record in read_records(source):
            if not isinstance(record.data, dict) or not is_labelled(record.data):
                raise InputError(record.where, "this is not a row of a label file", "label the trajectories first, then import")
            for row in with_answers([(record.data, record.where)], given):
                sink.write(row)
    counts = [f"{len(given.used):,} answered by a person", f"{given.open:,} not answered yet"]
    if missing := len(given.answers) - len(given.used):
        counts.append(f"{missing:,} answered but not in {source}")
    typer.echo(f"{sink.rows:,} rows: {', '.join(counts)}", err=True)
