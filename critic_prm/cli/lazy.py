"""Show the help of all commands without importing them: a command's module is imported when the command is used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any

import typer
from typer.models import CommandInfo

from critic_prm.cli.values import complete_value, type_shown
from critic_prm.terminal import detail, note


def _of_built(attribute: str) -> Any:
    """A property with the value of the built command or group; what the constructor of the base class sets is ignored."""
    return property(lambda self: getattr(self.built, attribute), lambda self, value: None)


PROJECT_FILE = "critic-prm.toml"
"""The file with defaults in the current folder; see `critic_prm.cli.project`."""


class PlainHelp:
    """Shows --help like all other flags, without a type."""

    def get_help_option(self, ctx: Any) -> Any:
        option: Any = super().get_help_option(ctx)  # type: ignore[misc]  # a mixin of commands
        option.display_type_rich = partial(type_shown, option)
        return option


class RootGroup(PlainHelp, typer.core.TyperGroup):
    """The program itself."""


class LazyCommand(PlainHelp, typer.core.TyperCommand):
    """A command whose options are built when they are first needed."""

    help, params, callback = _of_built("help"), _of_built("params"), _of_built("callback")

    def __init__(self, name: str, summary: str, panel: str | None, load: Callable[[], CommandInfo]) -> None:
        self._load = load
        super().__init__(name, short_help=summary, rich_help_panel=panel, rich_markup_mode="rich")

    @cached_property
    def built(self) -> Any:
        """The command with its options."""
        from critic_prm.cli.fields import expanded
        from critic_prm.cli.messages import with_messages
        from critic_prm.cli.outputs import guarded

        info, app = self._load(), typer.Typer(rich_markup_mode="rich", add_completion=False)
        assert info.callback is not None
        app.command(self.name, help=_help(info))(with_messages(guarded(expanded(info.callback))))
        command: Any = typer.main.get_command(app)
        for parameter in command.params:
            parameter.show_envvar = False  # one rule in the epilog covers all of them
            parameter.display_type_rich = partial(type_shown, parameter)
            parameter.shell_complete = partial(complete_value, parameter)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the command line, with defaults from the file in the current folder."""
        try:
            return self._parse_with_file(ctx, args)
        except typer.BadParameter as error:
            error.message = error.message.replace("Value error, ", "")  # the library's prefix says nothing
            raise

    def _parse_with_file(self, ctx: Any, args: list[str]) -> list[str]:
        from critic_prm.cli.outputs import in_stage

        file = Path(PROJECT_FILE)
        if ctx.resilient_parsing or not file.is_file() or in_stage() or not ctx.find_root().params.get("config", True):
            return super().parse_args(ctx, args)
        from critic_prm.cli.project import defaults
        from critic_prm.errors import InputError

        ctx.default_map = defaults(self, path_of(ctx))
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            source = ctx.get_parameter_source(error.param.name) if error.param is not None else None
            if source is None or source.name != "DEFAULT_MAP":
                raise
            problem = error.format_message().replace("Value error, ", "")
            raise InputError(str(file), problem, "fix it, or ignore it with critic-prm --no-config") from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command, after the checks that need no work. Which cache it uses is printed once per file."""
        from critic_prm.cli.effects import check_effects
        from critic_prm.cli.messages import effective, messages
        from critic_prm.cli.outputs import check_places
        from critic_prm.engine.place import announce

        with messages(ctx.params["quiet"], ctx.params["verbose"]):
            if ctx.default_map:
                from critic_prm.cli.project import used_by

                if used := used_by(ctx):
                    note(f"{PROJECT_FILE}: {'; '.join(used)}")
            detail(effective(ctx))
            check_effects(ctx)
            check_places(ctx)
            token = announce.set(_printed_once())
            try:
                return super().invoke(ctx)
            finally:
                announce.reset(token)


class CommandLine(LazyCommand):
    """A command whose argument is another command line: it takes everything as it is, options included."""

    ignore_unknown_options = True
    allow_interspersed_args = False


def path_of(ctx: Any) -> list[str]:
    """The name of a command in words, without that of the program."""
    return [] if ctx.parent is None else [*path_of(ctx.parent), ctx.info_name]


class LazyGroup(PlainHelp, typer.core.TyperGroup):
    """A group of commands whose module is imported when one of them or their list is needed."""

    commands, epilog = _of_built("commands"), _of_built("epilog")

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(name=name, help=summary, no_args_is_help=True, rich_markup_mode="rich")

    @cached_property
    def built(self) -> Any:
        """The group with its commands."""
        infos = _module(self.name).app.registered_commands
        group = typer.core.TyperGroup(epilog=_help(infos[0]).rpartition("\n\n")[2])  # the example of the first command
        for info in infos:
            assert info.callback is not None
            name = info.name or info.callback.__name__.replace("_", "-")
            summary, panel = _help(info).partition("\n\n")[0], info.rich_help_panel or None
            group.add_command(LazyCommand(name, summary, panel, lambda info=info: info))  # type: ignore[misc]
        return group


def command(name: str) -> LazyCommand:
    """The command of the module with its name. The summary, the first line of its docstring, is read from the source."""
    function = name.replace("-", "_")
    source = Path(__file__).with_name(f"{function}.py").read_text("utf-8")
    summary = source.partition(f"\ndef {function}(")[2].partition('    """')[2].partition("\n")[0]
    kind = CommandLine if name == "config" else LazyCommand
    return kind(name, summary, None, lambda: CommandInfo(callback=getattr(_module(name), function)))


def _printed_once() -> Callable[[Path, bool], None]:
    printed = set[Path]()

    def say(path: Path, new: bool) -> None:
        from critic_prm.engine.place import shown

        if path not in printed:
            printed.add(path)
            note(f"cache: {shown(path)}" + (" (new; --db names another)" if new else ""))

    return say


def _module(name: str | None) -> Any:
    return import_module(f"critic_prm.cli.{name}".replace("-", "_"))


def _help(info: CommandInfo) -> str:
    """Remove line breaks within each paragraph of a docstring, so that the terminal's width decides where lines end."""
    text = info.help or (info.callback and info.callback.__doc__)
    return "\n\n".join(" ".join(part.split()) for part in cleandoc(text or "").split("\n\n"))
