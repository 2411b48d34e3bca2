"""Compile, check and render prompt templates; errors name file and line."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, meta, nodes

from critic_prm.errors import UsageError
from critic_prm.styles.sandbox import MeteredEnvironment, instrument, metered

BLOCKS = ("system", "user")
VARIABLES = {
    "problem": "the problem's text",
    "steps": "the steps, each with .number, .text and .observation (empty where there is none)",
    "asked": "the step asked about, in a style per step",
    "count": "how many steps there are",
    "first": "the number of the first step",
    "last": "the number of the last step",
    "nonce": "eight hex digits for the fences around the trajectory's text",
    "tools": "tool definitions, one JSON object a line; empty without tools",
    "images": "how many images are attached",
    "reference": "the reference answer, where it was asked for; else empty",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A step as seen by a template. `number` counts from the style's base."""

    number: int
    text: str
    observation: str


SHOWN = frozenset(field.name for field in fields(Shown))


class Problem:
    """Formats errors about one place in a template."""

    def __init__(self, where: str) -> None:
        self.where = where

    def error(self, key: str, value: str | None, allowed: str) -> UsageError:
        """The error for a value that is not allowed. A `value` of None means that the key is missing."""
        said = "is missing" if value is None else f"is {value!r}"
        return UsageError(f"{self.where}: `{key}` {said}; it must be {allowed}")

    def choose(self, key: str, value: str, table: Mapping[str, Any]) -> Any:
        """Look up `value` in `table`. Raises UsageError for a value that is not in it."""
        if value not in table:
            raise self.error(key, value, " or ".join(table))
        return table[value]


def shorten(text: str, limit: int) -> str:
    """Shorten `text` to about `limit` characters: the middle is replaced by a mark with the number of characters left out."""
    if len(text) <= limit:
        return text
    head = max(limit * 2 // 3, 0)
    tail = max(limit - head, 0)
    return f"{text[:head]}\n[... {len(text) - head - tail:,} characters left out here ...]\n{text[len(text) - tail :]}"


@lru_cache(maxsize=1)
def _environment() -> MeteredEnvironment:
    environment = MeteredEnvironment(
        undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, cache_size=0
    )
    environment.globals.clear()
    # Attribute access on Shown dominates rendering time and needs no sandbox checks.
    checked = environment.getattr

    def attribute(value: Any, name: str) -> Any:
        return getattr(value, name) if type(value) is Shown and name in SHOWN else checked(value, name)

    environment.__dict__["getattr"] = attribute
    environment.add_filter("shorten", shorten)
    return environment


@lru_cache(maxsize=64)
def compile_template(source: str, where: str) -> Template:
    """Compile and check a template: two blocks, no other text, only known variables. Raises UsageError with file:line.

    The texts of a trajectory are only ever values of variables, so they are never executed as template code.
    """
    environment = _environment()
    try:
        tree = environment.parse(source)
        _check(tree, where)
        with metered():  # the compiler evaluates constant expressions
            code = environment.compile(instrument(tree), name=where, filename=where)
    except TemplateSyntaxError as error:
        raise UsageError(f"{where}:{error.lineno}: {error.message}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{where}: the template cannot be compiled: {error or type(error).__name__}") from None
    return Template.from_code(environment, code, dict(environment.globals))


def render_block(template: Template, block: str, variables: Mapping[str, Any], where: str) -> str:
    """Render one block. Raises UsageError with file:line if the template fails on this trajectory."""
    try:
        with metered():
            return "".join(template.blocks[block](template.new_context(dict(variables))))
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == where]
        at = f"{where}:{template.get_corresponding_lineno(lines[-1] or 1)}" if lines else where
        raise UsageError(f"{at}: the template fails here: {error or type(error).__name__}") from error


def _check(tree: nodes.Template, where: str) -> None:
    for kind in (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends):
        for other in tree.find_all(kind):
            raise UsageError(f"{where}:{other.lineno}: a prompt is one file; it cannot {kind.__name__.lower()} another")
    for loop in tree.find_all(nodes.For):
        if loop.recursive:
            raise UsageError(f"{where}:{loop.lineno}: a loop in a prompt cannot be recursive")
    for node in tree.body:
        if isinstance(node, nodes.Block) or (isinstance(node, nodes.Output) and _blank(node)):
            continue
        raise UsageError(f"{where}:{node.lineno}: text and code outside the blocks {' and '.join(BLOCKS)} would never be sent")
    found = {node.name: node.lineno for node in tree.find_all(nodes.Block)}
    for name in BLOCKS:
        if name not in found:
            has = ", ".join(f"`{n}` (line {line})" for n, line in found.items()) or "none"
            raise UsageError(f"{where}: the block `{name}` is missing; blocks there are: {has}")
    unknown = meta.find_undeclared_variables(tree) - VARIABLES.keys()
    for name_node in tree.find_all(nodes.Name):
        if name_node.name in unknown:
            has = ", ".join(VARIABLES)
            raise UsageError(f"{where}:{name_node.lineno}: no variable is called `{name_node.name}`; there are: {has}")


def _blank(node: nodes.Output) -> bool:
    return all(isinstance(part, nodes.TemplateData) and not part.data.strip() for part in node.nodes)
