"""critic-prm convert: convert trajectories from one dataset format to another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from critic_prm.data.formats.common import Options


def convert(
    source: Annotated[str | None, typer.Argument(metavar="IN", help="File to read; - is stdin.", show_default=False)] = None,
    out: Annotated[
        str, typer.Option("-o", "--out", help="File to write; its suffix sets the file type; - is stdout (JSONL).")
    ] = "-",
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="FORMAT", help="Format of IN; auto detects it from the fields.", envvar="CRITIC_PRM_CONVERT_FROM"
        ),
    ] = "auto",
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="Format to write.")] = "native",
    *,
    options: Options,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Report and skip invalid rows; exit with code 3.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the formats and exit.")] = False,
) -> None:
    """Convert trajectories from one dataset format to another.

    Reads IN and writes -o. Reports on stderr which rows were left out and which fields the target format cannot represent.

    Example: critic-prm convert prm800k.jsonl --to processbench -o out.jsonl
    """
    from critic_prm.data.formats.convert import Report, read_trajectories, write_trajectories
    from critic_prm.errors import UsageError

    if list_:
        _print_formats()
        return
    if source is None:
        raise UsageError("name the file to convert, or - for stdin; --list shows the formats")
    if Path(out).is_file() and Path(source).exists() and Path(out).samefile(source):
        raise UsageError(
            f"{out} is the input itself, and what the target cannot represent would be lost; write to another file"
        )
    report = Report()
    trajectories = read_trajectories(
        source, from_, options, on_error="skip" if skip_bad else "stop", complain=_complain, report=report
    )
    # --index-base applies to IN only; the target format has its own step numbers
    write_trajectories(out, trajectories, to, replace(options, index_base=None), report)
    for line in report.lines():
        typer.echo(line, err=True)
    if report.dropped["unreadable"]:
        raise typer.Exit(3)


def _complain(error: Exception) -> None:
    typer.echo(f"skipped {error}", err=True)


def _print_formats() -> None:
    from textwrap import wrap

    from critic_prm.data.formats.convert import formats

    # first the native format, then formats that can be read and written, then read-only ones
    for name, own in sorted(formats().items(), key=lambda row: (row[0] != "native", row[1].write is None, row[0])):
        first = "" if own.index_base is None else f"first step {own.index_base}; "
        says = f"labels: {own.labels}; {first}neutral: {own.neutral}; after the first error: {own.after_error}"
        typer.echo(f"{name} ({'reads' if own.write is None else 'reads and writes'})")
        for text in (own.about, says):
            # do not break on hyphens, so that names of fields and formats stay whole
            typer.echo("\n".join(wrap(text, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)))
