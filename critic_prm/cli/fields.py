"""Turn the fields of settings classes into command-line options.

A command takes a settings object, and its options are the fields of the object's class:

    @dataclass(frozen=True, slots=True)
    class SearchSettings:
        n: Annotated[int, Option(("-n",), min=1, panel="Search method")] = 16
        \"\"\"Number of solutions or beams.\"\"\"
        backup: Literal["mean", "max"] = "mean"
        \"\"\"Value backup of mcts.\"\"\"
        trace: Annotated[Tracer | None, Option(hidden=True)] = None
        \"\"\"Not an option.\"\"\"

    def search(source: ..., settings: SearchSettings, judging: PolicyOptions) -> None:
        ...  # settings.n is the value of -n, settings.backup that of --backup

- Name, type and default of an option are those of the field; its help is the docstring under it. `max_retries` is
  `--max-retries`.
- A bool that is true by default also gets `--no-NAME`. A Literal lists the choices. A `tuple[T, ...]` may be repeated. A field
  that holds a settings object contributes that object's fields.
- `Option` adds what the type cannot say: a range, other flags, a heading in the help, a function that parses the text.
- `Annotated[SearchSettings, Fields(...)]` leaves out fields, prefixes their names or changes defaults for one command.
- Settings classes of one command that have a field in common share its option.
- The annotations are evaluated, so a module with settings imports their types at its top, and nothing heavy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, is_dataclass, replace
from functools import cache, wraps
from inspect import Parameter, signature
from keyword import iskeyword
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer

from critic_prm.cli.outputs import with_parameters
from critic_prm.option import Option, docstrings, settings_in
from critic_prm.registry import names


@dataclass(frozen=True, slots=True)
class Fields:
    """How one command shows a settings class."""

    without: tuple[str, ...] = ()
    """Fields that are not options of this command; they keep their defaults."""
    only: tuple[str, ...] = ()
    """If given, only these fields are options of this command."""
    prefix: str = ""
    """Put before every name: with "policy", the field `top_p` is `--policy-top-p`."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Defaults of this command, by field."""
    panel: str | None = None
    """Heading of these options in the help, unless a field names its own."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """One field of a settings class: its type, how it is shown, its help text, and the heading it stands under."""

    name: str
    type: Any
    default: Any
    option: Option
    help: str
    panel: str | None

    @property
    def nested(self) -> bool:
        """Whether the field is a settings object itself, whose fields are shown."""
        return isinstance(self.type, type) and is_dataclass(self.type) and self.option.parse is None

    @property
    def repeated(self) -> bool:
        """Whether the field is a tuple of any length, and its option may be repeated."""
        return get_origin(self.type) is tuple and get_args(self.type)[-1] is Ellipsis

    def hidden(self, shown: Fields) -> bool:
        """Whether the field is not an option of a command."""
        left_out = bool(shown.only) and self.name not in shown.only and not self.nested
        return self.option.hidden or self.name in shown.without or left_out

    def parameter(self, shown: Fields) -> str:
        """The name of the command's parameter."""
        if shown.prefix:
            return f"{shown.prefix}_{self.name}"
        long = next((flag for flag in self.option.flags if flag.startswith("--")), f"--{self.name}")
        name = long.partition("/")[0].removeprefix("--").replace("-", "_")
        return self.name if iskeyword(name) else name


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command in which every parameter that is a settings class has become the options of its fields."""
    own = signature(command, eval_str=True)
    settings = {name: parsed for name, one in own.parameters.items() if (parsed := _settings_of(one.annotation))}
    if not settings:
        return command
    flat: list[Parameter] = []
    for name, parameter in own.parameters.items():
        flat += _options(*settings[name]) if name in settings else [parameter]

    @wraps(command)
    def run(**given: Any) -> Any:
        objects = {name: _instance(*parsed, given) for name, parsed in settings.items()}
        return command(**{name: given[name] for name in own.parameters if name not in settings}, **objects)

    return with_parameters(run, flat)


def names_of(cls: type) -> dict[str, str]:
    """The field of a settings class that each command parameter sets; for a nested class, the field that holds it."""
    found = dict[str, str]()
    for one in _settings(cls):
        inner = names_of(one.type) if one.nested else (one.parameter(Fields()),)
        found |= dict.fromkeys(inner, one.name)
    return found


def _settings_of(annotation: Any) -> tuple[type, Fields] | None:
    """The settings class of a parameter and how to show it; None if the parameter is an ordinary option."""
    if get_origin(annotation) is Annotated:
        cls, *notes = get_args(annotation)
        shown = next((note for note in notes if isinstance(note, Fields)), Fields())
    else:
        cls, shown = annotation, Fields()
    return (cls, shown) if isinstance(cls, type) and is_dataclass(cls) else None


@cache
def _settings(cls: type) -> list[_Setting]:
    help_of, found, panel = docstrings(cls), [], None
    for name, one in settings_in(cls).items():
        panel = one.option.panel or panel
        help_text = help_of.get(name, "")
        if one.option.plugins:
            help_text = f"{help_text.rstrip('.')}: {', '.join(names(one.option.plugins))}."
        found.append(_Setting(name, one.type, one.default, one.option, help_text, panel))
    return found


def _options(cls: type, shown: Fields, defaults: object = None, above: str | None = None) -> Iterator[Parameter]:
    """The command's parameters for the fields of a settings class; `defaults` is an object of it with the default values."""
    for one in _settings(cls):
        panel = one.panel or above or shown.panel
        default = getattr(defaults, one.name, one.default)
        if one.hidden(shown):
            continue
        if one.nested:
            yield from _options(one.type, shown, default, panel)
            continue
        kind, default = _typed(one, shown.defaults.get(one.name, default))
        name = one.parameter(shown)
        flag = "--" + name.replace("_", "-")
        if default is True:
            flag += f"/--no-{name.replace('_', '-')}"
        flags = (flag,) if shown.prefix or not one.option.flags else one.option.flags
        option = typer.Option(
            *flags, min=one.option.min, max=one.option.max, metavar=one.option.metavar, envvar=one.option.envvar,
            help=one.help, rich_help_panel=panel,
        )  # fmt: skip
        default = Parameter.empty if default is MISSING else default
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _typed(one: _Setting, default: Any) -> tuple[Any, Any]:
    """The type and default of an option on the command line. If a text is parsed, no text stands for the field's default."""
    if one.option.parse is not None:
        return (str, MISSING) if default is MISSING else (str | None, None)
    if one.repeated:
        return list[_plain(get_args(one.type)[0])] | None, list(default) or None  # type: ignore[misc]
    return _plain(one.type), default


def _plain(kind: Any) -> Any:
    """A type that typer can parse: `str | Path` is str."""
    parts = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return (str | None if NoneType in parts else str) if str in parts else kind


def _instance(cls: type, shown: Fields, given: Mapping[str, Any], defaults: Any = MISSING) -> Any:
    """A settings object with the given option values, and `defaults`, an object of the class, for fields without an option."""
    values: dict[str, Any] = {}
    for one in _settings(cls):
        if one.hidden(shown):
            continue
        if one.nested:
            values[one.name] = _instance(one.type, shown, given, getattr(defaults, one.name, one.default))
            continue
        value = given[one.parameter(shown)]
        if one.option.parse is None:
            values[one.name] = tuple(value or ()) if one.repeated else value
        elif value is not None:
            values[one.name] = one.option.parse(value)
    return cls(**values) if defaults is MISSING else replace(defaults, **values)
