"""critic-prm annotate: mark the steps of solutions by hand in a local web page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from critic_prm.annotate.solutions import Selection
from critic_prm.cli.fields import Fields
from critic_prm.cli.options import InputOptions


def annotate(
    source: Annotated[
        str,
        typer.Argument(metavar="FILE", help="A label file, trajectories in any format, or an escalate.jsonl of a cascade."),
    ],
    answers: Annotated[
        Path | None,
        typer.Option(
            "-o", "--answers", metavar="ANSWERS", help="File of your answers, continued if it exists; default: FILE.NAME.jsonl."
        ),
    ] = None,
    annotator: Annotated[str | None, typer.Option(metavar="NAME", help="Your name; default: your user name.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 selects a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
    all_steps: Annotated[
        bool, typer.Option("--all-steps", help="Ask about every step; by default, a solution is done at its first error.")
    ] = False,
    *,
    selection: Selection,
    reading: Annotated[InputOptions, Fields(without=("limit",))],
) -> None:
    """Annotate solutions step by step in a local web page, with the keyboard.

    Reads solutions (FILE). Writes one person's answers (-o), at once after each change; run the same command again to continue.
    `labels import` applies them to a label file, `labels merge` compares two people. The page is reachable from this machine
    only. Stop with Ctrl-C.

    Example: critic-prm annotate labels.jsonl --order uncertain --limit 50
    """
    from critic_prm.annotate.answers import AnswerFile
    from critic_prm.annotate.server import AnnotationServer
    from critic_prm.annotate.session import DECIDED, SKIPPED, Session
    from critic_prm.annotate.solutions import Solutions
    from critic_prm.cli.running import Input
    from critic_prm.errors import InputError, UsageError

    name = annotator if annotator is not None else _user()
    if not name.strip() or len(name) > 100:
        raise UsageError(f"--annotator is {name!r}; give a name of 1 to 100 characters")
    out = answers or _beside(source, name)
    if Path(source).exists() and out.exists() and out.samefile(source):
        raise UsageError(f"{out} is FILE itself; write the answers to another file with -o")
    rows = Input(source, reading)
    solutions = Solutions(rows, selection)
    if not len(solutions):
        raise InputError(source, "there are no solutions to annotate")
    file = AnswerFile(out, name)
    session = Session(source, solutions, file, all_steps=all_steps)
    with AnnotationServer(session, port) as server:
        counts = session.counts()
        doubles = f", {solutions.duplicates:,} duplicates left out" if solutions.duplicates else ""
        typer.echo(f"{len(solutions):,} solutions{doubles}; {counts[DECIDED]:,} decided in {out}", err=True)
        typer.echo(f"open {server.url}  (Ctrl-C stops; everything is saved at once)", err=True)
        with suppress(KeyboardInterrupt), _opened(server.url if browser else None):
            server.serve_forever()
        with session.idle():
            file.close()
            solutions.close()
    counts = session.counts()
    typer.echo(f"{counts[DECIDED]:,} of {len(solutions):,} decided, {counts[SKIPPED]:,} skipped: {out}", err=True)


def _user() -> str:
    """The name of the user, "annotator" for one without a name, as in a container."""
    from getpass import getuser

    try:
        return getuser()
    except (OSError, KeyError):
        return "annotator"


def _beside(source: str, name: str) -> Path:
    """labels.ada.jsonl for labels.jsonl, in the current folder for stdin."""
    import re

    safe = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "annotator"
    path = Path("annotations" if source == "-" else source)
    stem = re.sub(r"(\.(jsonl?|ndjson|csv|tsv|parquet|txt|gz|zst))+$", "", path.name) or path.name
    return path.with_name(f"{stem}.{safe}.jsonl")


@contextmanager
def _opened(url: str | None) -> Iterator[None]:
    """Open the page in a browser, if there is a terminal and a screen.

    The browser gets a file that leads to the page: an address on its command line could be read by all users of this machine.
    """
    import os
    import sys
    import tempfile
    import webbrowser

    screen = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if url is None or not sys.stderr.isatty() or not screen:
        yield
        return
    with tempfile.NamedTemporaryFile("w", prefix="critic-prm-annotate-", suffix=".html") as stream:
        stream.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={url}"><a href="{url}">Annotate</a>')
        stream.flush()
        webbrowser.open(Path(stream.name).as_uri())
        yield
