"""Generate the parts of the documentation that the code determines: the README's tree, and the tables of formats and losses.

`python docs/readme.py` writes each between its marks; tests/test_docs.py fails while one is out of date.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from textwrap import shorten

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 132

TOP = {
    "pyproject.toml": "dependencies, extras, contents of the wheel",
    "Makefile": "make quickstart, make test",
    "constraints.txt": "versions that were tested together",
    "cache.db.example": "a judge's recorded replies for the examples, so that the quickstart needs no API key",
    "examples": "solutions with gold labels, the recorded replies, and the script that builds the cache from them",
    "prompts": "one template per style; the first line names the reader of replies",
    "recipes": "published systems as pipelines of commands, one per file",
}
"""Root entries listed before the packages; those that do not exist are left out."""

AFTER = {
    "tests": "one folder per package; test_house.py checks import layers, test_docs.py the documentation",
    "bench": "scripts that measure speed, memory and quality; results in RESULTS.md",
    "docs": "the manual, one page per task",
}

LAYERS = (
    ("background", "errors", "option", "registry", "signals", "terminal", "providers"),
    ("data",),
    ("arithmetic", "styles", "engine", "metrics", "datasets"),
    ("distill", "generate"),
    ("critics", "search"),
    ("label",),
    ("annotate", "evaluate", "serve"),
    ("cli", "__main__"),
)
"""The packages by import layer, lowest first: a package imports only from lower layers, or from its own layer without a cycle.
tests/test_house.py checks this, and the README's tree follows the same order."""


def first_line(path: Path) -> str:
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n")[0].rstrip(".")


def tree() -> str:
    """The tree of packages, lowest import layer first, each with its first line."""
    rows: list[tuple[int, str, str]] = [(0, _slashed(name), what) for name, what in TOP.items() if (ROOT / name).exists()]
    rows.append((0, "critic_prm/", first_line(ROOT / "critic_prm" / "__init__.py")))
    packages = (name for layer in LAYERS for name in layer if (ROOT / "critic_prm" / name).is_dir())
    rows += [(1, f"{name}/", first_line(ROOT / "critic_prm" / name / "__init__.py")) for name in packages]
    rows.append((0, "distill/", first_line(ROOT / "distill" / "__init__.py")))
    rows += [(0, _slashed(name), what) for name, what in AFTER.items()]
    names = max(len("  " * depth + name) for depth, name, _ in rows) + 2
    room = WIDTH - names - 4
    lines = (f"    {('  ' * depth + name).ljust(names)}{shorten(what, room, placeholder=' ...')}" for depth, name, what in rows)
    return "\n".join(lines)


def formats() -> str:
    """The table of formats, and a sample row of each."""
    from json import dumps

    from critic_prm.data.formats.convert import formats as all_formats

    head = ("format", "description", "reads", "writes", "label field", "first step number", "neutral", "after the first error")
    rows = (
        f"| `{name}` | {own.about} | yes | {'no' if own.write is None else 'yes'} | {own.labels}"
        f" | {'' if own.index_base is None else own.index_base} | {own.neutral} | {own.after_error} |"
        for name, own in all_formats().items()
    )
    samples = (f"- `{name}`: `{dumps(own.sample, ensure_ascii=False)}`" for name, own in all_formats().items())
    return "\n".join((f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows, "", "Sample rows:", "", *samples))


def losses() -> str:
    """The table of losses. Their modules are parsed, not imported, because they import torch."""
    calls = {}
    for path in (ROOT / "distill" / "losses").glob("*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            match node:
                case ast.Assign(targets=[ast.Name(name)], value=ast.Call(func=ast.Name("Loss")) as call):
                    calls[name.lower().replace("_", "-")] = call
    rows = []
    for name, call in sorted(calls.items()):
        kind, objective = map(ast.literal_eval, call.args[2:4])
        source = next((ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg == "source"), "")
        rows.append(
            f"| `{name}` | `{'outcome' if kind == 'outcomes' else kind}` | {objective} | {source} |".replace("  |", " |")
        )
    return "\n".join(("| `--loss` | learns from | objective | source |", "|---|---|---|---|", *rows))


def providers() -> str:
    """The table of providers, from presets.toml."""
    from math import inf

    from critic_prm.providers.presets import Preset, presets

    schemas = {"json_schema": "yes", "json_object": "JSON only", "": "no"}
    chances = {"always": "yes", "sent": "some models", "never": "no"}

    def logprobs(one: Preset) -> str:
        most = "" if one.most_logprobs == inf or one.logprobs == "never" else f", {one.most_logprobs:g} at most"
        return chances[one.logprobs] + most

    def tried(one: Preset) -> str:
        ways = {"mock": "documented replies and errors", "server": "the real server", "real": "the provider"}
        return ", ".join(ways[way] for way in one.tried) or "read only"

    head = ("`--judge`", "provider", "key", "address", "structured outputs", "log-probabilities", "seed", "tried with")
    rows = (
        f"| `{name}/MODEL` | {one.title} | {f'`{one.key}`' if one.key else 'none'}"
        f" | {f'`{one.base_url}`' if one.base_url else f'`--base-url` or `{one.base_url_env}`'} | {schemas[one.schema]}"
        f" | {logprobs(one)} | {'yes' if one.seed else 'no'} | {tried(one)} |"
        for name, one in presets().items()
    )
    return "\n".join((f"| {' | '.join(head)} |", "|---" * len(head) + "|", *rows))


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "README.md": ("tree", tree),
    "docs/formats.md": ("formats", formats),
    "docs/losses.md": ("losses", losses),
    "docs/providers.md": ("providers", providers),
}
"""The pages with a generated part: the name in its marks, and the function that generates it."""


def filled(page: str) -> str:
    """The text of a page of `PARTS`, with its generated part up to date."""
    name, generate = PARTS[page]
    head, mark, rest = (ROOT / page).read_text("utf-8").partition(f"<!-- {name} -->\n")
    _, end, tail = rest.partition(f"<!-- end of {name} -->")
    assert mark, f"{page} has no mark for {name}"
    assert end, f"{page} has no mark for the end of {name}"
    return f"{head}{mark}{generate()}\n{end}{tail}"


def _slashed(name: str) -> str:
    return f"{name}/" if (ROOT / name).is_dir() else name


if __name__ == "__main__":
    for page in PARTS:
        (ROOT / page).write_text(filled(page), "utf-8")
