"""The generated parts of README.md: the table of formats and the tree of packages.

`python docs/readme.py` writes them between their marks; tests/test_docs.py fails while they are out of date.
"""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 132

TOP = {
    "pyproject.toml": "dependencies, extras, how the wheel is packed",
    "Makefile": "make quickstart, make test",
    "constraints.txt": "versions that were tried together",
    "cache.db.example": "a real cache: a judge's replies for the examples, so that first verdicts need no key",
    "examples": "solutions with gold labels, written for this project; the recorded replies; how the cache is made of them",
    "prompts": "one template a style; the first line names its reader",
    "recipes": "one published system a file, as a pipeline of the commands",
}
"""What stands at the root before the packages; what does not exist is left out."""

AFTER = {
    "tests": "the mirror of all that, and test_house.py (floors, light imports), test_docs.py (documents that tell the truth)",
    "bench": "speed, memory and quality, each script printing its figures; RESULTS.md",
    "docs": "a page for each thing one does",
}

FLOORS = (
    ("errors", "registry", "signals", "safe_text", "terminal", "providers"),
    ("data",),
    ("arithmetic", "styles", "engine", "metrics", "datasets"),
    ("distill", "generate"),
    ("critics", "search"),
    ("label",),
    ("evaluate", "serve"),
    ("cli", "__main__"),
)
"""The packages by import floor, lowest first: a package imports only from lower floors, or from its own floor without a cycle.
tests/test_house.py checks this, and the README's tree follows the same order."""


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0].rstrip(".")


def tree() -> str:
    """The tree of packages, lowest import floor first, each with its first line."""
    rows: list[tuple[int, str, str]] = [(0, _slashed(name), what) for name, what in TOP.items() if (ROOT / name).exists()]
    rows.append((0, "critic_prm/", first_line(ROOT / "critic_prm" / "__init__.py")))
    packages = (name for floor in FLOORS for name in floor if (ROOT / "critic_prm" / name).is_dir())
    rows += [(1, f"{name}/", first_line(ROOT / "critic_prm" / name / "__init__.py")) for name in packages]
    rows.append((0, "distill/", first_line(ROOT / "distill" / "__init__.py")))
    rows += [(0, _slashed(name), what) for name, what in AFTER.items()]
    names = max(len("  " * depth + name) for depth, name, _ in rows) + 2
    room = WIDTH - names - 4
    lines = (f"    {('  ' * depth + name).ljust(names)}{shorten(what, room, placeholder=' ...')}" for depth, name, what in rows)
    return "\n".join(lines)


def formats() -> str:
    """The rows of the table of formats."""
    from critic_prm.data.formats.convert import table

    return "\n".join(
        f"| `{name}` | {what.rstrip('.')}{'' if writes else ' (read only)'} |".replace("\\", "")
        for name, what, writes, _ in table()
    )


def filled(readme: str) -> str:
    """The README with its two generated parts as they should be."""
    for name, text in (("formats", f"| format | what it is |\n|---|---|\n{formats()}"), ("tree", tree())):
        head, mark, rest = readme.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition(f"<!-- end of {name} -->")
        assert mark, f"README.md has no mark for {name}"
        assert end, f"README.md has no mark for the end of {name}"
        readme = f"{head}{mark}{text}\n{end}{tail}"
    return readme


def _slashed(name: str) -> str:
    return f"{name}/" if (ROOT / name).is_dir() else name


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(filled(page.read_text("utf-8")), "utf-8")
