"""Format numbers as text, and produce the plausible wrong numbers that people write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from random import Random

from critic_prm.generate.families._words import NUMBERING


@dataclass(frozen=True, slots=True)
class Style:
    """How one solution writes numbers and steps. Drawn once per problem, so correct and wrong solutions look alike."""

    latex: bool
    times: str
    over: str
    commas: bool
    numbering: str
    percent: str

    def number(self, value: Fraction, money: bool = False) -> str | None:
        """Format a number, with a dollar sign for money; None if it has more than two decimals."""
        if (value * 100).denominator != 1:
            return None
        whole = value.denominator == 1
        text = format(float(value), ("," if self.commas else "") + (".0f" if whole else ".2f"))
        if money:
            return ("\\$" if self.latex else "$") + text
        return text if whole else text.rstrip("0")

    def sign(self, op: str) -> str:
        """Return the symbol this solution uses for one of + - * /."""
        return {"*": self.times, "/": self.over}.get(op, op)

    def math(self, text: str) -> str:
        """Format an equation for use in a sentence."""
        return f"${text}$" if self.latex else text


def draw_style(rng: Random) -> Style:
    """Draw a writing style."""
    latex = rng.random() < 0.25
    times, over = ("\\times", "/") if latex else rng.choice((("*", "/"), ("*", "/"), ("×", "÷"), ("×", "/"), ("x", "/")))
    percent = rng.choice(("of", "decimal", "hundredths"))
    return Style(latex, times, over, not latex and rng.random() < 0.5, rng.choice(NUMBERING), percent)


def apply(op: str, terms: Sequence[Fraction]) -> Fraction:
    """Apply `op` to the terms from left to right. "%" takes the first term as a percentage of the second."""
    if op == "+":
        return sum(terms, Fraction(0))
    if op == "*":
        return prod(terms, start=Fraction(1))
    left, right = terms
    return left - right if op == "-" else left / right if op == "/" else left * right / 100


def transposed(value: Fraction, rng: Random) -> Fraction:
    """Swap two adjacent digits of an integer; return the number itself if no swap changes it."""
    digits = str(value.numerator)
    spots = [i for i in range(len(digits) - 1) if digits[i] != digits[i + 1] and not (i == 0 and digits[1] == "0")]
    if value.denominator != 1 or not spots:
        return value
    i = rng.choice(spots)
    return Fraction(int(digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :]))


def slips(op: str, terms: Sequence[Fraction], value: Fraction, rng: Random) -> list[Fraction]:
    """Return plausible wrong results of applying `op` to `terms`; likelier ones occur more than once."""
    cent = Fraction(1) if value.denominator == 1 else Fraction(1, 2)
    found = [value + cent, value - cent, value + 10 * cent, value - 10 * cent, value + 2, value - 2, transposed(value, rng)]
    if op == "*":  # an adjacent entry of the multiplication table
        first, second = terms[0], terms[1]
        found += [value + first, value - first, value + second, value - second, *_digit(value, rng)]
    elif op in "+-" and all(term.denominator == 1 for term in terms):
        found += [_without_carry(op, terms), value + 10, value - 10, value + 100 if value > 200 else value + 10]
    else:
        found += [value + 5, value - 5, value * 2, *_digit(value, rng)]
    return [wrong for wrong in found if wrong != value and wrong > 0]


def misread(value: Fraction, rng: Random) -> list[Fraction]:
    """Return plausible misreadings of a quantity in the problem."""
    step = 1 if value < 20 else 10
    return [v for v in (transposed(value, rng), transposed(value, rng), value + step, value - step) if v != value and v > 1]


def _digit(value: Fraction, rng: Random) -> list[Fraction]:
    """Change one digit other than the first."""
    text = str(value.numerator)
    if value.denominator != 1 or len(text) < 2:
        return []
    at = rng.randrange(1, len(text))
    return [Fraction(int(text[:at] + rng.choice("0123456789") + text[at + 1 :]))]


def _without_carry(op: str, terms: Sequence[Fraction]) -> Fraction:
    """Add digit by digit without carries, or subtract the smaller digit from the larger."""
    numbers = [int(term) for term in terms]
    place, result = 1, 0
    while any(number // place for number in numbers):
        digits = [number // place % 10 for number in numbers]
        result += place * (sum(digits) % 10 if op == "+" else abs(digits[0] - digits[1]))
        place *= 10
    return Fraction(result)
