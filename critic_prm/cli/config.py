"""critic-prm config: show the options of a command with their values, and where each value comes from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from critic_prm.cli.lazy import PROJECT_FILE
from critic_prm.cli.messages import SOURCES, value_shown
from critic_prm.terminal import plain_table, safe_console


def config(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND [OPTIONS]...]", help="A command line, without critic-prm.", show_default=False),
    ] = None,
) -> None:
    """Show the options of a command with their values, and where each value comes from.

    Reads critic-prm.toml in the current folder and the environment; runs nothing. Prints the options of COMMAND, set by a flag,
    the environment, the file or the default, in this order. Without COMMAND, prints what the file sets for which commands.
    Writes nothing.

    Example: critic-prm config label in.jsonl --samples 4
    """
    from critic_prm.cli.project import defaults, key_of

    console = safe_console(highlight=False)
    root = ctx.find_root()
    reads = Path(PROJECT_FILE).is_file() and root.params.get("config", True)
    if not words:
        _print_file(console, root.command, reads)
        return
    command, within, rest = _found(root, words)
    named, _, _ = command.make_parser(within).parse_args(args=rest)
    path = words[: len(words) - len(rest)]
    within.default_map = defaults(command, path) if reads else {}
    rows = []
    for parameter in command.params:
        if parameter.param_type_name != "option":
            continue
        value, source = parameter.consume_value(within, named)
        where = SOURCES.get(source.name, "default")
        if where == "environment":
            where = next(name for name in _variables(parameter, within) if name in os.environ)
        shown = "" if value is None else value_shown(parameter, value)
        rows.append(
            (f"--{key_of(parameter)}" if len(key_of(parameter)) > 1 else f"-{key_of(parameter)}", shown or "not set", where)
        )
    table = plain_table(("option", "value", "from"), rows)
    for column in table.columns:
        column.justify = "left"
    console.print(table)


def _found(root: Any, words: list[str]) -> tuple[Any, Any, list[str]]:
    """The command that words name, its context, and the rest of the words. Raises UsageError for another name."""
    from difflib import get_close_matches

    from critic_prm.errors import UsageError

    command: Any = root.command
    within, rest = root, list(words)
    while (commands := getattr(command, "commands", None)) is not None:
        if not rest or rest[0] not in commands:
            near = get_close_matches(rest[0] if rest else "", list(commands), n=1)
            hint = f"did you mean {near[0]}?" if near else f"one of: {', '.join(commands)}"
            raise UsageError(f"{' '.join(words)!r} names no command; {hint}")
        name = rest.pop(0)
        command = commands[name]
        within = command.context_class(command, parent=within, info_name=name)
    return command, within, rest


def _variables(parameter: Any, ctx: Any) -> list[str]:
    """The environment variables that set an option."""
    own = parameter.envvar or []
    return [*([own] if isinstance(own, str) else own), f"{ctx.auto_envvar_prefix}_{parameter.name.upper()}"]


def _print_file(console: Any, tree: Any, reads: bool) -> None:
    """Print what the file sets, for each command; every value is checked."""
    from critic_prm.cli.project import defaults, key_of

    if not reads:
        console.print(f"no {PROJECT_FILE} in this folder; critic-prm config COMMAND shows a command's options", soft_wrap=True)
        return
    rows: dict[tuple[str, str], list[str]] = {}
    for path, command in _commands(tree, ()):
        values = defaults(command, path)
        for parameter in command.params:
            if parameter.name in values:
                shown = value_shown(parameter, values[parameter.name])
                rows.setdefault((key_of(parameter), shown), []).append(" ".join(path))
    table = plain_table(("key", "value", "for"), [(key, value, ", ".join(names)) for (key, value), names in rows.items()])
    for column in table.columns:
        column.justify = "left"
    console.print(f"{Path(PROJECT_FILE).absolute()}", soft_wrap=True)
    console.print(table)


def _commands(command: Any, path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    commands = getattr(command, "commands", None)
    if commands is None:
        return [(path, command)]
    return [found for name, child in commands.items() for found in _commands(child, (*path, name))]
