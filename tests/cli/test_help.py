"""Every command's help: a summary, what it reads and writes, and an example that parses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from critic_prm.cli import build
from tests.command import invoke

WIDTH = 78
"""Characters of a line of help on a terminal of 80 columns."""


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The commands of a tree with their full names. Typer has its own copy of click, so groups are told by their attribute."""
    if hasattr(command, "commands"):
        for child, sub in command.commands.items():
            yield from leaves(sub, f"{name} {child}")
    else:
        yield name, command


@pytest.mark.parametrize(("name", "command"), [pytest.param(*leaf, id=leaf[0]) for leaf in leaves(build(), "critic-prm")])
def test_every_command_shows_an_example_that_parses(name: str, command: Any) -> None:
    assert "Example:" in command.help
    paragraphs = command.help.split("\n\n")
    example = paragraphs[-1].removeprefix("Example: ")
    assert f"{example} ".startswith(f"{name} "), f"the help of {name} ends with {paragraphs[-1]!r}"
    assert len(paragraphs[-1]) <= WIDTH, "the example takes more than a line"
    words = shlex.split(re.split(r" [|>] ", example)[0].removeprefix(name))
    command.make_context(name, words)  # raises for wrong usage


@pytest.mark.parametrize(("name", "command"), [pytest.param(*leaf, id=leaf[0]) for leaf in leaves(build(), "critic-prm")])
def test_every_command_says_what_it_does_reads_and_writes(name: str, command: Any) -> None:
    summary, *rest = command.help.split("\n\n")
    assert len(rest) >= 2, f"the help of {name} is a summary, what it reads and writes, and an example"
    assert summary.endswith(".")
    assert re.search(r"\b(Reads|Writes)\b", rest[0])


def test_the_summary_read_from_the_source_is_that_of_the_help() -> None:
    """The help of all commands shows it without importing the commands."""
    commands = dict(leaves(build(), "critic-prm"))
    assert {name: command.short_help for name, command in commands.items()} == {
        name: command.help.partition("\n\n")[0] for name, command in commands.items()
    }


@pytest.mark.parametrize(("name", "command"), [pytest.param(*leaf, id=leaf[0]) for leaf in leaves(build(), "critic-prm")])
def test_help_holds_no_markup(name: str, command: Any) -> None:
    """Rich takes [word] for a tag and leaves it out."""
    texts = [command.help, *(getattr(parameter, "help", None) or "" for parameter in command.params)]
    assert [text for text in texts if re.search(r"\[[a-z/]", text)] == []


def test_the_program_and_every_group_show_an_example() -> None:
    tree = build()
    groups = [name for name, command in tree.commands.items() if hasattr(command, "commands")]
    assert len(groups) > 5
    for words in ([], *([name] for name in groups)):
        assert f"Example: critic-prm {' '.join(words)}" in invoke(*words, "--help").stdout


@pytest.mark.parametrize(("name", "command"), [pytest.param(*leaf, id=leaf[0]) for leaf in leaves(build(), "critic-prm")])
def test_the_column_of_types_says_what_helps(name: str, command: Any) -> None:
    """It said <bool> beside every flag and <str> beside every other option."""
    context = command.make_context(name, [], resilient_parsing=True)
    for one in command.get_params(context):
        shown = one.display_type_rich(ctx=context)
        assert (shown is None) == (one.param_type_name == "argument" or one.is_flag), one.name
        assert not re.search(r"<|list\[|range", shown or "")
