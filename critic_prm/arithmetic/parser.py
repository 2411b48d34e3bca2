"""Evaluate expressions in bounded arithmetic, by recursive descent under a chosen reading of ambiguous notation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from critic_prm.arithmetic.lexer import Token, Value

MAX_BITS = 2048
"""Maximum bit length of a number. Steps are untrusted input: evaluating 9**9**9 must cost nothing."""
MAX_EXPONENT = 1000
MAX_FACTORIAL = 60


class Unreadable(Exception):
    """These tokens cannot be evaluated. The message is for tests and debugging."""


def tidy(value: Value) -> Value:
    """Convert whole fractions to int. Raises Unreadable for a number that is too large or not finite."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unreadable("too large")
        return value
    if not isinstance(value, int):
        if value.denominator == 1:
            value = value.numerator
        elif value.numerator.bit_length() > MAX_BITS or value.denominator.bit_length() > MAX_BITS:
            raise Unreadable("too large")
        else:
            return value
    if value.bit_length() > MAX_BITS:
        raise Unreadable("too large")
    return value


def add(a: Value, b: Value) -> Value:
    """Return a + b. Raises Unreadable if the result is too large."""
    return tidy(a + b if type(a) is type(b) else _mixed(a, b) + _mixed(b, a))


def subtract(a: Value, b: Value) -> Value:
    """Return a - b. Raises Unreadable if the result is too large."""
    return tidy(a - b if type(a) is type(b) else _mixed(a, b) - _mixed(b, a))


def distance(a: Value, b: Value) -> Value:
    """Return |a - b|."""
    off = subtract(a, b)
    return -off if off < 0 else off


def multiply(a: Value, b: Value) -> Value:
    """Return a * b. Raises Unreadable if the result is too large."""
    return tidy(a * b if type(a) is type(b) else _mixed(a, b) * _mixed(b, a))


def divide(a: Value, b: Value) -> Value:
    """Return a / b, exact for int and Fraction. Raises Unreadable for division by zero or a result that is too large."""
    if b == 0:
        raise Unreadable("division by zero")
    if isinstance(a, int) and isinstance(b, int):
        return tidy(Fraction(a, b)) if a % b else a // b
    return tidy(_mixed(a, b) / _mixed(b, a))


def power(base: Value, exponent: Value) -> Value:
    """Return `base` to the power `exponent`. Roots are exact where the root is rational."""
    if isinstance(exponent, Fraction) and exponent.denominator <= 12 and not isinstance(base, float):
        return power(root(base, exponent.denominator), exponent.numerator)
    if isinstance(base, float) or not isinstance(exponent, int):
        if base < 0 and not isinstance(exponent, int):
            raise Unreadable("a root of a negative number")
        try:
            return tidy(float(base) ** float(exponent))
        except (OverflowError, ZeroDivisionError):
            raise Unreadable("too large") from None
    if base == 0 and exponent <= 0:
        raise Unreadable("zero to a power that is not positive")
    size = base.bit_length() if isinstance(base, int) else max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) > MAX_EXPONENT or (size > 1 and size * abs(exponent) > MAX_BITS):
        raise Unreadable("too large")
    return tidy(Fraction(base) ** exponent) if exponent < 0 else tidy(base**exponent)


def root(value: Value, degree: int) -> Value:
    """Return the real root: exact for perfect powers, otherwise a float."""
    if value < 0 and degree % 2 == 0:
        raise Unreadable("a root of a negative number")
    if not 2 <= degree <= 12:
        if degree == 1:
            return value
        raise Unreadable("a root of that degree")
    if isinstance(value, float):
        return math.copysign(abs(value) ** (1 / degree), value)
    if isinstance(value, Fraction):
        return divide(root(value.numerator, degree), root(value.denominator, degree))
    magnitude = abs(value)
    guess = math.isqrt(magnitude) if degree == 2 else round(float(magnitude) ** (1 / degree)) if magnitude < 1 << 300 else 0
    if guess**degree == magnitude:
        return guess if value >= 0 else -guess
    try:
        return math.copysign(float(magnitude) ** (1 / degree), value)
    except OverflowError:
        raise Unreadable("too large") from None


def factorial(value: Value) -> Value:
    """Return the factorial of an integer from 0 to MAX_FACTORIAL. Raises Unreadable for any other value."""
    if not isinstance(value, int) or not 0 <= value <= MAX_FACTORIAL:
        raise Unreadable("no factorial of that")
    return math.factorial(value)


def binomial(n: Value, k: Value) -> Value:
    """Return the binomial coefficient of integers from 0 to 1000. Raises Unreadable for any other value."""
    if not isinstance(n, int) or not isinstance(k, int) or not (0 <= n <= 1000 and 0 <= k <= 1000):
        raise Unreadable("no binomial of that")
    return tidy(math.comb(n, k))


def say(value: Value) -> str:
    """Format a value as a person would: whole number, short decimal, or fraction."""
    if isinstance(value, int):
        return str(value) if value.bit_length() < 200 else f"a number of {len(str(value))} digits"
    if isinstance(value, float):
        return f"about {value:.6g}"
    left = value.denominator
    for prime in (2, 5):
        while left % prime == 0:
            left //= prime
    if left == 1 and value.denominator <= 10**6:
        return f"{float(value):.10g}"
    if value.denominator > 10**6:
        return f"about {float(value):.6g}"
    return f"{value} (about {float(value):.6g})"


def _mixed(a: Value, b: Value) -> Value:
    """Convert `a` to float if `b` is one; Python's own conversion could raise OverflowError inside the operation."""
    if isinstance(b, float) and not isinstance(a, float):
        try:
            return float(a)
        except OverflowError:
            raise Unreadable("too large") from None
    return a


MAX_DEPTH = 40
MAX_TOKENS = 400


class Reading(NamedTuple):
    """How to read ambiguous notation."""

    percent: int = 100
    """What % divides by: 100, or 1 where it is only a unit."""
    mixed: bool = True
    """Whether 1\\frac{1}{2} is a mixed number; otherwise a product."""
    strong: bool = False
    """An implicit product, a power of ten or a fraction without spaces binds tighter than a preceding division: 1/2(3) is 1/6,
    25 / 1/3 is 75.
    """
    signed: bool = False
    """Whether -3^2 is (-3)^2."""


@dataclass(slots=True)
class Shape:
    """The structure of an expression. It decides which tolerance applies and which alternative readings exist."""

    operations: int = 0
    divides: bool = False
    percent: bool = False
    powers: bool = False
    juxtaposed: bool = False
    fractions: bool = False
    letters: frozenset[str] = frozenset()


PLAIN = Reading()
_END = Token("e", "", 0, 0, False)
"""Follows the last token, so that the parser need not ask for the end before each look at a token."""


def parse(tokens: Sequence[Token], reading: Reading = PLAIN, letters: Mapping[str, Value] | None = None) -> tuple[Value, Shape]:
    """Evaluate all of `tokens`; return the value and its structure. Raises Unreadable."""
    if len(tokens) > MAX_TOKENS:
        raise Unreadable("too long")
    state = _Parser((*tokens, _END), reading, {} if letters is None else letters)
    value = state.sum(0)
    if state.at < len(tokens):
        raise Unreadable(f"{tokens[state.at].text!r} does not fit here")
    return value, state.shape


class _Parser:
    """Parser state: the position in the tokens and what has been seen so far."""

    __slots__ = ("at", "letters", "reading", "shape", "tokens")

    def __init__(self, tokens: Sequence[Token], reading: Reading, letters: Mapping[str, Value]) -> None:
        self.tokens, self.reading, self.letters = tokens, reading, letters
        self.at, self.shape = 0, Shape()

    def sum(self, depth: int) -> Value:
        value = self.product(depth)
        tokens = self.tokens
        while True:
            token = tokens[self.at]
            if token.kind != "o" or token.text not in "+-":
                break
            self.at += 1
            self.shape.operations += 1
            right = self.product(depth)
            value = add(value, right) if token.text == "+" else subtract(value, right)
        return value

    def product(self, depth: int) -> Value:
        value = self.factor(depth)
        tokens, strong = self.tokens, self.reading.strong
        while True:
            token = tokens[self.at]
            if token.kind in "e)":
                break
            if token.kind == "o" and token.text in "*/":
                self.at += 1
                self.shape.operations += 1
                right = self.factor(depth)
                while strong and self.joined():
                    right = multiply(right, self.factor(depth))
                while strong and self.scale():
                    self.at += 1
                    right = multiply(right, self.factor(depth))
                if strong and not token.tight and self.slash():
                    self.at += 1
                    right = divide(right, self.factor(depth))
                if token.text == "*":
                    value = multiply(value, right)
                else:
                    self.shape.divides = True
                    value = divide(value, right)
            elif self.joined():
                self.shape.operations += 1
                self.shape.juxtaposed = True
                value = multiply(value, self.factor(depth))
            else:
                break
        return value

    def joined(self) -> bool:
        """Return whether the next token continues an implicit product."""
        token, before = self.tokens[self.at], self.tokens[self.at - 1]
        if token.kind in "(vf":
            return True
        return token.kind == "n" and token.tight and (before.kind == ")" or before.text == "!")

    def slash(self) -> bool:
        """Return whether a fraction without spaces continues here: the 1/3 of 25 / 1/3."""
        at, tokens = self.at, self.tokens
        return at + 1 < len(tokens) and tokens[at].text == "/" and tokens[at].tight and tokens[at + 1].tight

    def scale(self) -> bool:
        """Return whether a power of ten continues the previous number: the 10^8 of 3 / 2.4 x 10^8."""
        at, tokens = self.at, self.tokens
        return at + 2 < len(tokens) and tokens[at].text == "*" and tokens[at + 1].value == 10 and tokens[at + 2].text == "^"

    def factor(self, depth: int) -> Value:
        tokens, sign = self.tokens, 1
        while tokens[self.at].kind == "o" and tokens[self.at].text in "+-":
            sign = -sign if tokens[self.at].text == "-" else sign
            self.at += 1
        value = self.atom(depth)
        while tokens[self.at].kind == "o" and tokens[self.at].text in "^!%":
            mark = tokens[self.at].text
            self.at += 1
            if mark == "^":
                self.shape.powers = True
                self.shape.operations += 1
                if depth >= MAX_DEPTH:
                    raise Unreadable("too deep")
                if sign < 0 and self.reading.signed:
                    value, sign = -value, 1
                value = power(value, self.factor(depth + 1))
            elif mark == "!":
                self.shape.operations += 1
                value = factorial(value)
            else:
                self.shape.percent = True
                value = divide(value, self.reading.percent)
        return value if sign > 0 else -value

    def atom(self, depth: int) -> Value:
        token = self.tokens[self.at]
        if token.kind == "e":
            raise Unreadable("ends too early")
        self.at += 1
        if token.kind == "n":
            return self.mixed(token, depth) if self.tokens[self.at].kind in "nf" else token.value
        if token.kind == "(":
            if depth >= MAX_DEPTH:
                raise Unreadable("too deep")
            value = self.sum(depth + 1)
            self.expect_close()
            return value
        if token.kind == "v":
            return self.letter(token)
        if token.kind == "f":
            return self.function(token.text, depth)
        raise Unreadable(f"{token.text!r} is no number")

    def letter(self, token: Token) -> Value:
        if token.text in ("π", "\\pi"):
            return math.pi
        try:
            value = self.letters[token.text]
        except KeyError:
            raise Unreadable(f"{token.text!r} has no value") from None
        self.shape.letters |= {token.text}
        return value

    def expect_close(self) -> None:
        if self.tokens[self.at].kind != ")":
            raise Unreadable("a bracket is not closed")
        self.at += 1

    def mixed(self, token: Token, depth: int) -> Value:
        """Parse a number, including mixed numbers: 1 1/2, 1½, 1\\frac{1}{2}."""
        tokens, at = self.tokens, self.at
        after = tokens[at]
        if token.places or not isinstance(token.value, int):
            return token.value
        if after.kind == "n" and after.places == -1 and after.tight:
            self.at += 1
            self.shape.fractions = True
            return add(token.value, after.value)
        if (
            after.kind == "n"
            and not after.tight
            and at + 2 < len(tokens)
            and tokens[at + 1].text == "/"
            and tokens[at + 2].kind == "n"
        ):
            above, below = after.value, tokens[at + 2].value
            if isinstance(above, int) and isinstance(below, int) and 0 < above < below:
                self.at += 3
                self.shape.fractions = self.shape.divides = True
                return add(token.value, Fraction(above, below))
        if after.kind == "f" and after.text == "frac":
            self.shape.juxtaposed = True
            if self.reading.mixed:
                self.at += 1
                part = self.function("frac", depth)
                if not isinstance(part, Fraction) or not 0 < part < 1:
                    return multiply(token.value, part)
                return add(token.value, part)
        return token.value

    def function(self, name: str, depth: int) -> Value:
        if depth >= MAX_DEPTH:
            raise Unreadable("too deep")
        if name == "sqrt":
            self.shape.operations += 1
            degree: Value = 2
            tokens = self.tokens
            if tokens[self.at].text == "[":
                degree = self.argument(depth + 1)
            if not isinstance(degree, int):
                raise Unreadable("a root of that degree")
            return root(self.argument(depth + 1), degree)
        above, below = self.pair(depth + 1)
        if name == "binom":
            self.shape.operations += 1
            return binomial(above, below)
        self.shape.divides = self.shape.fractions = True
        return divide(above, below)

    def pair(self, depth: int) -> tuple[Value, Value]:
        """Parse two arguments, in brackets or as single digits (\\frac12)."""
        token = self.tokens[self.at]
        if token.kind == "n" and len(token.text) == 2 and token.text.isdigit():
            self.at += 1
            return int(token.text[0]), int(token.text[1])
        return self.argument(depth), self.argument(depth)

    def argument(self, depth: int) -> Value:
        token = self.tokens[self.at]
        if token.kind == "n":
            if len(token.text) > 1 and self.at and self.tokens[self.at - 1].text not in ("sqrt",):
                raise Unreadable("an argument that is not set off")
            self.at += 1
            return token.value
        if token.kind in "(v":
            return self.atom(depth)
        raise Unreadable(f"{token.text!r} is no argument")
