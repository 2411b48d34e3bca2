"""critic-prm generate: trajectories made, not found; one command a family with exact labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from critic_prm.cli import policies, recipes
from critic_prm.registry import names
from critic_prm.terminal import safe_console

FAMILIES = "Families: labels exact by construction, no model needed"

app = typer.Typer(help="Make trajectories with step labels, where there are none to be had.", no_args_is_help=True)


@app.command()
def families() -> None:
    """List the families, what they make and which kinds of error they plant."""
    from rich.table import Table

    from critic_prm.generate.family import family_names, open_family

    table = Table("family", "what it makes", "kinds of error (weight)", show_lines=True)
    for name in family_names():
        family = open_family(name)
        kinds = ", ".join(f"{kind} ({weight:g})" for kind, weight in family.KINDS.items())
        table.add_row(name, str(family.__doc__), kinds)
    safe_console().print(table)


def _command(name: str) -> Callable[..., None]:
    def command(
        n: Annotated[int, typer.Option("-n", min=0, help="How many trajectories.")] = 1000,
        out: Annotated[str, typer.Option("-o", "--out", help="The file to write; - is stdout.")] = "-",
        seed: Annotated[int, typer.Option(help="The same seed and options make the same file.")] = 0,
        difficulty: Annotated[str, typer.Option(metavar="1-5", help="A level, or two of them with all between.")] = "1-5",
        wrong: Annotated[float, typer.Option(min=0, max=1, help="The share of solutions with a planted error.")] = 0.5,
        kind: Annotated[
            list[str] | None,
            typer.Option(metavar="KIND[=WEIGHT]", help="Plant only this kind of error; repeat for more.", show_default=False),
        ] = None,
        check: Annotated[
            bool, typer.Option("--check", help="Have a solver confirm every label (logic, first-order, graphs; extra formal).")
        ] = False,
    ) -> None:
        from collections import Counter

        from critic_prm.data.records.reading import RecordWriter
        from critic_prm.data.trajectory import trajectory_to_json
        from critic_prm.generate.check import confirm
        from critic_prm.generate.family import generate_family, parse_kinds, parse_levels

        made: Counter[str] = Counter()
        trajectories = generate_family(
            name, n, seed=seed, difficulty=parse_levels(difficulty), wrong=wrong, kinds=parse_kinds(kind or [])
        )
        if check:
            trajectories = confirm(name, trajectories)
        with RecordWriter(out) as writer:
            for trajectory in trajectories:
                writer.write(trajectory_to_json(trajectory))
                made[{None: "undecided", -1: "right"}.get(trajectory.label, "wrong")] += 1
        place = "stdout" if out == "-" else out
        told = f"{made.total()} trajectories to {place}: {made['right']} right, {made['wrong']} with a planted error"
        checked = f"; a solver confirmed their labels, and left {made['undecided']} undecided" if check else ""
        typer.echo(f"{told}{checked}", err=True)

    return command


for _name in names("family"):
    app.command(_name, help=f"Make trajectories of the family {_name}.", rich_help_panel=FAMILIES)(_command(_name))

policies.register(app)
recipes.register(app)
