"""Build the command-line interface; each command has its own module."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from critic_prm import signals
from critic_prm.terminal import safe_streams

COMMANDS = (
    "label",
    "distill",
    "evaluate",
    "judge_eval",
    "score",
    "export",
    "rank",
    "search",
    "refine",
    "serve",
    "report",
    "convert",
    "doctor",
    "quickstart",
)
GROUPS = ("dataset", "generate", "analyze", "cascade", "prompts", "cache", "batch")


def build() -> Any:
    """Build the command tree. Command modules import the library only when their command runs."""
    import typer

    from critic_prm.cli.outputs import guarded

    def show_version(wanted: bool) -> None:
        if wanted:
            from importlib.metadata import version

            typer.echo(f"critic-prm {version('critic-prm')}")
            raise typer.Exit

    def root(
        version: bool = typer.Option(
            False, "--version", help="Print the version and stop.", callback=show_version, is_eager=True
        ),
    ) -> None:
        pass

    app = typer.Typer(
        name="critic-prm",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"auto_envvar_prefix": "CRITIC_PRM", "help_option_names": ["-h", "--help"]},
        help="Label solution steps with an LLM judge, build PRM training sets, and distill a small local verifier.",
        epilog="Every option can be set in the environment: CRITIC_PRM_LABEL_SAMPLES=4 is `label --samples 4`.",
    )
    app.callback()(root)
    for name in COMMANDS:
        app.command(name.replace("_", "-"))(getattr(import_module(f"critic_prm.cli.{name}"), name))
    for name in GROUPS:
        app.add_typer(import_module(f"critic_prm.cli.{name}").app, name=name)
    tree = typer.main.get_command(guarded(app))
    _tidy(tree)
    return tree


def _tidy(command: Any) -> None:
    """Clean up the help of a command and its subcommands.

    Environment variables are hidden, because one rule in the epilog covers them all. Line breaks of the source are removed
    from each paragraph, so that the terminal's width decides where lines end.
    """
    from inspect import cleandoc

    for parameter in command.params:
        parameter.show_envvar = False
    command.help = "\n\n".join(" ".join(part.split()) for part in cleandoc(command.help or "").split("\n\n"))
    for child in getattr(command, "commands", {}).values():
        _tidy(child)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit. An error that the user can fix is printed as one line on stderr and sets the exit code.

    Exit codes: 0 done, 1 error, 2 usage, 3 finished with failed rows, 4 key or configuration, 5 stopped by a budget or quota,
    130 interrupted. An interrupt (Ctrl-C, SIGTERM, SIGHUP) always prints one line; for `serve` it is the normal end, with 0.
    """
    with safe_streams(), signals.handled(ending=arguments is None):
        try:
            code = _carry_out(arguments)
        except BaseException:
            if not signals.stopped():
                raise
            code = 130  # also if a library turned the interrupt into another exception
        if signals.stopped() and code not in (0, 3):
            signals.say()
            code = 130
    sys.exit(code)


def _carry_out(arguments: list[str] | None) -> Any:
    """Run a command and return its exit code."""
    from critic_prm.errors import CriticPrmError, Interrupted

    try:
        build()(arguments)
    except SystemExit as end:
        return end.code or 0
    except Interrupted:
        return Interrupted.exit_code
    except CriticPrmError as error:
        if not signals.stopped():
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0
