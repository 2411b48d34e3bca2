"""critic-prm generate recipe: run the pipeline of a published system with any policy and judge."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.options import TrustOptions
from critic_prm.option import Option
from critic_prm.terminal import note, safe_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from critic_prm.cli.recipe import Order, Recipe


@dataclass(frozen=True, slots=True)
class RecipeRun:
    """What a recipe is run with."""

    out: Annotated[Path, Option(("-o", "--out"), metavar="DIR")] = Path("recipe")
    """Folder for all output."""
    policy: Annotated[str | None, Option(metavar="PROVIDER/MODEL")] = None
    """Model that writes and completes solutions."""
    judge: Annotated[str | None, Option(metavar="PROVIDER/MODEL")] = None
    """Model that judges."""
    setting: Annotated[tuple[str, ...], Option(("--set",), metavar="NAME=VALUE")] = ()
    """Set a parameter of the recipe; may be repeated."""
    policy_options: Annotated[str, Option(metavar="OPTIONS")] = ""
    """Extra options for stages that ask the policy, such as "--base-url URL"."""
    judge_options: Annotated[str, Option(metavar="OPTIONS")] = ""
    """Extra options for stages that ask the judge."""
    dry_run: bool = False
    """Print the commands and their estimated cost; run nothing."""


def recipes() -> None:
    """List the recipes, which are pipelines of published systems.

    Reads nothing. Prints a table with the needs of each recipe.

    Example: critic-prm generate recipes
    """
    from rich.table import Table

    from critic_prm.cli.recipe import open_recipe, recipe_names

    table = Table("recipe", "what it does", "needs", "paper", show_lines=True)
    for name in recipe_names():
        found = open_recipe(name)
        needs = ", ".join([found.needs, *sorted(found.asks)] if found.needs != "nothing" else sorted(found.asks) or ["nothing"])
        table.add_row(name, found.about, needs, found.paper)
    safe_console().print(table)


def recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name from `generate recipes`, or a .toml file.")],
    source: Annotated[
        str | None,
        typer.Argument(metavar="[INPUT]", help="Problems, solutions or runs, depending on the recipe.", show_default=False),
    ] = None,
    *,
    run: RecipeRun,
    judging: TrustOptions,
) -> None:
    """Run a recipe, the pipeline of a published system.

    Reads the recipe (NAME) and its input (INPUT). Writes the results of all stages to a folder (-o). Run the same command
    again to resume; replies are cached as in every command and not paid for twice.

    Example: critic-prm generate recipe omegaprm in.jsonl --policy openai/MODEL
    """
    import shlex

    from critic_prm.cli.recipe import Order, carry_out, check, open_recipe, steps_of
    from critic_prm.errors import UsageError

    pairs = [pair.partition("=") for pair in run.setting]
    if any(not equals for _, equals, _ in pairs):
        raise UsageError(f"--set is {', '.join(run.setting)}; write NAME=VALUE")
    settings = {key: value for key, _, value in pairs}
    more = (tuple(shlex.split(run.policy_options)), tuple(shlex.split(run.judge_options)))
    order = Order(run.out, source, run.policy, run.judge, settings, *more, judging.trust)
    found = open_recipe(name)
    steps = steps_of(found, order)
    check(found, order)
    if run.dry_run:
        typer.echo(f"{found.about}\n{found.paper}\nDiffers: {found.differs}\n")
        for step in steps:
            typer.echo(f"critic-prm {shlex.join(step.arguments)}")
        _say_costs(found, order)
        return
    raise typer.Exit(carry_out(steps, run.out, _run, note))


def _run(arguments: Sequence[str]) -> int:
    from critic_prm.cli import build
    from critic_prm.cli.outputs import owned_outputs

    with owned_outputs():
        return build()(list(arguments), prog_name="critic-prm", standalone_mode=False) or 0


def _say_costs(found: Recipe, order: Order) -> None:
    from critic_prm.cli.recipe import costs
    from critic_prm.data.records.reading import read_records
    from critic_prm.generate.policy.problems import read_problems

    items = 0
    if order.source is not None:
        items = sum(1 for _ in (read_problems if found.needs == "problems" else read_records)(order.source))
    told = costs(found, order, items)
    typer.echo(
        f"\n{items:,} {found.needs}; estimates at most, before anything is taken from the cache:"
        if told
        else "\nNo model is asked."
    )
    for cost in told:
        usd = "price unknown" if cost.usd is None else f"${cost.usd:,.2f}"
        typer.echo(
            f"  {cost.stage}: {cost.requests:,} requests to the {cost.asks},"
            f" {cost.tokens_in:,} tokens in, {cost.tokens_out:,} out, {usd}"
        )


def register(app: typer.Typer) -> None:
    """Add the recipe commands to a Typer group."""
    for command in (recipes, recipe):
        app.command(rich_help_panel="Pipelines of published systems")(command)
