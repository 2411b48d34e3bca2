"""Find what a step boundary never cuts: code, display mathematics, tables, tags, tool calls, and formulas within a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from critic_prm.data.trajectory import line_starts

_ENVIRONMENT = re.compile(
    r"(?:align(?:ed|at|edat)?|array|[bBpvV]?(?:small)?matrix|cases|displaymath|eqnarray|equation|flalign|gather(?:ed)?|multline|split"
    r"|subequations|table|tabular|tikzpicture|verbatim|lstlisting|math)\*?"
)
"""LaTeX environments that stay whole. Environments of text, such as enumerate and proof, do not."""

BLOCK_TAGS = ("think", "thinking", "tool_call", "tool_response", "function_call", "code", "pre", "table", "svg", "math", "step")
"""Elements that stay whole. Others, such as <answer>, may hold many steps: only their tags themselves are never cut."""

WITHIN = 2000
"""Maximum length of a formula or of code within a line."""

BLOCKS = frozenset(("code", "formula", "table"))
"""Kinds of spans that belong to the text before them, like a displayed formula to its sentence."""


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the text that is never cut: from `start` to before `end`. `kind` is code, formula, table, think or inline."""

    start: int
    end: int
    kind: str


_OPERATORS = frozenset("=+-*/<")
_BEFORE_AMOUNTS = frozenset({"=", "*", "/"})
# A backslash takes the character after it, so that \$ and \\[ open nothing. Every alternative has bounded look-ahead.
_OPENER = re.compile(
    r"\\begin\{(?P<environment>[A-Za-z]{1,16}\*?)\}"
    r"|\\(?P<bracket>[\[(])"
    r"|\\."
    r"|(?P<fence>(?<!`)`{3,}+|(?<!~)~{3,}+)"
    r"|(?P<dollars>\$\$?)"
    r"|(?P<tick>`)"
    r"|<(?P<tag>/?[A-Za-z][\w:-]{0,30}+)(?:[ \t][^<>\n]{0,200}+)?/?>",
    re.DOTALL,
)
_DIVIDER = re.compile(r"[ \t]{0,20}\|?[ \t]{0,20}:?-{2,}+[-:| \t]*+(?=\r?\n|\r?\Z)")
_TOOL_CALL = re.compile(r"[ \t]{0,20}Tool call: ")


def protected(text: str) -> list[Span]:
    """The spans of a text that are never cut, in order and without overlap. Linear in the length of the text."""
    spans = list(_Scan(text).spans())
    if "|" in text:
        spans = _merged(spans, _tables(text))
    if "Tool call: " in text:
        spans = _merged(spans, _tool_calls(text))
    return spans


def outside(cuts: Iterable[int], spans: list[Span]) -> Iterator[int]:
    """The cuts, in order, that are not inside a span. A cut at the start of a span is not inside it."""
    place = 0
    for cut in cuts:
        while place < len(spans) and spans[place].end <= cut:
            place += 1
        if place == len(spans) or cut <= spans[place].start:
            yield cut


class _Scan:
    """One pass over a text. A closing mark that does not occur again is remembered, so that it is searched for only once."""

    def __init__(self, text: str) -> None:
        self._text, self._missing = text, set[str]()

    def spans(self) -> Iterator[Span]:
        """The spans, in order. What is opened and never closed is ordinary text, except a fence at the start of a line."""
        place = 0
        while match := _OPENER.search(self._text, place):
            place = match.end()
            end, kind = self._close(match)
            if end:
                yield Span(match.start(), end, kind)
                place = end

    def _close(self, match: re.Match[str]) -> tuple[int, str]:
        """Where the span that this match opens ends, 0 if it opens none, and its kind."""
        after, opened = match.end(), match[match.lastgroup] if match.lastgroup else ""
        match match.lastgroup:
            case "environment":
                return self._find(f"\\end{{{opened}}}", after) if _ENVIRONMENT.fullmatch(opened) else 0, "formula"
            case "bracket":
                return (self._find("\\]", after), "formula") if opened == "[" else (self._near("\\)", after), "inline")
            case "dollars":
                return (self._find("$$", after), "formula") if opened == "$$" else (self._formula(after), "inline")
            case "fence":
                return self._fence(match.start(), opened), "code"
            case "tick":
                return self._near("`", after), "inline"
            case "tag":
                return self._tag(opened, after)
        return 0, ""

    def _find(self, mark: str, place: int) -> int:
        """The end of the next `mark`, 0 if there is none."""
        if mark in self._missing:
            return 0
        at = self._text.find(mark, place)
        if at < 0:
            self._missing.add(mark)
        return at + len(mark) if at >= 0 else 0

    def _near(self, mark: str, place: int) -> int:
        """The end of the next `mark` of the same paragraph, 0 if there is none."""
        at = self._text.find(mark, place, place + WITHIN)
        inner = self._text[place:at] if at > place else ""
        return at + len(mark) if inner and "\n\n" not in inner and "\n\r\n" not in inner else 0

    def _formula(self, place: int) -> int:
        """The end of a formula that a dollar sign opened before `place`. In "costs $5, and $10" none is opened: as in Pandoc,
        no space follows the opening sign or precedes the closing one, and no digit follows that. Nor is one in GSM8K's
        "3*4=$<<3*4=12>>12": no operator stands before a sign of either kind."""
        end = self._near("$", place)
        inner = self._text[place : end - 1]
        good = inner and not inner[0].isspace() and not inner[-1].isspace() and not self._text[end : end + 1].isdigit()
        good = good and inner[-1] not in _OPERATORS and self._text[place - 2 : place - 1] not in _BEFORE_AMOUNTS
        return end if end and good else 0

    def _fence(self, start: int, fence: str) -> int:
        """The end of a block of code. A fence that begins a line is closed by one that has a line of its own, or by the end of
        the text; one within a line by the next fence."""
        text, place = self._text, start + len(fence)
        if not self._begins_line(start):
            return self._find(fence[:3], place) if fence[0] == "`" else 0
        while at := self._find(fence, place):
            end = text.find("\n", at)
            end = len(text) if end < 0 else end
            if self._begins_line(at - len(fence)) and not text[at : min(end, at + 80)].strip(" \t\r`~"):
                return end
            place = at
        return len(text)

    def _begins_line(self, place: int) -> bool:
        """Whether only an indentation precedes this place on its line."""
        _, line, indent = self._text[max(0, place - 20) : place].rpartition("\n")
        return not indent.strip() and (bool(line) or place <= 20)

    def _tag(self, name: str, after: int) -> tuple[int, str]:
        """An element that stays whole, or a single tag."""
        if name.lower() not in BLOCK_TAGS:
            return after, "inline"
        return self._find(f"</{name}>", after) or after, {"think": "think", "thinking": "think", "table": "table"}.get(
            name, "code"
        )


def _tables(text: str) -> Iterator[Span]:
    """Markdown tables: a line with bars, a divider such as |---|---|, and the lines with bars after it."""
    before, table = -1, -1
    for place in line_starts(text):
        end = text.find("\n", place)
        end = len(text) if end < 0 else end
        barred = text.find("|", place, end) >= 0
        if table >= 0 and not barred:
            yield Span(table, place - 1, "table")
            table = -1
        elif table < 0 and barred and before >= 0 and _DIVIDER.match(text, place):
            table = before
        before = place if barred else -1
    if table >= 0:
        yield Span(table, len(text), "table")


def _tool_calls(text: str) -> Iterator[Span]:
    """Lines with a tool call and its arguments, as the reader of chats writes them."""
    for place in line_starts(text):
        if _TOOL_CALL.match(text, place):
            end = text.find("\n", place)
            yield Span(place, len(text) if end < 0 else end, "code")


def _merged(spans: list[Span], others: Iterable[Span]) -> list[Span]:
    """Both lists in one, in order. Spans that overlap become one, of the kind of the longer."""
    merged: list[Span] = []
    for span in sorted([*spans, *others], key=lambda span: (span.start, -span.end)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            kind = last.kind if last.end - last.start >= span.end - span.start else span.kind
            merged[-1] = Span(last.start, max(last.end, span.end), kind)
        else:
            merged.append(span)
    return merged
