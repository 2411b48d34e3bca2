"""The options of critic-prm itself, before the name of a command."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm.cli.messages import Quiet, Verbose, messages


def show_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        from critic_prm import __version__

        typer.echo(f"critic-prm {__version__}")
        raise typer.Exit


def root(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=show_version, is_eager=True)
    ] = False,
    config: Annotated[
        bool, typer.Option("--config/--no-config", help="Read defaults from critic-prm.toml in the current folder.")
    ] = True,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Prepare for a command."""
    ctx.with_resource(messages(quiet, verbose))
