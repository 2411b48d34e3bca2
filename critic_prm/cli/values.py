"""What the help shows of an option's value, and what the shell completes it with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SHOWN: Mapping[type, str] = {int: "N", float: "NUMBER"}
"""What the help shows for a value of this type; a choice shows its choices, and anything else is a text."""

ROOM = 16
"""Characters of a line of choices."""


def type_shown(parameter: Any, ctx: object = None) -> str | None:
    """The type column of the help: what a value looks like. None for flags, which take no value, and for arguments."""
    if parameter.param_type_name == "argument" or parameter.is_flag:
        return None
    if parameter.metavar is not None:
        return str(parameter.metavar)
    kind = parameter.type_descriptor
    if kind.is_choice:
        return _in_lines([str(choice) for choice in kind.choices])
    return "PATH" if kind.is_path else SHOWN.get(kind.annotation, "TEXT")


def _in_lines(choices: list[str]) -> str:
    """Choices in lines of at most ROOM characters where possible, so that the column leaves room for the help."""
    lines = [choices[0]]
    for choice in choices[1:]:
        if len(lines[-1]) + len(choice) + 1 <= ROOM:
            lines[-1] += f"|{choice}"
        else:
            lines.append(f"|{choice}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Offer:
    """A value that the shell offers, in the shape that click's completion prints."""

    value: str
    help: str | None = None
    type: str = "plain"


def complete_value(parameter: Any, ctx: Any, incomplete: str) -> list[Any]:
    """What the shell offers for a value: choices, or names that the option takes. Where nothing fits, shells offer files."""
    offered = type(parameter).shell_complete(parameter, ctx, incomplete)
    if not offered and (named := NAMES.get(parameter.name)) is not None:
        offered = [Offer(name) for name in named() if name.startswith(incomplete)]
    return list(offered)


def _policies() -> list[str]:
    """provider/MODEL of the models in the model table, and provider/ of providers whose models have other names."""
    from critic_prm.data.trust import read_toml
    from critic_prm.registry import names, resource

    table = read_toml(resource("providers/models.toml"))
    found = []
    for provider in names("provider"):
        models = [row["match"] for row in table.get(provider, ()) if "*" not in row["match"]]
        found += [f"{provider}/{model}" for model in models] or [f"{provider}/"]
    return found


def _critics() -> list[str]:
    from critic_prm.registry import names

    return [*names("critic"), *_policies()]


def _styles() -> Iterable[str]:
    from critic_prm.styles.prompt import style_names

    return style_names()


def _formats() -> Iterable[str]:
    from critic_prm.data.formats.convert import formats

    return formats()


NAMES: Mapping[str, Callable[[], Iterable[str]]] = {
    **dict.fromkeys(("critic", "judge", "first", "confirm", "segment_judge"), _critics),
    "policy": _policies,
    "style": _styles,
    **dict.fromkeys(("format", "from_", "to"), _formats),
}
"""The names that an option or argument takes, besides paths."""
