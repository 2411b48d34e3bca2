"""Equations with variables: compare and solve them, and follow them from step to step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from critic_prm.arithmetic.lexer import Value, lex
from critic_prm.arithmetic.parser import PLAIN, Reading, Unreadable, distance, divide, parse, say, subtract
from critic_prm.arithmetic.sides import Side, chains, sides

Agreement = Literal["always", "nearly", "never", "sometimes"]

_FUNCTION_NAMES = frozenset("fghpqFGHPQSTACEVWNLRu")
"""Letters that, directly before a bracket, are probably function names rather than factors."""
_NUMBERS = frozenset({"π", "\\pi"})


class Assignment(dict[str, Value]):
    """Gives every letter the value that a function computes from its name."""

    def __init__(self, value: Callable[[str], Value]) -> None:
        super().__init__()
        self.value = value

    def __missing__(self, letter: str) -> Value:
        return self.value(letter)


def _probe(seed: int, letter: str) -> Value:
    spread = sum(ord(sign) * (place + 3) for place, sign in enumerate(letter)) * (7 + 4 * seed) + 31 * seed
    return Fraction(spread % 97 + 2, 1 + seed % 2 * 3)


_PROBES = tuple(Assignment(partial(_probe, seed)) for seed in range(4))
"""Expressions that agree under all of these are treated as equal."""


def _constant(value: Value, letter: str) -> Value:
    return value


_POINTS = tuple(Assignment(partial(_constant, point)) for point in (5, 6, 7, 8, 31))
_READINGS = (PLAIN, Reading(strong=True))


def letters(side: Side) -> frozenset[str]:
    """Return the variables of a side; empty if a letter is a function or the imaginary unit (see `opaque`)."""
    found = {t.text for t in side.tokens if t.kind == "v"} - _NUMBERS
    if "i" in found:
        return frozenset()
    for token, after in zip(side.tokens, side.tokens[1:], strict=False):
        if token.kind == "v" and after.kind == "(" and after.tight and token.text in _FUNCTION_NAMES:
            return frozenset()
    return frozenset(found)


def opaque(side: Side) -> bool:
    """Return whether a side has letters that cannot be assigned values."""
    return not letters(side) and any(t.kind == "v" and t.text not in _NUMBERS for t in side.tokens)


def agreement(a: Side, b: Side) -> Agreement:
    """Return whether two sides with variables are equal always, nearly (within 2%), never (they differ by a constant) or
    sometimes.

    Raises Unreadable.
    """
    best: Agreement = "sometimes"
    divides = any(t.text == "/" for t in (*a.tokens, *b.tokens))
    for reading in _READINGS if divides else _READINGS[:1]:
        found = _agreement(a, b, reading)
        if found == "always":
            return found
        best = found if best == "sometimes" else best
    return best


def _agreement(a: Side, b: Side, reading: Reading) -> Agreement:
    offs: list[Value] = []
    close = True
    for probe in _PROBES:
        left, right = parse(a.tokens, reading, probe)[0], parse(b.tokens, reading, probe)[0]
        offs.append(_off(left, right))
        close = close and distance(left, right) * 50 <= distance(right, 0)
        if not close and not _near(offs[-1], offs[0]):
            return "sometimes"
    if not any(offs):
        return "always"
    return "nearly" if close else "never"


def solution(a: Side, b: Side) -> Value | None:
    """Return the solution of a linear equation in one variable; None for any other equation. Raises Unreadable."""
    at = [_off(parse(a.tokens, PLAIN, point)[0], parse(b.tokens, PLAIN, point)[0]) for point in _POINTS]
    slope = subtract(at[1], at[0])
    if isinstance(slope, float) or not slope:
        return None
    if any(subtract(at[k], at[0]) != slope * step for k, step in ((2, 2), (3, 3), (4, 26))):
        return None
    return subtract(5, divide(at[0], slope))


def _off(left: Value, right: Value) -> Value:
    """Return left - right; exactly 0 if the values differ only by float rounding."""
    off = subtract(left, right)
    return 0 if isinstance(off, float) and abs(off) <= 1e-9 * max(abs(float(left)), abs(float(right)), 1.0) else off


def _near(a: Value, b: Value) -> bool:
    if not isinstance(a, float) and not isinstance(b, float):
        return a == b
    return distance(a, b) <= 1e-7 * max(abs(float(a)), 1e-3)


_CASES = re.compile(
    r"\bor\b|case|either|\bif\b|\blet\b|when|suppos|assum|\bset|\bfor \$?[a-z] ?=|check|test|try|not |doesn|"
    r"choice|possib|\^|sqrt|solutions|roots|\||±|\\pm",
    re.IGNORECASE,
)
"""Matches steps in which a variable may rightly take a value that differs from its last equation."""


_ASKS = re.compile(
    r"(?:please )?(?:evaluate|calculate|compute|simplify|what is|find)?(?: the (?:value|expression))?(?: of)?[:\s]",
    re.IGNORECASE,
)
_PURE = re.compile(r"[-+*/×÷−·^().,\d\s$]+|[-+*/^().,\d\s$\\a-z{}]+")
_ONWARD = re.compile(
    r"(?:expression (?:becomes|is now|simplifies to|reduces to)|what remains(?: is)?|which leaves|left with):?\s", re.IGNORECASE
)
"""Phrases after which a step repeats the whole expression, partly evaluated."""
MAX_PROBLEM = 2_000
"""Maximum length of a problem in characters; longer ones are ignored."""


class Solved(NamedTuple):
    """A linear equation in one variable: the step it stands in, its text, its solution, and whether it contains decimals."""

    step: int
    text: str
    value: Value
    rounded: bool


@dataclass(slots=True)
class Notes:
    """State that the reader of a solution passes to `check` with each step. The reader sets `step` before each call."""

    values: dict[str, Value] | None = None
    """Value of each variable if the problem is a bare expression, so that a name keeps its value; None otherwise."""
    asked: Value | None = None
    """Value of the expression that the problem asks for, if it is a bare expression."""
    step: int = 0
    """Index of the current step."""
    equations: dict[str, Solved] = field(default_factory=dict)
    """The last linear equation in each variable."""


@lru_cache(maxsize=4)
def _varies(step: str) -> bool:
    return _CASES.search(step) is not None


def rounded(left: Side, right: Side) -> bool:
    """Return whether either side contains a decimal number."""
    return any(t.kind == "n" and t.places > 0 for t in (*left.tokens, *right.tokens))


def follow(notes: Notes, left: Side, right: Side, shown: str, step: str) -> tuple[bool | None, str]:
    """Compare a linear equation with the last one in the same variable, from this or the previous step, and store it.

    Returns (True, "") if both have the same solution, (False, critique) if not, and (None, "") if there is nothing to compare.
    """
    names = letters(left) | letters(right)
    if len(names) != 1 or left.doubtful or right.doubtful or _varies(step):
        return None, ""
    (name,) = names
    try:
        value = solution(left, right)
        if value is None or "_" in name:
            return None, ""
        decimals = rounded(left, right)
        before = notes.equations.get(name)
        solves = len(left.tokens) == 1 and left.tokens[0].kind == "v" and not letters(right)
        if not solves:
            notes.equations[name] = Solved(notes.step, shown, value, decimals)
        if before is None or notes.step - before.step > 1:
            return None, ""
        if distance(value, before.value) * 100 <= distance(before.value, 0) * (decimals or before.rounded):
            return True, ""
    except Unreadable:
        return None, ""
    stated = "" if solves else f", which gives {name} = {say(value)}"
    return False, f"{before.text} gives {name} = {say(before.value)}, the step says {shown}{stated}"


def remember(notes: Notes, problem: str) -> None:
    """Store what a problem asks for, if it is a bare expression, or its equation, if it has exactly one."""
    if len(problem) > MAX_PROBLEM:
        return
    notes.asked = _expression(problem)
    if notes.asked is not None:
        notes.values = {}
        return
    found: list[tuple[str, Solved]] = []
    equations = 0
    for chain in chains(problem):
        equations += len(chain.relations)
        left, right = sides(chain.members[0])[1], sides(chain.members[1])[0]
        if left is None or right is None or not left.readable or not right.readable or left.doubtful or right.doubtful:
            continue
        names = letters(left) | letters(right)
        if len(names) != 1 or chain.relations[0].text != "=" or opaque(left) or opaque(right):
            continue
        try:
            value = solution(left, right)
        except Unreadable:
            continue
        if value is not None:
            text = " ".join(problem[left.start + chain.offset : right.end + chain.offset].split())
            found += [(name, Solved(notes.step - 1, text, value, rounded(left, right))) for name in names]
    if equations == 1:
        notes.equations.update(found)


def _expression(problem: str) -> Value | None:
    """Return the value of a problem that is a bare expression, such as "Evaluate: (3 - -7) * 2 =", else None."""
    asks = _ASKS.match(problem)
    text = problem[asks.end() if asks else 0 :].strip().rstrip("=?. \n")
    if _PURE.fullmatch(text) is None:
        return None
    try:
        value, shape = parse(lex(text))
    except Unreadable:
        return None
    return value if shape.operations else None


def onward(notes: Notes, text: str) -> Iterator[tuple[bool, tuple[int, int], Value]]:
    """Yield each place where a step repeats the whole expression: (value unchanged, span, value found)."""
    if notes.asked is None:
        return
    for mark in _ONWARD.finditer(text):
        start = mark.end()
        end = min((at for at in (text.find(stop, start) for stop in (". ", ", ", "\n", ";")) if at >= 0), default=len(text))
        end = start + len(text[start:end].rstrip(". "))
        try:
            value, shape = parse(lex(text[start:end]))
            if shape.operations:
                yield distance(value, notes.asked) * 10**9 <= max(distance(value, 0), 1), (start, end), value
        except Unreadable:
            continue
