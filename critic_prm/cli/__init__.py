"""The command line: one command per file, options in, library calls, printed results."""

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
    """The whole command tree. Modules of commands import the library only when their command runs."""
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
        help="Label the steps of solutions with an LLM judge, build PRM training sets, distill a small local verifier.",
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
    """Every option has its variable, by one rule that the epilog states: the help need not repeat it for each. And a line of
    a docstring ends where the source is full, which is not where a terminal is."""
    from inspect import cleandoc

    for parameter in command.params:
        parameter.show_envvar = False
    command.help = "\n\n".join(" ".join(part.split()) for part in cleandoc(command.help or "").split("\n\n"))
    for child in getattr(command, "commands", {}).values():
        _tidy(child)


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit; an error that a user can mend is one line on stderr and an exit code.

    0 done, 1 error, 2 usage, 3 finished with failed rows, 4 key or configuration, 5 stopped by a budget or quota, 130
    interrupted. An interrupt (Ctrl-C, SIGTERM, SIGHUP) is one line, wherever it comes; `serve` ends well with it, with 0.
    """
    with safe_streams(), signals.handled(ending=arguments is None):
        try:
            code = _carry_out(arguments)
        except BaseException:
            if not signals.stopped():
                raise
            code = 130  # also where a library has made something else of the interrupt
        if signals.stopped() and code not in (0, 3):
            signals.say()
            code = 130
    sys.exit(code)


def _carry_out(arguments: list[str] | None) -> Any:
    """The exit code of a command."""
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
