"""critic-prm prompts: the styles there are, their templates, and what a judge would be sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm.terminal import safe_console

app = typer.Typer(no_args_is_help=True, help="Look at the prompts a judge can be given: list, show, render.")

Style = Annotated[str, typer.Argument(metavar="STYLE", help="A name of `critic-prm prompts list`, or a .jinja file.")]


@app.command("list")
def list_styles() -> None:
    """The packaged styles: what one reply judges, how it is read, and what it is for."""
    from rich import box
    from rich.table import Table

    from critic_prm.styles.prompt import open_style, style_names

    table = Table("style", "per", "reader", "what it asks for", box=box.SIMPLE_HEAD, pad_edge=False)
    for style in map(open_style, style_names()):
        table.add_row(style.name, style.per, style.reader, style.about)
    safe_console().print(table, markup=False)


@app.command()
def show(style: Style) -> None:
    """The template's text, ready to be copied and changed."""
    from critic_prm.styles.prompt import open_style

    typer.echo(open_style(style).source, nl=False)


@app.command()
def render(
    style: Style,
    input: Annotated[Path, typer.Option("--input", "-i", metavar="FILE", help="Trajectories in any format; - is stdin.")],
    step: Annotated[int | None, typer.Option(min=0, help="The step to ask about, from 0; without it, every step.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="So many trajectories.")] = 1,
    reference: Annotated[bool, typer.Option("--with-reference", help="Show the reference answer where there is one.")] = False,
) -> None:
    """The messages that a judge would be sent, as they are."""
    from itertools import islice

    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.styles.prompt import open_style, questions, transcript

    asked = open_style(style)
    for trajectory in islice(read_trajectories(str(input)), limit):
        for one in [step] if step is not None else questions(asked, trajectory):
            typer.echo(transcript(asked, trajectory, one, reference=reference))
