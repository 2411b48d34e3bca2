"""critic-prm prompts: list styles, show their templates, and render the messages sent to a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.cli.options import ReadingOptions
from critic_prm.terminal import safe_console

app = typer.Typer()

Style = Annotated[str, typer.Argument(metavar="STYLE", help="A name from `critic-prm prompts list`, or a .jinja file.")]


@app.command("list")
def list_styles() -> None:
    """List the packaged styles with the unit of one reply, the reader and the purpose.

    Reads nothing. Prints a table.

    Example: critic-prm prompts list
    """
    from rich import box
    from rich.table import Table

    from critic_prm.styles.prompt import open_style, style_names

    table = Table("style", "per", "reader", "what it asks for", box=box.SIMPLE_HEAD, pad_edge=False)
    for style in map(open_style, style_names()):
        table.add_row(style.name, style.per, style.reader, style.about)
    safe_console().print(table, markup=False)


@app.command()
def show(style: Style) -> None:
    """Show the template of a style, as a start for your own.

    Reads a style (STYLE). Prints its Jinja2 template.

    Example: critic-prm prompts show stepwise > mine.jinja
    """
    from critic_prm.styles.prompt import open_style

    typer.echo(open_style(style).source, nl=False)


@app.command()
def render(
    style: Style,
    input: Annotated[
        Path, typer.Option("--input", "-i", metavar="FILE", help="Trajectories in any format that `convert` reads; - is stdin.")
    ],
    step: Annotated[int | None, typer.Option(min=0, help="Step to ask about, starting at 0; default: every step.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Render at most N trajectories.")] = 1,
    reference: Annotated[bool, typer.Option("--with-reference", help="Include the reference answer, if there is one.")] = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Render the exact messages that a judge would receive.

    Reads a style (STYLE) and trajectories (--input). Prints the messages; nothing is sent.

    Example: critic-prm prompts render stepwise --input solutions.jsonl --step 2
    """
    from itertools import islice

    from critic_prm.cli.running import Input
    from critic_prm.styles.prompt import expectations, open_style, transcript

    asked = open_style(style)
    for trajectory in islice(Input(str(input), reading), limit):
        for one in [step] if step is not None else [expected.step for expected in expectations(asked, trajectory)]:
            typer.echo(transcript(asked, trajectory, one, reference=reference))
