"""Linear equations in one unknown, from one bracket to several fractions, solved a transformation a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import lcm
from random import Random
from typing import NamedTuple, TypeAlias

from critic_prm.generate.families._words import NUMBERING, numbered
from critic_prm.generate.family import Solution, Task

KINDS = {
    "slip": 4.0,  # a product, a sum or a quotient that is wrong
    "sign": 4.0,  # a term changes sides, or comes out of a bracket, without its sign
    "bracket": 9.0,  # 3(x + 4) as 3x + 4
    "unscaled": 20.0,  # one term is not multiplied by the common denominator
    "division": 5.0,  # 3x = 12 as x = 9, or the fraction upside down
    "copied": 1.0,  # a number of the line before is copied wrongly
}
LETTERS = "xxxyntkzmabwp"
ASK = ("Solve for {x}: {eq}", "Solve the equation {eq}.", "Find the value of {x} for which {eq}.", "What is {x} if {eq}?",
       "Determine {x} from {eq}.", "For which {x} does {eq} hold?")  # fmt: skip
TRIES = 12


Number: TypeAlias = "int | Fraction"
"""Whole numbers stay whole: arithmetic with fractions is many times slower, and there are few of them."""


class Part(NamedTuple):
    """`factor` times (`x` times the unknown plus `c`), divided by `over`. A plain term has no more than one of x and c."""

    x: Number
    c: Number
    factor: Number = 1
    over: int = 1

    @property
    def bracket(self) -> bool:
        return bool(self.x and self.c)


Side = tuple[Part, ...]
Equation = tuple[Side, Side]
Change = Callable[[Equation, str, Random], Equation | None]


def x_term(x: Number) -> Part:
    return Part(x, 0)


def c_term(c: Number) -> Part:
    return Part(0, c)


def total(side: Side) -> tuple[Number, Number]:
    """The side as (times the unknown, constant)."""
    x: Number = 0
    c: Number = 0
    for part in side:
        factor = part.factor if part.over == 1 else Fraction(part.factor) / part.over
        x, c = x + factor * part.x, c + factor * part.c
    return x, c


def off(value: Number, rng: Random) -> Number:
    """A number that comes out wrong."""
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
    """Multiply the brackets out."""
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
    """Add up like terms on each side."""
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
    """All terms with the unknown to the left."""
    (a, b), (c, d) = map(total, equation)
    x = a + c if kind == "sign" else off(a - c, rng) if kind == "slip" else a - c
    return (tuple([x_term(x)] * bool(x) + [c_term(b)] * bool(b)), (c_term(d),)) if x else None


def move_constant(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """The constants to the right."""
    (a, b), (_, d) = map(total, equation)
    return (x_term(a),), (c_term(d + b if kind == "sign" else off(d - b, rng) if kind == "slip" else d - b),)


def divide(equation: Equation, kind: str, rng: Random) -> Equation | None:
    """By the factor of the unknown."""
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
"""Every transformation and the kinds of error that fit it, besides a number copied wrongly."""


def following(equation: Equation) -> str:
    """The name of the transformation that comes next; "" when the equation is solved."""
    left, right = equation
    (a, b), (c, _) = total(left), total(right)
    if any(p.over > 1 for p in left + right):
        return "clear"
    if any(p.bracket for p in left + right):
        return "expand"
    if _alike(left) or _alike(right):
        return "collect"
    return "unknown" if c else "constant" if b else "divide" if a != 1 else ""


SAY = {
    "clear": ("Multiply both sides by the common denominator: {}", "Clearing the fractions gives {}", "Without fractions: {}"),
    "expand": ("Expand the brackets: {}", "Multiplying out, {}", "Removing the brackets gives {}"),
    "collect": ("Combine like terms: {}", "Simplify both sides: {}", "Collecting terms on each side, {}"),
    "unknown": (
        "Bring all terms with {x} to the left: {}",
        "Moving the {x} terms together gives {}",
        "All {x} on one side: {}",
    ),
    "constant": ("Bring the constants to the right: {}", "Moving the constant over, {}", "Isolate the term with {x}: {}"),
    "divide": ("Divide by the coefficient of {x}: {}", "Dividing gives {}", "Solve for {x}: {}"),
    "answer": ("So the answer is {}", "Therefore {}", "The solution is {}"),
}


@dataclass(frozen=True)
class EquationTask:
    """An equation and one way to write its solution. `closes` says whether the answer has a step of its own."""

    equation: Equation
    letter: str
    ask: str
    words: Mapping[str, str]
    latex: bool
    numbering: str
    closes: bool

    @property
    def problem(self) -> str:
        return self.ask.format(x=self._math(self.letter), eq=self._math(self._show(self.equation)))

    @property
    def facts(self) -> Mapping[str, object]:
        return {}

    @cached_property
    def _stages(self) -> list[str]:
        """The transformations of the right solution."""
        found, equation = [], self.equation
        while name := following(equation):
            found.append(name)
            changed = STAGES[name][0](equation, "", Random(0))
            assert changed is not None
            equation = changed
        return found

    @cached_property
    def right(self) -> Solution:
        solution = self._work(-1, "", Random(0))
        assert solution is not None
        return solution

    @property
    def places(self) -> tuple[tuple[str, ...], ...]:
        steps = [(*STAGES[name][1], "copied") for name in self._stages]
        return (*steps, ("copied",)) if self.closes else tuple(steps)

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        for _ in range(TRIES):
            solution = self._work(at, kind, rng)
            if solution and solution.answer != self.right.answer:
                return solution
        return None

    def _work(self, at: int, kind: str, rng: Random) -> Solution | None:
        equation, texts = self.equation, []
        for index, name in enumerate(self._stages):
            if name != following(equation):  # the error has left nothing to do that a right solution has to do
                return None
            if index == at and kind == "copied":
                equation = _miscopied(equation, rng)
            if not _solvable(equation):
                return None
            changed = STAGES[name][0](equation, kind if index == at and kind != "copied" else "", rng)
            if changed is None or not _solvable(changed):
                return None
            equation = changed
            texts.append(self.words[name].format(self._math(self._show(equation)), x=self._math(self.letter)) + ".")
        if self.closes:
            if at == len(self._stages):
                equation = _miscopied(equation, rng)
            texts.append(self.words["answer"].format(self._math(self._show(equation))) + ".")
        answer = total(equation[1])[1]
        if following(equation) or answer.denominator > 400 or not -5000 <= answer <= 5000:
            return None
        return Solution(numbered(texts, self.numbering), str(answer))

    def _math(self, text: str) -> str:
        return f"${text}$" if self.latex else text

    def _show(self, equation: Equation) -> str:
        return " = ".join(self._side(side) for side in equation)

    def _side(self, side: Side) -> str:
        text = ""
        for part in side:
            sign, body = self._part(part)
            text += f" {sign} {body}" if text else ("-" if sign == "-" else "") + body
        return text or "0"

    def _part(self, part: Part) -> tuple[str, str]:
        """Its sign and the rest."""
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


def _solvable(equation: Equation) -> bool:
    return total(equation[0])[0] != total(equation[1])[0]


def _miscopied(equation: Equation, rng: Random) -> Equation:
    """One number of the equation read wrongly: its sign, or its size."""
    sides = [list(side) for side in equation]
    s = rng.choice([s for s in (0, 1) if sides[s]])
    i = rng.randrange(len(sides[s]))
    part = sides[s][i]
    if part.c and (not part.x or rng.random() < 0.5):
        sides[s][i] = part._replace(c=-part.c if rng.random() < 0.5 else off(part.c, rng))
    elif part.x != 1:
        sides[s][i] = part._replace(x=off(part.x, rng))
    return tuple(sides[0]), tuple(sides[1])


def draw(rng: Random, level: int) -> Task:
    """An equation with one solution."""
    while True:
        equation = _draw(rng, level)
        (a, b), (c, d) = map(total, equation)
        if a != c and (Fraction(d - b) / (a - c)).denominator < 60:
            break
    words = {name: rng.choice(ways) for name, ways in SAY.items()}
    return EquationTask(
        equation, rng.choice(LETTERS), rng.choice(ASK), words, rng.random() < 0.4, rng.choice(NUMBERING), rng.random() < 0.4
    )


def _draw(rng: Random, level: int) -> Equation:
    def number(size: int) -> int:
        return rng.choice((-1, 1)) * rng.randint(2, size)

    def bracket(size: int) -> Part:
        return Part(number(size) if level > 3 else 1, number(9), number(size))

    def fraction(size: int) -> Part:
        return Part(number(size), number(9), rng.choice((1, 1, -1)), rng.randint(2, 6))

    c = c_term
    left: Side
    right: Side
    if level == 1:
        left, right = (x_term(abs(number(12))), c(number(40))), (c(number(90)),)
    elif level == 2:
        left, right = (x_term(number(15)), c(number(60))), (x_term(number(15)), c(number(60)))
    elif level == 3:
        left, right = (bracket(9), c(number(30))), (x_term(number(9)), c(number(40)))
    elif level == 4:
        left, right = (bracket(7), c(number(20)), bracket(5)), (bracket(6), x_term(number(9)))
    else:
        left, right = (fraction(6), fraction(6)), (fraction(5), c(number(12)))
    if rng.random() < 0.6:  # make the solution whole, by the last constant of the right side
        root = rng.randint(-15, 15)
        (a, b), (e, _) = total(left), total(right)
        _, rest = total(tuple(p for p in right if p.bracket))
        constant = a * root + b - e * root - rest
        if constant.denominator == 1 and constant:
            right = (*(p for p in right if p.x), c(constant))
    return left, right
