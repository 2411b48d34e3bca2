"""Check the documents: commands parse, imports resolve, every command is documented, generated parts are up to date."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import typer

from critic_prm.cli import build
from critic_prm.styles.prompt import style_names

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def documented() -> Iterator[tuple[str, str]]:
    """(document, command line) of every line of a code block that begins with critic-prm, continued lines joined."""
    for path in DOCUMENTS:
        code = "\n".join(re.findall(r"^```\w*\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL))
        for line in code.replace("\\\n", " ").split("\n"):
            command = line.strip().removeprefix("$ ")
            if command.startswith("critic-prm ") and "..." not in command:
                yield path.name, command


def leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    if children := getattr(command, "commands", {}):
        for child, sub in children.items():
            yield from leaves(sub, f"{name} {child}")
    else:
        yield name, command


@pytest.mark.parametrize(("document", "line"), sorted(set(documented())))
def test_a_documented_command_parses(document: str, line: str) -> None:
    words = shlex.split(re.split(r" [|>]|2>", line)[0], comments=True)[1:]
    command, path = build(), "critic-prm"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{document}: {path} has no command {words[0]!r}"
        path, command = f"{path} {words[0]}", command.commands[words.pop(0)]
    try:
        command.make_context(path, words)
    except typer.Exit:
        pass  # --help
    except Exception as error:  # what typer raises for wrong usage has no public name
        pytest.fail(f"{document}: `{line}`: {error}")


@pytest.mark.parametrize(("name", "command"), list(leaves(build(), "critic-prm")))
def test_every_command_is_documented_and_explains_itself(name: str, command: Any) -> None:
    text = "\n".join(path.read_text("utf-8") for path in DOCUMENTS)
    assert f"{name} " in text or f"`{name}`" in text or f"{name}\n" in text, f"no document shows `{name}`"
    assert command.help, f"{name} has no help"
    for parameter in command.params:
        if parameter.param_type_name == "option":
            assert parameter.help, f"{name}: {parameter.opts[0]} has no help"


def test_every_style_stands_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for name in style_names():
        assert f"`{name}`" in readme, f"the README does not name {name}"


def imports() -> Iterator[tuple[str, str, str]]:
    """(document, module, name) of every import from this project in a Python block."""
    for path in DOCUMENTS:
        for block in re.findall(r"^```python\n(.*?)^```", path.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            for module, names in re.findall(r"^\s*from ((?:critic_prm|distill)[\w.]*) import (.+)$", block, re.MULTILINE):
                for name in names.split(","):
                    yield path.name, module, name.split(" as ")[0].strip()


@pytest.mark.parametrize(("document", "module", "name"), sorted(set(imports())))
def test_a_documented_import_resolves(document: str, module: str, name: str) -> None:
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("critic_prm", "distill"):
            raise
        pytest.skip(f"needs {error.name}")  # an extra that is not installed
    assert hasattr(found, name), f"{document}: {module} has no {name}"


@pytest.mark.parametrize("path", [ROOT / "CONTRIBUTING.md", *DOCUMENTS], ids=lambda path: path.name)
def test_a_documented_path_exists(path: Path) -> None:
    text = path.read_text("utf-8")
    for name in set(re.findall(r"`((?:critic_prm|distill|docs|bench|tests|recipes|prompts|examples)/[\w./-]*)`", text)):
        if "NAME" not in name and "always" not in name and "marked" not in name:  # what a reader is asked to write
            assert (ROOT / name).exists(), f"{path.name}: {name} does not exist"
    for link in re.findall(r"\]\(([\w./-]+\.md)(?:#[\w-]*)?\)", text):
        assert (path.parent / link).exists(), f"{path.name} links to {link}, which does not exist"


def test_generated_parts_are_up_to_date() -> None:
    spec = spec_from_file_location("readme", ROOT / "docs" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    readme = module_from_spec(spec)
    spec.loader.exec_module(readme)
    for page in readme.PARTS:
        assert readme.filled(page) == (ROOT / page).read_text("utf-8"), "run `python docs/readme.py`"
