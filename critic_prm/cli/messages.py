"""The options --quiet and --verbose, which all commands take, before or after their name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from critic_prm.terminal import with_verbosity

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors, warnings and the summary only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also print the options used and every failed request.")]

HIDDEN = ("header", "policy_header")
"""Options whose values are not printed: they may hold a secret."""

ADDRESSES = ("base_url", "policy_base_url", "ray_address")
"""Options that may hold a password, and are printed without it."""


@contextmanager
def messages(quiet: bool, verbose: bool) -> Iterator[None]:
    """Context manager: print less or more on stderr. Raises UsageError if both are wanted."""
    if quiet and verbose:
        from critic_prm.errors import UsageError

        raise UsageError("--quiet and --verbose exclude each other; give one")
    with with_verbosity("quiet" if quiet else "verbose") if quiet or verbose else nullcontext():
        yield


def with_messages(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options; what they do is done around it."""
    from critic_prm.cli.outputs import with_parameters

    @wraps(command)
    def run(**given: Any) -> Any:
        return command(**{name: value for name, value in given.items() if name not in ("quiet", "verbose")})

    flags = (("quiet", Quiet), ("verbose", Verbose))
    more = (Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=kind) for name, kind in flags)
    return with_parameters(run, [*signature(command, eval_str=True).parameters.values(), *more])


SOURCES = {"COMMANDLINE": "flag", "ENVIRONMENT": "environment", "DEFAULT_MAP": "critic-prm.toml"}
"""Where the value of an option comes from, by click's names; anything else is its default."""


def effective(ctx: typer.Context) -> str:
    """One line: the options of a command that are not at their default, and where they were set if not on the command line."""
    shown = []
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name)
        if source is None or source.name not in SOURCES or parameter.name in ("quiet", "verbose"):
            continue
        shown.append(as_written(parameter, ctx.params[parameter.name]))
        if source.name != "COMMANDLINE":
            shown[-1] += f" ({SOURCES[source.name]})"
    return f"options: {'; '.join(shown)}; everything else is a default"


def as_written(parameter: Any, value: Any) -> str:
    """An option with its value as on a command line."""
    if parameter.param_type_name == "argument":
        return value_shown(parameter, value)
    if parameter.is_flag:
        return str(parameter.opts[-1] if value or not parameter.secondary_opts else parameter.secondary_opts[-1])
    return f"{parameter.opts[-1]} {value_shown(parameter, value)}"


def value_shown(parameter: Any, value: Any) -> str:
    """The value of an option as text; of a header only its name, of an address nothing secret."""
    if isinstance(value, bool):
        return str(value).lower()
    values = value if isinstance(value, list | tuple) else [value]
    if parameter.name in ADDRESSES and isinstance(value, str):
        from critic_prm.providers.addresses import without_secrets

        try:
            return without_secrets(value) or ""
        except ValueError:
            return "(not an address)"
    if parameter.name in HIDDEN:
        return ", ".join(f"{str(one).partition('=')[0]}=..." for one in values if one is not None)
    return ", ".join(map(str, values))
