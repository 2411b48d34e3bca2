"""The parts of README.md that the code itself can tell: the table of formats, and the tree with a line per file.

`python docs/readme.py` writes them between their marks; tests/test_docs.py fails while they are out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
    ("errors", "trajectory", "records", "aggregate", "plugins", "resources", "addresses"),
    ("provider", "judgement", "votes", "critic", "prompt", "template", "reader", "cache", "models"),
    ("formats", "readers", "labels", "arithmetic", "dataset", "metrics", "benchmarks"),
    ("providers", "engine", "critics", "label", "reread", "generate", "evaluate", "judge_eval", "search", "rewards"),
)
"""The order in which the tree shows the modules of critic_prm: as a trajectory meets them; others come after, the CLI last."""


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0].rstrip(".")


def tree() -> str:
    """The tree as README.md shows it: a name a line, indented by folder, with what it is."""
    rows: list[tuple[int, str, str]] = [(0, _slashed(name), what) for name, what in TOP.items() if (ROOT / name).exists()]
    for package in ("critic_prm", "distill"):
        rows.append((0, f"{package}/", first_line(ROOT / package / "__init__.py")))
        for path in sorted(_modules(ROOT / package), key=_rank):
            rows.extend(_entry(path, 1))
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


def _modules(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if (path.suffix == ".py" and not path.name.startswith("_")) or (path / "__init__.py").is_file():
            yield path


def _entry(path: Path, depth: int) -> Iterator[tuple[int, str, str]]:
    if path.is_file():
        yield depth, path.name, first_line(path)
        return
    yield depth, f"{path.name}/", first_line(path / "__init__.py")


def _rank(path: Path) -> tuple[int, str]:
    order = [name for floor in FLOORS for name in floor]
    if path.stem in order:
        return order.index(path.stem), ""
    return len(order) + (path.stem == "cli"), path.name


def _slashed(name: str) -> str:
    return f"{name}/" if (ROOT / name).is_dir() else name


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(filled(page.read_text("utf-8")), "utf-8")
