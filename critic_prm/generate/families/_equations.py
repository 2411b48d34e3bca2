"""Linear equations as terms on two sides, and the transformations that solve them, optionally with one error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import lcm
from random import Random
from typing import NamedTuple, TypeAlias

Number: TypeAlias = "int | Fraction"
"""Integers stay int: Fraction arithmetic is many times slower, and few values need it."""


class Part(NamedTuple):
    """factor * (x * unknown + c) / over. In a plain term at most one of x and c is nonzero."""

    x: Number
    c: Number
    factor: Number = 1
    over: int = 1

    @property
    def bracket(self) -> bool:
        """Whether the part is a bracket, with both an unknown and a constant."""
        return bool(self.x and self.c)


Side = tuple[Part, ...]
Equation = tuple[Side, Side]
Change = Callable[[Equation, str, Random], Equation | None]


def x_term(x: Number) -> Part:
    """Return a term with the unknown."""
    return Part(x, 0)


def c_term(c: Number) -> Part:
    """Return a constant term."""
    return Part(0, c)


def total(side: Side) -> tuple[Number, Number]:
    """Return the side as (coefficient of the unknown, constant)."""
    x: Number = 0
    c: Number = 0
    for part in side:
        factor = part.factor if part.over == 1 else Fraction(part.factor) / part.over
        x, c = x + factor * part.x, c + factor * part.c
    return x, c


def off(value: Number, rng: Random) -> Number:
    """Return a wrong value near this number."""
    return value + rng.choice((-10, -2, -1, -1, 1, 1, 2, 10) if not -12 <= value <= 12 else (-2, -1, 1, 2))


def clear(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Multiply by the common denominator."""
    times = lcm(*(part.over for side in equation for part in side))
    plain = [(s, i) for s, side in enumerate(equation) for i, part in enumerate(side) if part.over == 1]
    forgotten = rng.choice(plain) if kind == "unscaled" and plain else None
    fractions = [(s, i) for s, side in enumerate(equation) for i, part in enumerate(side) if part.over > 1]
    slipped = rng.choice(fractions) if kind == "slip" else None

    def scaled(part: Part, place: tuple[int, int]) -> Part:
        factor = times // part.over if place != forgotten else 1
        if part.bracket:
            return Part(part.x, part.c, part.factor * (factor + 1 if place == slipped else factor))
        return Part(part.x * factor, part.c * factor, part.factor)

    left, right = (tuple(scaled(part, (s, i)) for i, part in enumerate(side)) for s, side in enumerate(equation))
    return (left, right) if kind != "unscaled" or forgotten else None


def expand(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Expand the brackets."""
    brackets = [(s, i) for s, side in enumerate(equation) for i, part in enumerate(side) if part.bracket]
    if kind == "sign":
        brackets = [(s, i) for s, i in brackets if equation[s][i].factor < 0]
    elif kind == "bracket":
        brackets = [(s, i) for s, i in brackets if equation[s][i].factor not in (1, -1)]
    if kind and not brackets:
        return None
    spoilt = rng.choice(brackets) if kind else None
    sides: list[Side] = []
    for s, side in enumerate(equation):
        parts: list[Part] = []
        for i, part in enumerate(side):
            x, c = part.factor * part.x, part.factor * part.c
            if (s, i) == spoilt:
                if kind == "slip":
                    x, c = (off(x, rng), c) if rng.random() < 0.4 else (x, off(c, rng))
                else:
                    c = -c if kind == "sign" else part.c
            parts += [x_term(x)] * bool(x) + [c_term(c)] * bool(c)
        sides.append(tuple(parts))
    return sides[0], sides[1]


def collect(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Combine like terms on each side."""
    sides: list[Side] = []
    open_sides = [s for s, side in enumerate(equation) if len(side) > 2 or _alike(side)]
    spoilt = rng.choice(open_sides) if kind else -1
    for s, side in enumerate(equation):
        x, c = total(side)
        if s == spoilt:
            xs, cs = [p.x for p in side if p.x], [p.c for p in side if p.c]
            own, others = (xs, cs) if len(xs) > 1 and (len(cs) < 2 or rng.random() < 0.4) else (cs, xs)
            wrong = off(sum(own), rng) if kind == "slip" else sum(own) - 2 * rng.choice(own)
            x, c = (wrong, sum(others)) if own is xs else (sum(others), wrong)
        sides.append(tuple([x_term(x)] * bool(x) + [c_term(c)] * bool(c or not x)))
    return sides[0], sides[1]


def move_unknown(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Move all terms with the unknown to the left."""
    (a, b), (c, d) = map(total, equation)
    x = a + c if kind == "sign" else off(a - c, rng) if kind == "slip" else a - c
    return (tuple([x_term(x)] * bool(x) + [c_term(b)] * bool(b)), (c_term(d),)) if x else None


def move_constant(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Move the constants to the right."""
    (a, b), (_, d) = map(total, equation)
    return (x_term(a),), (c_term(d + b if kind == "sign" else off(d - b, rng) if kind == "slip" else d - b),)


def divide(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Divide by the coefficient of the unknown."""
    (a, _), (_, d) = map(total, equation)
    result = Fraction(d) / a
    if kind == "division":
        result = rng.choice((Fraction(d - a), Fraction(a) / d)) if d else Fraction(d - a)
    elif kind == "sign":
        result = -result
    elif kind == "slip":
        result = Fraction(off(result, rng)) if result.denominator == 1 else Fraction(off(d, rng)) / a
    return (x_term(1),), (c_term(result),)


def _alike(side: Side) -> bool:
    return sum(bool(p.x) for p in side) > 1 or sum(bool(p.c) for p in side) > 1


STAGES: Mapping[str, tuple[Change, tuple[str, ...]]] = {
    "clear": (clear, ("slip", "unscaled")),
    "expand": (expand, ("slip", "sign", "bracket")),
    "collect": (collect, ("slip", "sign")),
    "unknown": (move_unknown, ("slip", "sign")),
    "constant": (move_constant, ("slip", "sign")),
    "divide": (divide, ("slip", "sign", "division")),
}
"""Each transformation and the error kinds that fit it, in addition to a miscopied number."""


def following(equation: Equation) -> str:
    """Return the name of the next transformation; "" when the equation is solved."""
    left, right = equation
    (a, b), (c, _) = total(left), total(right)
    if any(p.over > 1 for p in left + right):
        return "clear"
    if any(p.bracket for p in left + right):
        return "expand"
    if _alike(left) or _alike(right):
        return "collect"
    return "unknown" if c else "constant" if b else "divide" if a != 1 else ""


def solvable(equation: Equation) -> bool:
    """Return whether the equation has exactly one solution."""
    return total(equation[0])[0] != total(equation[1])[0]


def miscopied(equation: Equation, rng: Random) -> Equation:
    """Change the sign or the size of one number of the equation, as if misread."""
    sides = [list(side) for side in equation]
    s = rng.choice([s for s in (0, 1) if sides[s]])
    i = rng.randrange(len(sides[s]))
    part = sides[s][i]
    if part.c and (not part.x or rng.random() < 0.5):
        sides[s][i] = part._replace(c=-part.c if rng.random() < 0.5 else off(part.c, rng))
    elif part.x != 1:
        sides[s][i] = part._replace(x=off(part.x, rng))
    return tuple(sides[0]), tuple(sides[1])
