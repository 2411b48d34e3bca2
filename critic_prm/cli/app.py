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
    "judge-eval",
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
GROUPS = ("labels", "dataset", "generate", "analyze", "cascade", "prompts", "cache", "batch")


def build(only: str | None = None) -> Any:
    """Build the command tree, or the part of it that holds the command or group `only`.

    Command modules import the library only when their command runs.
    """
    import typer
    from typer.models import CommandInfo

    from critic_prm.cli.fields import LazyCommand

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
    tree: Any = typer.main.get_group(app)
    tree.params[0].show_envvar = False
    for name in (only,) if only in (*COMMANDS, *GROUPS) else (*COMMANDS, *GROUPS):
        module = import_module(f"critic_prm.cli.{name.replace('-', '_')}")
        if name in COMMANDS:
            tree.add_command(LazyCommand(CommandInfo(name, callback=getattr(module, name.replace("-", "_")))))
            continue
        group = typer.core.TyperGroup(name=name, help=module.app.info.help, no_args_is_help=True, rich_markup_mode="rich")
        for command in module.app.registered_commands:
            group.add_command(LazyCommand(command))
        tree.add_command(group)
    return tree


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
            signals.report()
            code = 130
    sys.exit(code)


def _carry_out(arguments: list[str] | None) -> Any:
    """Run a command and return its exit code."""
    from critic_prm.errors import CriticPrmError, Interrupted

    try:
        words = sys.argv[1:] if arguments is None else arguments
        build(next((word for word in words if not word.startswith("-")), None))(arguments)
    except SystemExit as end:
        return end.code or 0
    except Interrupted:
        return Interrupted.exit_code
    except CriticPrmError as error:
        if not signals.stopped():
            print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0
