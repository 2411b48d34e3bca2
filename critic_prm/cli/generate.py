"""critic-prm generate: generate trajectories with step labels; one command per family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from critic_prm.cli import policies, recipes
from critic_prm.registry import names
from critic_prm.terminal import safe_console

FAMILIES = "Families: labels exact by construction, no model needed"

FAMILY_HELP = """Generate trajectories of the family {name}, with labels that are exact by construction.

Reads nothing and asks no model. Writes trajectories with gold labels (-o).

Example: critic-prm generate {name} -n 2000 -o {name}.jsonl"""

app = typer.Typer(help="Generate trajectories with step labels.", no_args_is_help=True)


@app.command()
def families() -> None:
    """List the families with the kinds of error that they plant.

    Reads nothing. Prints a table.

    Example: critic-prm generate families
    """
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
        n: Annotated[int, typer.Option("-n", min=0, help="Generate N trajectories.")] = 1000,
        out: Annotated[str, typer.Option("-o", "--out", help="File to write; - is stdout.")] = "-",
        seed: Annotated[int, typer.Option(help="Random seed; the same seed and options give the same file.")] = 0,
        difficulty: Annotated[str, typer.Option(metavar="1-5", help="A difficulty level, or a range of levels.")] = "1-5",
        wrong: Annotated[float, typer.Option(min=0, max=1, help="Share of solutions with a planted error.")] = 0.5,
        kind: Annotated[
            list[str] | None,
            typer.Option(metavar="KIND[=WEIGHT]", help="Plant only this kind of error; may be repeated.", show_default=False),
        ] = None,
        check: Annotated[
            bool, typer.Option("--check", help="Verify every label with a solver (logic, first-order, graphs; extra formal).")
        ] = False,
    ) -> None:
        from collections import Counter

        from critic_prm.data.records.reading import RecordWriter
        from critic_prm.data.trajectory import trajectory_to_json
        from critic_prm.generate.family import confirm, generate_family, parse_kinds, parse_levels

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
    app.command(_name, help=FAMILY_HELP.format(name=_name), rich_help_panel=FAMILIES)(_command(_name))

policies.register(app)
recipes.register(app)
