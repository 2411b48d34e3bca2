"""Options of commands that are built from the fields of settings classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from critic_prm.cli.fields import Fields, expanded
from critic_prm.errors import UsageError
from critic_prm.option import Option


def doubled(text: str) -> float:
    if not text.isdecimal():
        raise UsageError(f"--twice is {text!r}; write a number")
    return 2.0 * int(text)


@dataclass(frozen=True, slots=True)
class Inner:
    depth: Annotated[int, Option(("-d",), min=1)] = 3
    """Maximum number
    of steps."""
    seed: Annotated[int | None, Option(("--inner-seed",))] = None
    """Random seed."""


@dataclass(frozen=True, slots=True)
class Settings:
    kind: Annotated[Literal["mean", "max"], Option(panel="One")] = "mean"
    """Value backup."""
    inner: Inner = Inner(5)
    """Contributes its fields."""
    strict: bool = True
    """Check everything."""
    quiet: bool = False
    """Print nothing."""
    files: Annotated[tuple[str | Path, ...], Option(metavar="FILE")] = ()
    """May be repeated."""
    twice: Annotated[float, Option(parse=doubled)] = 1.0
    """Parsed by a function."""
    secret: Annotated[object, Option(hidden=True)] = None
    """Not an option."""


SEEN: list[Any] = []


def command(name: str, *, settings: Settings) -> None:
    SEEN.append((name, settings))


def some(settings: Annotated[Settings, Fields(only=("kind", "depth"), prefix="my", defaults={"kind": "max"})]) -> None:
    SEEN.append(settings)


def ran(function: Any, *words: str) -> Any:
    app = typer.Typer()
    app.command()(expanded(function))
    result = CliRunner().invoke(app, list(words))
    if result.exit_code and not isinstance(result.exception, SystemExit):
        raise result.exception  # type: ignore[misc]
    return SEEN.pop() if result.exit_code == 0 and "--help" not in words else result


def test_without_options_the_settings_are_the_defaults() -> None:
    assert ran(command, "x") == ("x", Settings())


def test_every_kind_of_field_is_an_option() -> None:
    words = ["x", "--kind", "max", "-d", "2", "--inner-seed", "7", "--no-strict", "--quiet", "--files", "a", "--files", "b"]
    words += ["--twice", "4"]
    expected = Settings("max", Inner(2, 7), strict=False, quiet=True, files=("a", "b"), twice=8.0)
    assert ran(command, *words) == ("x", expected)


@pytest.mark.parametrize("words", ["--kind min", "-d 0", "--secret x", "--inner x"])
def test_wrong_values_and_unknown_options_are_usage_errors(words: str) -> None:
    assert ran(command, "x", *words.split()).exit_code == 2


def test_an_error_of_a_parse_function_is_raised() -> None:
    with pytest.raises(UsageError, match="write a number"):
        ran(command, "x", "--twice", "two")


def test_the_help_is_the_docstring() -> None:
    text = " ".join(ran(command, "--help").output.replace("│", " ").split())
    assert "Maximum number of steps." in text
    assert "Not an option" not in text


def test_a_command_can_choose_prefix_and_set_defaults_of_fields() -> None:
    assert ran(some, "--my-depth", "9") == Settings("max", Inner(9))
    assert ran(some, "--my-quiet").exit_code == 2
