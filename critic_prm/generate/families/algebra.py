"""Linear equations in one unknown, from one bracket to several fractions, solved one transformation per step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from random import Random

from critic_prm.generate.families._equations import (
    STAGES,
    Equation,
    Part,
    Side,
    c_term,
    following,
    miscopied,
    solvable,
    total,
    x_term,
)
from critic_prm.generate.families._words import NUMBERING, numbered
from critic_prm.generate.family import FamilyTask, Solution

KINDS = {
    "slip": 4.0,  # a wrong product, sum or quotient
    "sign": 4.0,  # a term moves to the other side, or out of a bracket, without a sign change
    "bracket": 9.0,  # 3(x + 4) as 3x + 4
    "unscaled": 20.0,  # one term is not multiplied by the common denominator
    "division": 5.0,  # 3x = 12 gives x = 9, or the fraction is inverted
    "copied": 1.0,  # a number of the previous line is miscopied
}
LETTERS = "xxxyntkzmabwp"
ASK = ("Solve for {x}: {eq}", "Solve the equation {eq}.", "Find the value of {x} for which {eq}.", "What is {x} if {eq}?",
       "Determine {x} from {eq}.", "For which {x} does {eq} hold?")  # fmt: skip
TRIES = 12

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
    """An equation and one way of writing its solution. `closes` says whether the answer has its own step."""

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
        """Return the transformations of the correct solution."""
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
            if name != following(equation):  # the error left nothing to do for a transformation of the correct solution
                return None
            if index == at and kind == "copied":
                equation = miscopied(equation, rng)
            if not solvable(equation):
                return None
            changed = STAGES[name][0](equation, kind if index == at and kind != "copied" else "", rng)
            if changed is None or not solvable(changed):
                return None
            equation = changed
            texts.append(self.words[name].format(self._math(self._show(equation)), x=self._math(self.letter)) + ".")
        if self.closes:
            if at == len(self._stages):
                equation = miscopied(equation, rng)
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


def draw(rng: Random, level: int) -> FamilyTask:
    """Draw an equation with exactly one solution."""
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
    if rng.random() < 0.6:  # make the solution an integer by adjusting the last constant of the right side
        root = rng.randint(-15, 15)
        (a, b), (e, _) = total(left), total(right)
        _, rest = total(tuple(p for p in right if p.bracket))
        constant = a * root + b - e * root - rest
        if constant.denominator == 1 and constant:
            right = (*(p for p in right if p.x), c(constant))
    return left, right
