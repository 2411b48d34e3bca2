"""Compile, check and render prompt templates in a sandbox that limits their work; errors name file and line."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import lru_cache, wraps
from itertools import islice
from typing import Any, cast

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, filters, meta, nodes, pass_eval_context
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from critic_prm.errors import UsageError

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
TEXTS = VARIABLES.keys() - {"steps", "asked"}
"""The variables that are texts or numbers."""


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


@dataclass(frozen=True, slots=True)
class CompiledTemplate:
    """A checked template."""

    template: Template
    fixed: Mapping[str, str]
    """The text of the blocks without any code, such as most system prompts."""


@lru_cache(maxsize=64)
def compile_template(source: str, where: str) -> CompiledTemplate:
    """Compile and check a template: two blocks, no other text, only known variables. Raises UsageError with file:line.

    The texts of a trajectory are only ever values of variables, so they are never executed as template code.
    """
    environment = _environment()
    try:
        tree = environment.parse(source)
        _check(tree, where)
        fixed = {block.name: text for block in tree.find_all(nodes.Block) if (text := _fixed_text(block)) is not None}
        with metered():  # the compiler evaluates constant expressions
            code = environment.compile(instrument(tree), name=where, filename=where)
    except TemplateSyntaxError as error:
        raise UsageError(f"{where}:{error.lineno}: {error.message}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(f"{where}: the template cannot be compiled: {error or type(error).__name__}") from None
    return CompiledTemplate(Template.from_code(environment, code, dict(environment.globals)), fixed)


def render_block(compiled: CompiledTemplate, block: str, variables: Mapping[str, Any], where: str) -> str:
    """Render one block. Raises UsageError with file:line if the template fails on this trajectory."""
    if block in compiled.fixed:
        return compiled.fixed[block]
    template = compiled.template
    try:
        with metered():
            return _metered_text(template.blocks[block](template.new_context(dict(variables))))
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
            raise UsageError(f"{where}: the block `{name}` is missing; the template has: {has}")
    unknown = meta.find_undeclared_variables(tree) - VARIABLES.keys()
    for name_node in tree.find_all(nodes.Name):
        if name_node.name in unknown:
            has = ", ".join(VARIABLES)
            raise UsageError(f"{where}:{name_node.lineno}: there is no variable `{name_node.name}`; available: {has}")


def _fixed_text(block: nodes.Block) -> str | None:
    parts = [part for node in block.body for part in (node.nodes if isinstance(node, nodes.Output) else [node])]
    texts = [part.data for part in parts if isinstance(part, nodes.TemplateData)]
    return "".join(texts) if len(texts) == len(parts) else None


def _blank(node: nodes.Output) -> bool:
    return all(isinstance(part, nodes.TemplateData) and not part.data.strip() for part in node.nodes)


# The sandbox: what a template may do, and how much of it.

WORK = 2_000_000
"""Work limit for one block of a prompt. A loop iteration costs one unit, and so do 16 characters that are output, joined or
passed to a filter; a call costs ten. The limit is about 30 million characters or two million iterations."""
CHARACTERS, CALL = 16, 10
BITS = 256
"""Maximum bit length of an integer; templates only need step numbers and text lengths."""

NO_FILTERS = ("batch", "center", "format", "pprint", "random", "round", "slice", "sum", "urlize", "wordwrap", "xmlattr")
NO_METHODS = frozenset(
    ("center", "expandtabs", "format", "format_map", "join", "ljust", "replace", "rjust", "to_bytes", "translate", "zfill")
)
"""Methods whose result can be far longer than their arguments. `join` and `replace` are available as filters."""

_spent: ContextVar[list[int]] = ContextVar("spent")


@contextmanager
def metered() -> Iterator[None]:
    """Context in which up to `WORK` units may be spent."""
    token = _spent.set([0])
    try:
        yield
    finally:
        _spent.reset(token)


def spend(units: int) -> None:
    """Count work. Raises SecurityError if the limit is exceeded."""
    spent = _spent.get()
    spent[0] += units
    if spent[0] > WORK:
        raise SecurityError("it takes too much work for a prompt: shorten its texts and loops")


def spend_text(characters: int) -> None:
    """Count the work of a text with this many characters. Raises SecurityError if the limit is exceeded."""
    spend(1 + max(characters, 0) // CHARACTERS)


TEXT_TYPES, COLLECTIONS = (str, bytes), (list, tuple, set, frozenset, dict)


def weigh(value: Any) -> Any:
    """Count the work of outputting `value`, and return it. Shared nested lists are counted each time they would be output."""
    if isinstance(value, COLLECTIONS):
        spend(1)
        for item in value.items() if isinstance(value, dict) else value:
            weigh(item)
    else:
        spend(1 + len(value) // CHARACTERS if isinstance(value, TEXT_TYPES) else 1)
    return value


def _metered_text(pieces: Iterator[str]) -> str:
    """Join the output of a template. Raises SecurityError before it is joined if it is too long."""
    parts: list[str] = []
    while chunk := list(islice(pieces, 256)):
        spend(sum(map(len, chunk)) // CHARACTERS)
        parts += chunk
    return "".join(parts)


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox without functions that pad text, and with metering. See `WORK`.

    It does not bound the time of a single operation on a long text, and the count is approximate.
    """

    intercepted_binops = frozenset(("*", "**", "%", "+"))

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for name in NO_FILTERS:
            del self.filters[name]
        for name, function in list(self.filters.items()):
            self.filters[name] = _metered_filter(_OWN.get(name, function))
        self.filters |= {"_joined": _joined, "_rounds": _rounds, "_weighed": weigh}

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter whose arguments are metered."""
        self.filters[name] = _metered_filter(function)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str | bytes):
            raise SecurityError("a prompt cannot format a text with %; join texts with ~")
        if operator == "+":
            weigh(left), weigh(right)
        elif isinstance(left, int) and isinstance(right, int):
            size = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if size > BITS and operator != "%":
                raise SecurityError(f"a number of more than {BITS} bits is too large for a prompt")
        elif operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(times, int) and hasattr(text, "__len__"):
                    spend_text(len(text) * times)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(__obj, "__name__", "")
        if name in NO_METHODS:
            raise SecurityError(f"a prompt cannot call .{name}()")
        spend(CALL)
        weigh((getattr(__obj, "__self__", None), args, kwargs))
        return weigh(super().call(__context, __obj, *args, **kwargs))


def instrument(tree: nodes.Template) -> nodes.Template:
    """Add metering to every loop, every `~` and every output of the template."""
    return cast("nodes.Template", _Instrument(tree).visit(tree))


class _Instrument(NodeTransformer):
    """Most of what a prompt outputs are the variables in TEXTS and the attributes of the steps. They are not metered one by
    one, because `_metered_text` counts them; but where a template collects output in a variable, every value is metered."""

    def __init__(self, tree: nodes.Template) -> None:
        collects = any(tree.find_all((nodes.AssignBlock, nodes.Macro, nodes.CallBlock, nodes.FilterBlock)))
        stored = Counter(name.name for name in tree.find_all(nodes.Name) if name.ctx != "load")
        loops = Counter(
            loop.target.name
            for loop in tree.find_all(nodes.For)
            if isinstance(loop.target, nodes.Name) and isinstance(loop.iter, nodes.Name) and loop.iter.name == "steps"
        )
        self.texts = TEXTS - stored.keys() if not collects else set()
        self.steps = (
            {name for name, count in loops.items() if count == stored[name]} if not (collects or stored["steps"]) else set()
        )

    def visit_Output(self, node: nodes.Output) -> nodes.Output:
        self.generic_visit(node)
        node.nodes = [part if self._is_plain(part) else _filter(part, "_weighed", []) for part in node.nodes]
        return node

    def _is_plain(self, part: nodes.Node) -> bool:
        if isinstance(part, nodes.Getattr) and isinstance(part.node, nodes.Name):
            return part.node.name in self.steps and part.attr in SHOWN
        return isinstance(part, nodes.TemplateData) or (isinstance(part, nodes.Name) and part.name in self.texts)

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        node.iter = _filter(node.iter, "_rounds", [nodes.Const(1 + text // CHARACTERS)])
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "_joined", [])


def _filter(value: Any, name: str, args: list[nodes.Expr]) -> nodes.Filter:
    return nodes.Filter(value, name, args, [], None, None, lineno=value.lineno)


def _metered_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter so that its arguments are metered. Iterators are materialized first so that they can be counted."""
    skip = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = [list(arg) if isinstance(arg, Iterator) else arg for arg in args[skip:]]
        weigh((given, kwargs))
        return function(*args[:skip], *given, **kwargs)

    return run


def _rounds(value: Any, weight: int) -> Any:
    """The items of a loop, with all its iterations counted in advance."""
    items = value if isinstance(value, str | list | tuple | dict) else list(value)
    spend(len(items) * weight)
    return items


def _joined(values: list[Any]) -> str:
    return "".join(map(str, weigh(values)))


def _indent(text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    spend_text((text.count("\n") + 1) * (len(width) if isinstance(width, str) else width))
    return str(filters.do_indent(text, width, first, blank))


def _replace(value: Any, old: str, new: str, count: int = -1) -> str:
    text = str(value)
    spend_text(text.count(old) * len(new))
    return text.replace(old, new, count)


@pass_eval_context
def _join(context: nodes.EvalContext, value: Any, between: Any = "", attribute: str | int | None = None) -> str:
    items = list(value)
    if attribute is not None:
        items = list(map(filters.make_attrgetter(context.environment, attribute), items))
    spend_text(len(items) * len(weigh(str(between))))
    return str(between).join(map(str, weigh(items)))


@pass_eval_context
def _tojson(context: nodes.EvalContext, value: Any, indent: int | None = None) -> str:
    if indent is not None and not 0 <= indent <= 8:
        raise SecurityError(f"tojson: indent is {indent}; it must be from 0 to 8")
    return str(filters.do_tojson(context, value, indent))


_OWN: dict[str, Callable[..., Any]] = {"indent": _indent, "join": _join, "replace": _replace, "tojson": _tojson}
