"""Parse tokens into relations, and evaluate both sides of every "=" at two fixed points for their letters."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

OPERATORS = {
    "+": "+", "-": "-", "−": "-", "–": "-", "*": "*", "×": "*", "\\times": "*", "\\cdot": "*", "·": "*", "/": "/", "÷": "/",
    "\\div": "/", "^": "^",
}  # fmt: skip
RELATIONS = {"=": "=", "≈": "~", "\\approx": "~", "≡": "|", "\\equiv": "|"}
IGNORED = {
    "$",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "\\left",
    "\\right",
    "\\,",
    "\\!",
    "\\ ",
    "\\;",
    "\\:",
    "&",
    "\\$",
    "\\displaystyle",
    "€",
    "£",
}
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}, {")", "]", "}", "\\}"}
FRACTIONS = {"\\frac", "\\dfrac", "\\tfrac"}
CONSTANTS = {"\\pi": math.pi, "π": math.pi}
GREEK = {
    "\\alpha", "\\beta", "\\gamma", "\\delta", "\\theta", "\\lambda", "\\mu", "\\phi", "\\omega", "\\varphi", "\\rho",
    "\\sigma",
}  # fmt: skip
MATHEMATICAL = {*OPERATORS, *OPENING, *CLOSING, *FRACTIONS, *GREEK, *CONSTANTS, "\\sqrt", "%", "\\%", "_"}
TIMES, ENDS, STARTS = {"of", "x", "X"}, {")", "}", "%", "\\%"}, frozenset("0123456789($\\")
LONGEST_RUN, DEEPEST, LARGEST = 60, 12, 1e15

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Side:
    """One side of an equation: its values at the two points, its letters, and whether it is a single number or letter."""

    values: Pair
    letters: frozenset[str]
    atom: bool
    decimals: int


@dataclass(frozen=True, slots=True)
class Relation:
    """Two adjacent sides and the relation between them: "=" or "~" (approximately)."""

    left: Side
    right: Side
    about: bool
    chain: int


class Unreadable(Exception):
    """The tokens are not a supported expression."""


def relations(tokens: Sequence[str], most: int = 12) -> tuple[list[Relation], int]:
    """Return the first `most` relations of a text that could be parsed, and the number of sides that could not."""
    found: list[Relation] = []
    unread = 0
    if not any(t in RELATIONS for t in tokens):
        return found, unread
    for chain, run in enumerate(_runs(tokens)):
        sides: list[Side | None] = []
        marks: list[str] = []
        start = 0
        for at, token in enumerate([*run, "="]):
            if token in RELATIONS:
                sides.append(_side(run[start:at]))
                marks.append(RELATIONS[token])
                start = at + 1
        unread += sum(side is None for side in sides)
        for left, right, mark in zip(sides, sides[1:], marks, strict=False):
            if left is not None and right is not None and mark != "|":
                found.append(Relation(left, right, mark == "~", chain))
                if len(found) == most:
                    return found, unread
    return found, unread


def _runs(tokens: Sequence[str]) -> list[list[str]]:
    """Return the maximal runs of mathematical tokens with a relation. A unit after a number ("3 apples + ...") is skipped."""
    runs: list[list[str]] = []
    run: list[str] = []
    related = False
    last = len(tokens) - 1
    for at, token in enumerate(tokens):
        if token in IGNORED:
            continue
        if token in TIMES and run and at < last and (run[-1][0].isdecimal() or run[-1] in ENDS) and tokens[at + 1][0] in STARTS:
            run.append("*")
            continue
        if token in RELATIONS:
            related = True
            run.append(token)
        elif _is_mathematical(token):
            run.append(token)
        elif run and _is_unit(run[-1], token, tokens[at + 1] if at < last else ""):
            continue
        else:
            if related:
                runs.append(run)
            run, related = [], False
    if related:
        runs.append(run)
    return runs


@lru_cache(maxsize=8192)
def _is_mathematical(token: str) -> bool:
    first = token[0]
    if first.isalnum():
        return len(token) == 1 or first.isdecimal()
    return token in MATHEMATICAL or (first == "." and len(token) > 1)


def _is_unit(before: str, token: str, after: str) -> bool:
    """Return whether a word between a number and an operator or relation is a unit, as in "3 apples + 4 apples = 7 apples"."""
    if not (token[0].isalpha() and (before[0].isdecimal() or before in ("%", "\\%"))):
        return False
    return after in OPERATORS or after in RELATIONS


def _side(tokens: Sequence[str]) -> Side | None:
    if not tokens or len(tokens) > LONGEST_RUN:
        return None
    parser = _Parser(tokens)
    try:
        values = parser.sum(0)
    except (Unreadable, ZeroDivisionError, OverflowError, ValueError):
        return None
    if parser.at != len(tokens) or not (abs(values[0]) < LARGEST and abs(values[1]) < LARGEST):
        return None
    decimals = max((len(t) - t.find(".") - 1 for t in tokens if "." in t), default=0)
    return Side(values, frozenset(parser.letters), len(tokens) == 1 or (len(tokens) == 2 and tokens[0] == "-"), decimals)


class _Parser:
    """Recursive-descent parser of bounded depth.

    It accepts numbers, letters, + - * / ^, fractions, roots, percent and juxtaposition.
    """

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens, self.at, self.letters = tokens, 0, set[str]()

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def sum(self, depth: int) -> Pair:
        if depth > DEEPEST:
            raise Unreadable
        a, b = self.product(depth)
        while (op := OPERATORS.get(self.peek())) in ("+", "-"):
            self.at += 1
            c, d = self.product(depth)
            a, b = (a + c, b + d) if op == "+" else (a - c, b - d)
        return a, b

    def product(self, depth: int) -> Pair:
        a, b = self.power(depth)
        while True:
            token = self.peek()
            op = OPERATORS.get(token)
            if op in ("*", "/"):
                self.at += 1
                c, d = self.power(depth)
                a, b = (a * c, b * d) if op == "*" else (a / c, b / d)
            elif token and (
                token in OPENING or token in FRACTIONS or token == "\\sqrt" or self._is_letter(token) or token in CONSTANTS
            ):
                c, d = self.power(depth)
                a, b = a * c, b * d
            else:
                return a, b

    def power(self, depth: int) -> Pair:
        if OPERATORS.get(self.peek()) in ("-", "+"):
            sign = -1.0 if OPERATORS[self.peek()] == "-" else 1.0
            self.at += 1
            if depth > DEEPEST:
                raise Unreadable
            a, b = self.power(depth + 1)
            return sign * a, sign * b
        a, b = self.atom(depth)
        if self.peek() == "^":
            self.at += 1
            c, d = self.power(depth + 1) if depth < DEEPEST else self._deep()
            if abs(c) > 64 or abs(d) > 64:
                raise Unreadable
            a, b = _power(a, c), _power(b, d)
        while self.peek() in ("%", "\\%"):
            self.at += 1
            a, b = a / 100, b / 100
        return a, b

    def atom(self, depth: int) -> Pair:
        token = self.peek()
        if not token:
            raise Unreadable
        self.at += 1
        if token[0].isdecimal() or token[0] == ".":
            value = float(token.replace(",", ""))
            return value, value
        if token in OPENING:
            pair = self.sum(depth + 1)
            if self.peek() != OPENING[token]:
                raise Unreadable
            self.at += 1
            return pair
        if token in FRACTIONS:
            above = self.peek()
            if len(above) == 2 and above.isdecimal():  # "\frac12" is one half in TeX
                self.at += 1
                half = int(above[0]) / int(above[1])
                return half, half
            (a, b), (c, d) = self._group(depth), self._group(depth)
            return a / c, b / d
        if token == "\\sqrt":
            if self.peek() == "[":
                raise Unreadable
            a, b = self._group(depth)
            return math.sqrt(a), math.sqrt(b)
        if token in CONSTANTS:
            return CONSTANTS[token], CONSTANTS[token]
        if self._is_letter(token):
            name = token
            if self.peek() == "_":
                self.at += 1
                if self.peek() == "{":
                    end = self.at
                    while end < len(self.tokens) and self.tokens[end] != "}":
                        end += 1
                    name += "".join(self.tokens[self.at : end])
                    self.at = end + 1
                else:
                    name += self.peek()
                    self.at += 1
            self.letters.add(name)
            return _point(name)
        raise Unreadable

    def _group(self, depth: int) -> Pair:
        """Parse an argument: a braced group, or a single token."""
        if self.peek() == "{":
            return self.atom(depth + 1)
        token = self.peek()
        if len(token) > 1 and token.isdecimal():
            raise Unreadable
        return self.atom(depth + 1)

    def _deep(self) -> Pair:
        raise Unreadable

    @staticmethod
    def _is_letter(token: str) -> bool:
        return (len(token) == 1 and token.isalpha()) or token in GREEK


def _power(base: float, exponent: float) -> float:
    if base < 0 and exponent != int(exponent):
        raise Unreadable
    return float(base**exponent)


def _point(name: str) -> Pair:
    """Return two fixed positive values for a letter, between 0.5 and 2.5, the same in every run."""
    code = zlib.crc32(name.encode("utf-8", "surrogatepass"))
    return 0.5 + (code & 0xFFFF) / 0x8000, 0.5 + (code >> 16) / 0x8000
