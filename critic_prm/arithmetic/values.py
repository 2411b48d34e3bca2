"""Numbers with bounds: int and Fraction where exact, float where a root or pi comes in, a refusal where it would be huge."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias

Value: TypeAlias = int | Fraction | float

MAX_BITS = 2048
"""No number grows beyond this many bits: a step is hostile input, and 9**9**9 must cost nothing."""
MAX_EXPONENT = 1000
MAX_FACTORIAL = 60


class Unreadable(Exception):
    """The tokens are no arithmetic that this package evaluates; the reason is for tests and debugging."""


def tidy(value: Value) -> Value:
    """An int where the value is whole and exact; refuses what has grown too large or left the reals."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Unreadable("too large")
        return value
    if isinstance(value, Fraction):
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
    return tidy(_mixed(a, b) + _mixed(b, a))


def subtract(a: Value, b: Value) -> Value:
    return tidy(_mixed(a, b) - _mixed(b, a))


def distance(a: Value, b: Value) -> Value:
    """How far apart they are."""
    off = subtract(a, b)
    return -off if off < 0 else off


def multiply(a: Value, b: Value) -> Value:
    return tidy(_mixed(a, b) * _mixed(b, a))


def divide(a: Value, b: Value) -> Value:
    if b == 0:
        raise Unreadable("division by zero")
    if isinstance(a, int) and isinstance(b, int):
        return tidy(Fraction(a, b)) if a % b else a // b
    return tidy(_mixed(a, b) / _mixed(b, a))


def power(base: Value, exponent: Value) -> Value:
    """`base` to the `exponent`; roots are exact where the root is rational."""
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
    """The real root: exact for perfect powers, else a float."""
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
    if not isinstance(value, int) or not 0 <= value <= MAX_FACTORIAL:
        raise Unreadable("no factorial of that")
    return math.factorial(value)


def binomial(n: Value, k: Value) -> Value:
    if not isinstance(n, int) or not isinstance(k, int) or not (0 <= n <= 1000 and 0 <= k <= 1000):
        raise Unreadable("no binomial of that")
    return tidy(math.comb(n, k))


def say(value: Value) -> str:
    """The value as a person would write it: whole, as a short decimal, or as a fraction."""
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
    """`a`, as a float where `b` is one: Python mixes them itself, but raises OverflowError on the way."""
    if isinstance(b, float) and not isinstance(a, float):
        try:
            return float(a)
        except OverflowError:
            raise Unreadable("too large") from None
    return a
