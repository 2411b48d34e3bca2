"""critic-prm convert: convert trajectories from one dataset format to another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.options import BatchOptions
from critic_prm.data.formats.common import Options
from critic_prm.option import Option

if TYPE_CHECKING:
    from critic_prm.data.records.reading import OnError


@dataclass(frozen=True, slots=True)
class ConvertRun:
    """Where to write, and in which formats."""

    out: Annotated[str, Option(("-o", "--out"), metavar="FILE")] = "-"
    """File to write; its suffix sets the file type; - is stdout (JSONL)."""
    from_: Annotated[str, Option(("--from",), metavar="FORMAT", envvar="CRITIC_PRM_CONVERT_FROM")] = "auto"
    """Format of IN; auto detects it from the fields."""
    to: Annotated[str, Option(metavar="FORMAT")] = "native"
    """Format to write."""
    segment_judge: str | None = None
    """Judge that marks the steps for --segment llm: provider/MODEL."""
    skip_bad: bool = False
    """Report and skip invalid rows; exit with code 3."""
    list: bool = False
    """List the formats and exit."""


def convert(
    source: Annotated[str | None, typer.Argument(metavar="IN", help="File to read; - is stdin.", show_default=False)] = None,
    *,
    run: ConvertRun,
    options: Options,
    judging: BatchOptions,
) -> None:
    """Convert trajectories from one dataset format to another.

    Reads IN and writes -o. Reports on stderr which rows were left out and which fields the target format cannot represent.

    Example: critic-prm convert prm800k.jsonl --to processbench -o out.jsonl
    """
    from critic_prm.data.formats.convert import Report, read_trajectories, write_trajectories
    from critic_prm.errors import UsageError

    if run.list:
        _print_formats()
        return
    if source is None:
        raise UsageError("name the file to convert, or - for stdin; --list shows the formats")
    if Path(run.out).is_file() and Path(source).exists() and Path(run.out).samefile(source):
        problem = "is the input itself, and what the target cannot represent would be lost"
        raise UsageError(f"{run.out} {problem}; write to another file")
    if (options.segment == "llm") != (run.segment_judge is not None):
        raise UsageError("--segment llm and --segment-judge provider/MODEL belong together; give both or neither")
    report = Report()
    on_error: OnError = "skip" if run.skip_bad else "stop"
    trajectories = read_trajectories(source, run.from_, options, on_error, lambda error: _say(f"skipped {error}"), report)
    if options.segment == "llm" and run.segment_judge:
        from critic_prm import signals
        from critic_prm.label.segmenting import mark_steps

        trajectories = iter(signals.run(mark_steps(trajectories, run.segment_judge, judging, report.steps)))
    # --index-base applies to IN only; the target format has its own step numbers
    write_trajectories(run.out, trajectories, run.to, replace(options, index_base=None), report)
    for line in [*report.lines(), *report.steps.lines()]:
        _say(line)
    if report.dropped["unreadable"]:
        raise typer.Exit(3)


def _say(line: str) -> None:
    typer.echo(line, err=True)


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
