"""Describe how the command line shows a field of a settings class, where its type, default and docstring do not say it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """Metadata of a settings field, as in `retries: Annotated[int, Option(min=0)] = 6`; `critic_prm.cli.fields` reads it."""

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
    hidden: bool = False
    """The field is set in Python only and is not an option."""
