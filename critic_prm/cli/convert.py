"""critic-prm convert: a file of trajectories in one dataset's convention in, the same in another's out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def convert(
    source: Annotated[
        str | None, typer.Argument(metavar="IN", help="The file to read; - is stdin.", show_default=False)
    ] = None,
    out: Annotated[str, typer.Option("-o", "--out", help="The file to write, by its suffix; - is stdout (JSONL).")] = "-",
    from_: Annotated[
        str,
        typer.Option(
            "--from", metavar="FORMAT", help="What IN is; auto tells by its fields.", envvar="CRITIC_PRM_CONVERT_FROM"
        ),
    ] = "auto",
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help="What to write.")] = "native",
    neutral: Annotated[
        str, typer.Option(help="Neutral steps: keep them, take them for good or bad, or drop the label.")
    ] = "keep",
    index_base: Annotated[
        int | None, typer.Option(min=0, max=1, help="What IN calls its first step, if not what its format does.")
    ] = None,
    after_error: Annotated[str, typer.Option(help="Labels of IN after the first error: null (unjudged) or keep.")] = "null",
    alternatives: Annotated[
        str, typer.Option(help="Candidates of a step: the chosen path, or all, each a trajectory.")
    ] = "chosen",
    human_steps: Annotated[str, typer.Option(help="Steps a labeler wrote without rating them: null or good.")] = "null",
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Pass over rows that cannot be read, and exit with 3.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the formats and stop.")] = False,
) -> None:
    """Convert trajectories from one format to another, and say what was left out and what the target cannot say."""
    from critic_prm.data.formats.convert import Report, options_from, read_trajectories, write_trajectories
    from critic_prm.errors import UsageError

    if list_:
        _print_formats()
        return
    if source is None:
        raise UsageError("name the file to convert, or - for stdin; --list shows the formats")
    if Path(out).is_file() and Path(source).exists() and Path(out).samefile(source):
        raise UsageError(f"{out} is the input itself, and what the target cannot say would be lost; write to another file")
    chosen = {"neutral": neutral, "after_error": after_error, "alternatives": alternatives, "human_steps": human_steps}
    options = options_from(chosen, index_base)
    report = Report()
    trajectories = read_trajectories(
        source, from_, options, on_error="skip" if skip_bad else "stop", complain=_complain, report=report
    )
    # step numbers of the target are its own: --index-base speaks of IN
    write_trajectories(out, trajectories, to, options_from(chosen, None), report)
    for line in report.lines():
        typer.echo(line, err=True)
    if report.dropped["unreadable"]:
        raise typer.Exit(3)


def _complain(error: Exception) -> None:
    typer.echo(f"skipped {error}", err=True)


def _print_formats() -> None:
    from textwrap import wrap

    from critic_prm.data.formats.convert import table

    # ours first, then what goes both ways, then what is only read
    for name, what, writes, own in sorted(table(), key=lambda row: (row[0] != "native", not row[2], row[0])):
        first = "" if own.index_base is None else f"first step {own.index_base}; "
        says = f"labels: {own.labels}; {first}neutral: {own.neutral}; after the first error: {own.after_error}"
        typer.echo(f"{name} ({'reads and writes' if writes else 'reads'})")
        for text in (what, says):
            # on hyphens nothing is broken: names of fields and formats stay whole
            typer.echo("\n".join(wrap(text, 78, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)))
