"""Bounded numeric values: exact int and Fraction, float for irrational results, an error for huge ones."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeAlias

Value: TypeAlias = int | Fraction | float

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
    """Return a + b. Raises Unreadable if the result is too large."""
    return tidy(_mixed(a, b) + _mixed(b, a))


def subtract(a: Value, b: Value) -> Value:
    """Return a - b. Raises Unreadable if the result is too large."""
    return tidy(_mixed(a, b) - _mixed(b, a))


def distance(a: Value, b: Value) -> Value:
    """Return |a - b|."""
    off = subtract(a, b)
    return -off if off < 0 else off


def multiply(a: Value, b: Value) -> Value:
    """Return a * b. Raises Unreadable if the result is too large."""
    return tidy(_mixed(a, b) * _mixed(b, a))


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
