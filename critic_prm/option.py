"""Describe the fields of settings classes: how the command line shows them, their docstrings, and values given as text.

A plug-in, such as a provider, a critic or a student, may have options of its own: a frozen dataclass `Options` in its module.

    @dataclass(frozen=True)
    class Options:
        engine: Annotated[dict[str, Any], Option(envvar="CRITIC_PRM_VLLM_ENGINE")] = field(default_factory=dict)
        \"\"\"Arguments of `vllm.LLM` as JSON.\"\"\"

    options = parse_options(load("provider", "vllm"), ["engine={\"max_model_len\": 8192}"], "provider vllm")

On the command line, that is `--option engine=...`. `options_help` describes the options of a plug-in.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from critic_prm.errors import UsageError


@dataclass(frozen=True, slots=True)
class Option:
    """Metadata of a settings field, as in `max_retries: Annotated[int, Option(min=0)] = 6`; read by `critic_prm.cli.fields`."""

    flags: tuple[str, ...] = ()
    """Flags that replace the one derived from the field's name, such as ("-n",) or ("--schema/--no-schema",)."""
    min: float | None = None
    """Smallest value that the command line accepts."""
    max: float | None = None
    """Largest value that the command line accepts."""
    metavar: str | None = None
    """What the help shows in place of the value."""
    envvar: str | None = None
    """Environment variable that sets the option, besides the one derived from the command's name."""
    panel: str | None = None
    """Heading in the help above this option and those after it, up to the next heading."""
    parse: Callable[[str], Any] | None = None
    """Converts the text on the command line to the field's value. Raises UsageError."""
    plugins: str | None = None
    """Kind of plug-in that the value names; the help ends with the names of all of them."""
    hidden: bool = False
    """The field is set in Python only and is not an option."""


def docstrings(cls: type) -> dict[str, str]:
    """The docstring under each field of a class, from its source."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        source = getattr(sys.modules[base.__module__], "__file__", None)
        if source is None or not is_dataclass(base):
            continue
        body = next(node.body for node in _parsed(source).body if isinstance(node, ast.ClassDef) and node.name == base.__name__)
        for statement, after in pairwise(body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                match after:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        found[statement.target.id] = " ".join(text.split())
    return found


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(Path(source).read_text("utf-8"))


def parse_options(plugin: Any, given: Sequence[str], what: str) -> Any:
    """Return the plug-in's `Options` with the values of texts like "key=value"; None for a plug-in without options.

    Numbers, true and false, and the values of a Literal are written as such, None as `none`, tuples with commas, and anything
    else as JSON. `what` names the plug-in in errors. Raises UsageError for an unknown key and a value that does not fit.
    """
    options = settings_of(plugin)
    values: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        name = key.strip().replace("-", "_")
        if name not in options or not equals:
            known = ", ".join(f"{one}=..." for one in options) or "none"
            raise UsageError(f"{what} has no option {text!r}; its options: {known}")
        values[name] = _converted(options[name], value.strip(), f"{what}: option {name}")
    for name, one in options.items():
        if name not in values and one.option.envvar and (setting := os.environ.get(one.option.envvar)):
            values[name] = _converted(one, setting, one.option.envvar)
    return plugin.Options(**values) if options else None


def options_help(plugin: Any) -> list[tuple[str, str]]:
    """Return ("key=default", description) of each option of a plug-in."""
    options = settings_of(plugin)
    help_of = docstrings(plugin.Options) if options else {}
    return [
        (f"{name}={'' if one.default in (None, MISSING) else one.default}", help_of.get(name, ""))
        for name, one in options.items()
    ]


def settings_of(plugin: Any) -> Mapping[str, Setting]:
    """The fields of a plug-in's `Options`; empty if it declares none."""
    cls = vars(plugin).get("Options")
    return settings_in(cls) if isinstance(cls, type) and is_dataclass(cls) else {}


@dataclass(frozen=True, slots=True)
class Setting:
    """The type, the default (MISSING if there is none) and the metadata of a field."""

    type: Any
    default: Any
    option: Option


@cache
def settings_in(cls: type) -> Mapping[str, Setting]:
    """The fields of a settings class."""
    hints, found = get_type_hints(cls, include_extras=True), {}
    for one in fields(cls):
        kind, *notes = get_args(hints[one.name]) if get_origin(hints[one.name]) is Annotated else (hints[one.name],)
        option = next((note for note in notes if isinstance(note, Option)), Option())
        found[one.name] = Setting(kind, one.default if one.default_factory is MISSING else one.default_factory(), option)
    return found


def _converted(setting: Setting, text: str, what: str) -> Any:
    kind, parse = setting.type, setting.option.parse
    try:
        value = parse(text) if parse else _parsed_as(kind, text)
    except ValueError:
        shown = " or ".join(map(str, get_args(kind))) if get_origin(kind) is Literal else getattr(kind, "__name__", str(kind))
        raise UsageError(f"{what} is {text!r}; it must be {shown}") from None
    _check_range(value, setting.option, what)
    return value


def _check_range(value: Any, option: Option, what: str) -> None:
    low, high = option.min, option.max
    if isinstance(value, int | float) and ((low is not None and value < low) or (high is not None and value > high)):
        bounds = " and ".join(
            f"{word} {bound:g}" for word, bound in (("at least", low), ("at most", high)) if bound is not None
        )
        raise UsageError(f"{what} is {value}; it must be {bounds}")


def _parsed_as(kind: Any, text: str) -> Any:
    """Convert a text to a type. Raises ValueError."""
    if get_origin(kind) in (Union, UnionType):
        parts = get_args(kind)
        if NoneType in parts and text.lower() == "none":
            return None
        return _parsed_as(next(part for part in parts if part is not NoneType), text)
    choices = {"true": True, "false": False} if kind is bool else {str(value): value for value in get_args(kind)}
    if kind is bool or get_origin(kind) is Literal:
        if text not in choices:
            raise ValueError(text)
        return choices[text]
    if get_origin(kind) is tuple:
        return tuple(_parsed_as(get_args(kind)[0], part.strip()) for part in text.split(",") if part.strip())
    if kind in (str, int, float, Path):
        return kind(text)
    value = json.loads(text)
    if not isinstance(value, get_origin(kind) or kind):
        raise ValueError(text)
    return value


def check_fields(settings: Any) -> None:
    """Raise UsageError for a field that is not among the choices of its Literal, or outside the range of its Option."""
    for name, one in settings_in(type(settings)).items():  # type: ignore[arg-type]  # types are hashable
        kind, option = one.type, one.option
        value, flag = getattr(settings, name), option.flags[0] if option.flags else f"--{name.replace('_', '-')}"
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise UsageError(f"{flag} is {value!r}; it must be one of {', '.join(map(str, get_args(kind)))}")
        _check_range(value, option, flag)
