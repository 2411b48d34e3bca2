"""Build the documentation site: the manual, a reference of the commands and a reference of the Python packages.

`python docs/site.py` collects the pages in .site/pages and builds them with Zensical, the successor of MkDocs Material, into
.site/html; a warning, such as a broken link, fails the build. `--only-pages` stops before the build.
"""

from __future__ import annotations

import ast
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / ".site"

RENAMED = {
    "docs/start.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CHANGELOG.md": "changelog.md",
    "bench/RESULTS.md": "results.md",
}
"""Pages that have another name on the site; all others keep the one they have in docs/."""


def manual() -> Iterator[tuple[str, str]]:
    """(name, text) of each page of the manual, with links as they are on the site, where all pages are in one folder."""
    pages = [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))]
    for page in dict.fromkeys((*pages, *RENAMED)):

        def link(match: re.Match[str], page: str = page) -> str:
            target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match[1]))
            return f"]({_name(target)}{match[2] or ''})"

        yield _name(page), re.sub(r"\]\(([\w./-]+\.md)(#[\w-]*)?\)", link, (ROOT / page).read_text("utf-8"))


def _name(page: str) -> str:
    return RENAMED.get(page, posixpath.basename(page))


def commands() -> Iterator[tuple[str, str]]:
    """(name, text) of a page for each command and each group of commands, and of their list."""
    from critic_prm.cli import build

    tree = build()
    listed = ["# Commands", "", "| command | what it does |", "|---|---|"]
    for name, command in tree.commands.items():
        listed.append(f"| [`critic-prm {name}`](cli-{name}.md) | {_cell((command.help or '').partition(chr(10) * 2)[0])} |")
        parts = [f"# critic-prm {name}", ""]
        inner = getattr(command, "commands", None)
        if inner is None:
            parts += _command(command)
        else:
            parts += [command.help or "", ""]
            for child, sub in inner.items():
                parts += [f"## critic-prm {name} {child}", "", *_command(sub)]
        yield f"cli-{name}.md", "\n".join(parts) + "\n"
    yield "cli.md", "\n".join([*listed, "", f"{tree.epilog or ''}", ""])


def _command(command: Any) -> Iterator[str]:
    text = re.sub(r"^Example: (.+)$", r"```sh\n\1\n```", command.help or "", flags=re.MULTILINE)
    yield from (text, "")
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    if arguments:
        yield from ("| argument | |", "|---|---|")
        for one in arguments:
            yield f"| `{one.metavar or one.name.upper()}`{'' if one.required else ' (optional)'} | {_cell(one.help or '')} |"
        yield ""
    panels: dict[str, list[Any]] = {}
    for one in command.params:
        if one.param_type_name == "option" and not one.hidden:
            panels.setdefault(one.rich_help_panel or "Options", []).append(one)
    for panel, options in panels.items():
        yield from (f"**{panel}**", "", "| option | default | |", "|---|---|---|")
        yield from (f"| {_flags(one)} | {_default(one)} | {_cell(one.help or '')} |" for one in options)
        yield ""


def _flags(option: Any) -> str:
    flags = ", ".join(f"`{flag}`" for flag in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return flags
    choices = [value for part in _parts(option.type_descriptor.annotation) for value in get_args(part)]
    shown = option.metavar or ("|".join(map(str, choices)) if choices else "")
    return f"{flags} `{shown}`".replace("|", "\\|") if shown else flags


def _parts(annotation: Any) -> Iterator[Any]:
    """The Literal types in an annotation."""
    if "Literal" in str(getattr(annotation, "__origin__", "")):
        yield annotation
    for inner in get_args(annotation):
        yield from _parts(inner)


def _default(option: Any) -> str:
    if option.required:
        return "required"
    if option.default in (None, (), [], "", False) or option.is_flag:
        return ""
    return f"`{option.default}`".replace("|", "\\|")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def packages() -> Iterator[tuple[str, str]]:
    """(name, text) of the pages of the Python reference, one per package. The build parses the sources, it imports none."""
    folders = [path.parent for path in sorted((ROOT / "critic_prm").glob("*/__init__.py")) if path.parent.name != "cli"]
    listed = ["# Python", "", "`from critic_prm import ...` has the names that most programs need:", ""]
    listed += [f"- `{name}`" for name in import_module("critic_prm").__all__]
    listed += ["", "The packages in the order of the data flow are listed in the README. Their references:", ""]
    for folder in [*folders, ROOT / "distill"]:
        listed.append(f"- [{'.'.join(folder.relative_to(ROOT).parts)}](python-{folder.name}.md): {_about(folder)}")
        lines = [f"# {'.'.join(folder.relative_to(ROOT).parts)}", ""]
        for path in sorted(folder.rglob("*.py")):
            inside = path.relative_to(ROOT).with_suffix("").parts
            if not any(part.startswith("_") for part in inside):
                lines += [f"::: {'.'.join(inside)}", ""]
        yield f"python-{folder.name}.md", "\n".join(lines)
    yield "python.md", "\n".join([*listed, ""])


def _about(package: Path) -> str:
    return (ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or "").partition("\n")[0]


def write(folder: Path) -> Mapping[str, str]:
    """Write all pages to a new folder, and return them by name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = dict((*manual(), *commands(), *packages()))
    for name, text in pages.items():
        (folder / name).write_text(text, "utf-8")
    return pages


if __name__ == "__main__":
    write(SITE / "pages")
    if "--only-pages" not in sys.argv:
        sys.exit(
            subprocess.run([sys.executable, "-m", "zensical", "build", "--clean", "--strict"], cwd=ROOT, check=False).returncode
        )
