"""critic-prm generate recipe: a published system's pipeline, run with any policy and judge."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from critic_prm.cli.options import Trust
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from critic_prm.cli.recipe import Order, Recipe


def recipes() -> None:
    """List the recipes: the pipelines of published systems."""
    from rich.table import Table

    from critic_prm.cli.recipe import open_recipe, recipe_names

    table = Table("recipe", "what it does", "needs", "paper", show_lines=True)
    for name in recipe_names():
        found = open_recipe(name)
        needs = ", ".join([found.needs, *sorted(found.asks)] if found.needs != "nothing" else sorted(found.asks) or ["nothing"])
        table.add_row(name, found.about, needs, found.paper)
    safe_console().print(table)


def recipe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A recipe of `generate recipes`, or a .toml file of your own.")],
    source: Annotated[
        str | None,
        typer.Argument(metavar="[INPUT]", help="Problems, solutions or runs, whichever it needs.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="The folder for all that it makes.")] = Path("recipe"),
    policy: Annotated[str | None, typer.Option(metavar="PROVIDER/MODEL", help="Who solves and completes.")] = None,
    judge: Annotated[str | None, typer.Option(metavar="PROVIDER/MODEL", help="Who judges.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the recipe; repeat for more.")
    ] = None,
    policy_options: Annotated[
        str, typer.Option(metavar="OPTIONS", help='More options where the policy is asked, as in "--base-url URL".')
    ] = "",
    judge_options: Annotated[str, typer.Option(metavar="OPTIONS", help="The same where the judge is asked.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the commands and about what they cost; run none.")] = False,
    trust: Trust = None,
) -> None:
    """Run a recipe. The same command again goes on where it stopped; nothing is paid twice."""
    import shlex

    from critic_prm.cli.recipe import Order, carry_out, open_recipe, steps_of
    from critic_prm.cli.stages import check
    from critic_prm.errors import UsageError

    pairs = [pair.partition("=") for pair in setting or []]
    if any(not equals for _, equals, _ in pairs):
        raise UsageError(f"--set is {', '.join(setting or [])}; write NAME=VALUE")
    more = (tuple(shlex.split(policy_options)), tuple(shlex.split(judge_options)))
    order = Order(out, source, policy, judge, {key: value for key, _, value in pairs}, *more, tuple(trust or ()))
    found = open_recipe(name)
    steps = steps_of(found, order)
    check(found, order)
    if dry_run:
        typer.echo(f"{found.about}\n{found.paper}\nDiffers: {found.differs}\n")
        for step in steps:
            typer.echo(f"critic-prm {shlex.join(step.arguments)}")
        _say_costs(found, order)
        return
    raise typer.Exit(carry_out(steps, out, _run, lambda line: typer.echo(line, err=True)))


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
    """Add these commands to a group."""
    for command in (recipes, recipe):
        app.command(rich_help_panel="Pipelines of published systems")(command)
