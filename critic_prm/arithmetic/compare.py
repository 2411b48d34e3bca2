"""Check whether a relation between two evaluated sides holds, and whether its context may explain a mismatch."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from critic_prm.arithmetic.lexer import words
from critic_prm.arithmetic.parser import PLAIN, Reading, Shape, parse
from critic_prm.arithmetic.sides import Side
from critic_prm.arithmetic.values import Unreadable, Value, distance


class Term(NamedTuple):
    """A side of a relation, its value and its structure."""

    side: Side
    value: Value
    shape: Shape

    @property
    def plain(self) -> bool:
        """Whether the side is a number without any operation."""
        return not self.shape.operations


def term(side: Side, reading: Reading = PLAIN, letters: Mapping[str, Value] | None = None) -> Term:
    """Evaluate a side. Raises Unreadable."""
    if len(side.tokens) == 1 and side.tokens[0].kind == "n":
        return Term(side, side.tokens[0].value, _NUMBER)
    return Term(side, *parse(side.tokens, reading, letters))


_NUMBER = Shape(0, False, False, False, False, False, frozenset())


def holds(a: Term, relation: str, b: Term) -> bool:
    """Return whether the relation holds, allowing for rounding. Raises Unreadable if the difference is too large."""
    if relation == "=":
        return _equal(a, b)
    close = a.value == b.value or _near(a.value, b.value)
    if relation == "!=":
        return not close
    if relation == "~":
        off = distance(a.value, b.value)
        return _equal(a, b) or off * 20 <= distance(b.value, 0) or off < _last_place(b, True)
    if relation in ("<=", ">="):
        return close or (a.value < b.value) == (relation == "<=")
    return not close and (a.value < b.value) == (relation == "<")


def explained(a: Term, b: Term, inner: bool) -> bool:
    """Return whether a relation that does not hold may still be meant correctly: a label, a unit conversion, a remark in
    brackets.

    `inner`: the left side is also the right side of an earlier relation.
    """
    return (
        a.side.doubtful
        or b.side.doubtful
        or a.side.tokens[-1].text == "!"
        or _torn(a)
        or _label(a, inner)
        or _part(a, b)
        or (a.plain and b.plain and bool(a.side.units or b.side.units))
        or _conversion(a, b)
        or _mixed_units(a)
        or _mixed_units(b)
        or _aside(a)
        or _aside(b)
        or _share(a)
        or _share(b)
    )


def _near(a: Value, b: Value) -> bool:
    if not isinstance(a, float) and not isinstance(b, float):
        return False
    off = distance(a, b)
    return off <= 1e-9 * max(abs(float(a)), abs(float(b)), 1e-9)


def _equal(a: Term, b: Term) -> bool:
    """Return whether the values are equal, possibly after rounding up or down to the places of the plainer side."""
    if a.value == b.value or _near(a.value, b.value):
        return True
    off = distance(a.value, b.value)
    if b.plain and off < _last_place(b, _inexact(a)):
        return True
    if a.plain and off < _last_place(a, _inexact(b)):
        return True
    return _coarse(a, b) and off * 100 <= distance(b.value, 0)


def _inexact(a: Term) -> bool:
    """Return whether a whole number would be a rounding of this term."""
    if isinstance(a.value, float):
        return True
    return isinstance(a.value, Fraction) and (a.shape.divides or a.shape.percent or any(t.places > 0 for t in a.side.tokens))


def _last_place(a: Term, inexact: bool) -> Fraction:
    """Return one unit in the last decimal place of a plain number; 0 where a whole number must be exact."""
    places = max((t.places for t in a.side.tokens if t.kind == "n"), default=0)
    if places < 0 or a.shape.fractions or (places == 0 and not inexact and not a.shape.percent):
        return Fraction(0)
    return Fraction(1, 10 ** (places + 2 * a.shape.percent))


_ROUNDED = words("3.14 1.41 1.73 2.72 0.33 0.67 0.66 0.17 0.83 33.3 66.7 16.7 33.33 66.67 16.67")


def _coarse(a: Term, b: Term) -> bool:
    """Return whether a number in the terms is itself rounded, so that results from it are too: 3.14, 0.333, 1.732."""
    return any(t.places >= 3 or t.text in _ROUNDED for t in (*a.side.tokens, *b.side.tokens))


def _label(a: Term, inner: bool) -> bool:
    """Return whether a left side is a name rather than a computation: "Day 3 = 5 + 2", "5 apples = 5 * 2 = 10"."""
    if not a.plain or a.shape.letters:
        return False
    return bool(a.side.units) or a.shape.percent or a.side.prose or (a.shape.fractions and not inner)


def _part(a: Term, b: Term) -> bool:
    """Return whether the relation states the amount of a fraction of something: "so 3/4 = 15 apples"."""
    return a.shape.operations == 1 and a.shape.divides and 0 < a.value < 1 <= b.value and b.plain


_FACTORS = {2, 3, 4, 7, 8, 12, 16, 24, 30, 36, 52, 60, 144, 365, 1000, 1440, 1760, 3600, 5280, 10**4, 10**6}
_MEASURES = words(
    "second sec minute min hour hr day week month year decade inch inche feet foot yard mile meter metre m km cm mm "
    "kilometer gram g kg kilogram pound lb ounce oz ton liter litre ml gallon quart pint cup tablespoon teaspoon cent "
    "dollar quarter dime nickel penny pennie page dozen pair percent % degree"
)


def _conversion(a: Term, b: Term) -> bool:
    """Return whether a unit conversion between the sides would explain the difference."""
    units = {*a.side.units, *b.side.units}
    if not a.value or not b.value or isinstance(a.value, float) or isinstance(b.value, float):
        return False
    ratio = abs(Fraction(a.value) / Fraction(b.value))
    ratio = max(ratio, 1 / ratio)
    return ratio == 100 or (ratio in _FACTORS and bool(units & _MEASURES) and not set(a.side.units) & set(b.side.units))


def _mixed_units(a: Term) -> bool:
    """Return whether a sum mixes units: "1 hour + 5 minutes"."""
    return len(set(a.side.units) & _MEASURES) > 1 and any(t.kind == "o" and t.text in "+-" for t in a.side.tokens)


def _torn(a: Term) -> bool:
    """Return whether a side starts with a binary operator, that is, its beginning was cut off."""
    tokens = a.side.tokens
    return len(tokens) > 1 and tokens[0].kind == "o" and not tokens[1].tight


def _aside(a: Term) -> bool:
    """Return whether an apparent product may be a remark: "8 (4-4-0) wheels"."""
    tokens = a.side.tokens
    return any(t.kind == "n" and after.text == "(" and not after.tight for t, after in pairwise(tokens))


def _share(a: Term) -> bool:
    """Return whether a percentage is added to or subtracted from a plain number: "60 - 10%"."""
    signs = sum(t.text == "%" for t in a.side.tokens)
    return 0 < signs < sum(t.kind == "n" for t in a.side.tokens) and any(t.text in ("+", "-") for t in a.side.tokens)


def second_reading(a: Term, relation: str, b: Term, letters: Mapping[str, Value] | None) -> bool:
    """Return whether the relation holds under another reading of its ambiguous parts."""
    either = [x or y for x, y in zip(a.shape, b.shape, strict=True)]
    shape = Shape(*either)  # type: ignore[arg-type]
    options = [PLAIN]
    if shape.percent:
        options.append(Reading(percent=1))
    if shape.juxtaposed:
        options += [Reading(mixed=False), Reading(mixed=False, strong=True)]
    if shape.juxtaposed or shape.divides:
        options.append(Reading(strong=True))
    if shape.powers:
        options.append(Reading(signed=True))
    if len(options) == 1:
        return False
    left, right = (_readings(x.side, options, letters) for x in (a, b))
    try:
        return any(holds(one, relation, two) for one in left for two in right)
    except Unreadable:
        return False


def _readings(side: Side, options: list[Reading], letters: Mapping[str, Value] | None) -> list[Term]:
    terms = []
    for option in options:
        try:
            terms.append(term(side, option, letters))
        except Unreadable:
            continue
    return terms
