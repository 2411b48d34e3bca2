"""Compare expressions with variables by evaluating them at sample points, and solve linear equations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Literal

from critic_prm.arithmetic.parser import PLAIN, Reading, parse
from critic_prm.arithmetic.sides import Side
from critic_prm.arithmetic.values import Value, distance, divide, subtract

Agreement = Literal["always", "nearly", "never", "sometimes"]

_FUNCTION_NAMES = frozenset("fghpqFGHPQSTACEVWNLRu")
"""Letters that, directly before a bracket, are probably function names rather than factors."""
_NUMBERS = frozenset({"π", "\\pi"})


class _Probe(Mapping[str, Value]):
    """Assigns each letter a fixed value. Expressions that agree under several probes are treated as equal."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __contains__(self, letter: object) -> bool:
        return True

    def __getitem__(self, letter: str) -> Value:
        spread = sum(ord(sign) * (place + 3) for place, sign in enumerate(letter)) * (7 + 4 * self.seed) + 31 * self.seed
        return Fraction(spread % 97 + 2, 1 + self.seed % 2 * 3)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 1


class _Everywhere(_Probe):
    """Assigns every letter the same value."""

    def __getitem__(self, letter: str) -> Value:
        return self.seed


_PROBES = tuple(_Probe(seed) for seed in range(4))
_POINTS = tuple(_Everywhere(point) for point in (5, 6, 7, 8, 31))
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
