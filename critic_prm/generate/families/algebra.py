"""Linear equations in one unknown, from one bracket to several fractions, solved one transformation per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from random import Random
from typing import NamedTuple, TypeAlias

from critic_prm.generate.families._common import WORDS, Impossible, Run, SimulatedTask, draw_numbering
from critic_prm.generate.family import FamilyTask

KINDS = {
    "slip": 4.0,  # a wrong product, sum or quotient
    "sign": 4.0,  # a term moves to the other side, or out of a bracket, without a sign change
    "bracket": 9.0,  # 3(x + 4) as 3x + 4
    "unscaled": 20.0,  # one term is not multiplied by the common denominator
    "division": 5.0,  # 3x = 12 gives x = 9, or the fraction is inverted
    "copied": 1.0,  # a number of the previous line is miscopied
}
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


def terms(x: Number, c: Number) -> Side:
    """Return the side x * unknown + c, without zero terms."""
    return (x_term(x),) * bool(x) + (c_term(c),) * bool(c)


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

    def fits(factor: Number) -> bool:
        return factor < 0 if kind == "sign" else factor not in (1, -1) if kind == "bracket" else True

    brackets = [(s, i) for s, side in enumerate(equation) for i, part in enumerate(side) if part.bracket and fits(part.factor)]
    if kind and not brackets:
        return None
    spoilt = rng.choice(brackets) if kind else None

    def expanded(part: Part, place: tuple[int, int]) -> Side:
        x, c = part.factor * part.x, part.factor * part.c
        if place == spoilt and kind == "slip":
            x, c = (off(x, rng), c) if rng.random() < 0.4 else (x, off(c, rng))
        elif place == spoilt:
            c = -c if kind == "sign" else part.c
        return terms(x, c)

    left, right = (sum((expanded(part, (s, i)) for i, part in enumerate(side)), ()) for s, side in enumerate(equation))
    return left, right


def collect(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Combine like terms on each side."""
    sides: list[Side] = []
    spoilt = rng.choice([s for s, side in enumerate(equation) if len(side) > 2 or _alike(side)]) if kind else -1
    for s, side in enumerate(equation):
        x, c = total(side)
        if s == spoilt:
            xs, cs = [p.x for p in side if p.x], [p.c for p in side if p.c]
            own, others = (xs, cs) if len(xs) > 1 and (len(cs) < 2 or rng.random() < 0.4) else (cs, xs)
            wrong = off(sum(own), rng) if kind == "slip" else sum(own) - 2 * rng.choice(own)
            x, c = (wrong, sum(others)) if own is xs else (sum(others), wrong)
        sides.append(terms(x, c) or (c_term(0),))
    return sides[0], sides[1]


def move_unknown(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """Move all terms with the unknown to the left."""
    (a, b), (c, d) = map(total, equation)
    x = a + c if kind == "sign" else off(a - c, rng) if kind == "slip" else a - c
    return (terms(x, b), (c_term(d),)) if x else None


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


@dataclass(frozen=True)
class Writing:
    """How one solution writes equations."""

    letter: str
    latex: bool

    def math(self, text: str) -> str:
        """Format an expression for use in a sentence."""
        return f"${text}$" if self.latex else text

    def equation(self, equation: Equation) -> str:
        """Write an equation."""
        return self.math(" = ".join(map(self._side, equation)))

    def _side(self, side: Side) -> str:
        text = ""
        for part in side:
            sign, body = self._part(part)
            text += f" {sign} {body}" if text else ("-" if sign == "-" else "") + body
        return text or "0"

    def _part(self, part: Part) -> tuple[str, str]:
        """Return the sign and the rest of a term."""
        if part.bracket:
            inner = self._side((x_term(part.x), c_term(part.c)))
            sign, factor = ("-", -part.factor) if part.factor < 0 else ("+", part.factor)
            if part.over > 1:
                return sign, f"\\frac{{{inner}}}{{{part.over}}}" if self.latex else f"({inner})/{part.over}"
            return sign, f"{'' if factor == 1 else factor}({inner})"
        value = Fraction(part.factor * (part.x or part.c)) / part.over
        sign, size = "-" if value < 0 else "+", abs(value)
        number = f"\\frac{{{size.numerator}}}{{{size.denominator}}}" if self.latex and size.denominator > 1 else str(size)
        if not part.x:
            return sign, number
        return sign, ("" if size == 1 else number if size.denominator == 1 or self.latex else f"({number})") + self.letter


@dataclass(frozen=True)
class EquationTask(SimulatedTask):
    """An equation and one way of writing its solution. `closes` says whether the answer has its own step."""

    problem: str
    equation: Equation
    phrases: Mapping[str, str]
    writing: Writing
    numbering: str
    closes: bool
    form: str = ""
    changes_answer = True
    tries = 12

    @cached_property
    def _stages(self) -> list[str]:
        """Return the transformations of the correct solution."""
        names, equation = [], self.equation
        while name := following(equation):
            names.append(name)
            changed = STAGES[name][0](equation, "", Random(0))
            assert changed is not None
            equation = changed
        return names

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        return [*((*STAGES[name][1], "copied") for name in self._stages), *[("copied",)] * self.closes]

    def solve(self, run: Run) -> str:
        equation = self.equation
        for name in self._stages:
            if name != following(equation):  # the error left nothing to do for a transformation of the correct solution
                raise Impossible
            if run.error == "copied":
                equation = miscopied(equation, run.rng)
            if not solvable(equation):
                raise Impossible
            changed = STAGES[name][0](equation, run.error if run.error != "copied" else "", run.rng)
            if changed is None or not solvable(changed):
                raise Impossible
            equation = changed
            self._write(run, name, equation)
        if self.closes:
            if run.error:
                equation = miscopied(equation, run.rng)
            self._write(run, "answer", equation)
        answer = total(equation[1])[1]
        if following(equation) or answer.denominator > 400 or not -5000 <= answer <= 5000:
            raise Impossible
        return str(answer)

    def _write(self, run: Run, name: str, equation: Equation) -> None:
        shown, letter = self.writing.equation(equation), self.writing.math(self.writing.letter)
        run.texts.append(self.phrases[name].format(shown, x=letter) + ".")


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw an equation with exactly one solution."""
    while True:
        equation = _draw(rng, level)
        (a, b), (c, d) = map(total, equation)
        if a != c and (Fraction(d - b) / (a - c)).denominator < 60:
            break
    phrases = {name: rng.choice(texts) for name, texts in WORDS["algebra"]["steps"].items()}
    letter, ask = rng.choice("xxxyntkzmabwp"), rng.choice(WORDS["algebra"]["ask"])
    writing = Writing(letter, rng.random() < 0.4)
    problem = ask.format(x=writing.math(letter), eq=writing.equation(equation))
    return EquationTask(problem, equation, phrases, writing, draw_numbering(rng), rng.random() < 0.4)


def _draw(rng: Random, level: int) -> Equation:
    def number(size: int) -> int:
        return rng.choice((-1, 1)) * rng.randint(2, size)

    def bracket(size: int) -> Part:
        return Part(number(size) if level > 3 else 1, number(9), number(size))

    def fraction(size: int) -> Part:
        return Part(number(size), number(9), rng.choice((1, 1, -1)), rng.randint(2, 6))

    left: Side
    right: Side
    if level == 1:
        left, right = (x_term(abs(number(12))), c_term(number(40))), (c_term(number(90)),)
    elif level == 2:
        left, right = (x_term(number(15)), c_term(number(60))), (x_term(number(15)), c_term(number(60)))
    elif level == 3:
        left, right = (bracket(9), c_term(number(30))), (x_term(number(9)), c_term(number(40)))
    elif level == 4:
        left, right = (bracket(7), c_term(number(20)), bracket(5)), (bracket(6), x_term(number(9)))
    else:
        left, right = (fraction(6), fraction(6)), (fraction(5), c_term(number(12)))
    if rng.random() < 0.6:  # make the solution an integer by adjusting the last constant of the right side
        root = rng.randint(-15, 15)
        (a, b), (e, _) = total(left), total(right)
        _, rest = total(tuple(p for p in right if p.bracket))
        constant = a * root + b - e * root - rest
        if constant.denominator == 1 and constant:
            right = (*(p for p in right if p.x), c_term(constant))
    return left, right
