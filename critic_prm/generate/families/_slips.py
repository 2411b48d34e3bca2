"""Numbers to text, and from a right number to the wrong ones that people write in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from random import Random

from critic_prm.generate.families._words import NUMBERING


@dataclass(frozen=True, slots=True)
class Style:
    """How one solution writes numbers and steps. Drawn once a problem, so that right and wrong ones look alike."""

    latex: bool
    times: str
    over: str
    commas: bool
    numbering: str
    percent: str

    def number(self, value: Fraction, money: bool = False) -> str | None:
        """The number as text, money with a dollar sign; None where it has more than two decimals."""
        if (value * 100).denominator != 1:
            return None
        whole = value.denominator == 1
        text = format(float(value), ("," if self.commas else "") + (".0f" if whole else ".2f"))
        if money:
            return ("\\$" if self.latex else "$") + text
        return text if whole else text.rstrip("0")

    def sign(self, op: str) -> str:
        """How this solution writes one of + - * /."""
        return {"*": self.times, "/": self.over}.get(op, op)

    def math(self, text: str) -> str:
        """An equation as it stands in a sentence."""
        return f"${text}$" if self.latex else text


def draw_style(rng: Random) -> Style:
    """One of the ways to write."""
    latex = rng.random() < 0.25
    times, over = ("\\times", "/") if latex else rng.choice((("*", "/"), ("*", "/"), ("×", "÷"), ("×", "/"), ("x", "/")))
    percent = rng.choice(("of", "decimal", "hundredths"))
    return Style(latex, times, over, not latex and rng.random() < 0.5, rng.choice(NUMBERING), percent)


def apply(op: str, terms: Sequence[Fraction]) -> Fraction:
    """The value of `op` over the terms, from left to right; "%" takes the first as per cent of the second."""
    if op == "+":
        return sum(terms, Fraction(0))
    if op == "*":
        return prod(terms, start=Fraction(1))
    left, right = terms
    return left - right if op == "-" else left / right if op == "/" else left * right / 100


def transposed(value: Fraction, rng: Random) -> Fraction:
    """Two neighbouring digits of a whole number changed over; the number itself where that changes nothing."""
    digits = str(value.numerator)
    spots = [i for i in range(len(digits) - 1) if digits[i] != digits[i + 1] and not (i == 0 and digits[1] == "0")]
    if value.denominator != 1 or not spots:
        return value
    i = rng.choice(spots)
    return Fraction(int(digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :]))


def slips(op: str, terms: Sequence[Fraction], value: Fraction, rng: Random) -> list[Fraction]:
    """Wrong results of the calculation `op` over `terms` that people arrive at, likelier ones more than once."""
    cent = Fraction(1) if value.denominator == 1 else Fraction(1, 2)
    found = [value + cent, value - cent, value + 10 * cent, value - 10 * cent, value + 2, value - 2, transposed(value, rng)]
    if op == "*":  # a neighbour in the times table
        first, second = terms[0], terms[1]
        found += [value + first, value - first, value + second, value - second, *_digit(value, rng)]
    elif op in "+-" and all(term.denominator == 1 for term in terms):
        found += [_without_carry(op, terms), value + 10, value - 10, value + 100 if value > 200 else value + 10]
    else:
        found += [value + 5, value - 5, value * 2, *_digit(value, rng)]
    return [wrong for wrong in found if wrong != value and wrong > 0]


def misread(value: Fraction, rng: Random) -> list[Fraction]:
    """What a quantity of the problem is misread as."""
    step = 1 if value < 20 else 10
    return [v for v in (transposed(value, rng), transposed(value, rng), value + step, value - step) if v != value and v > 1]


def _digit(value: Fraction, rng: Random) -> list[Fraction]:
    """One digit, not the first, read as another."""
    text = str(value.numerator)
    if value.denominator != 1 or len(text) < 2:
        return []
    at = rng.randrange(1, len(text))
    return [Fraction(int(text[:at] + rng.choice("0123456789") + text[at + 1 :]))]


def _without_carry(op: str, terms: Sequence[Fraction]) -> Fraction:
    """Sums digit by digit with the carries forgotten; differences with the smaller digit taken from the larger."""
    numbers = [int(term) for term in terms]
    place, result = 1, 0
    while any(number // place for number in numbers):
        digits = [number // place % 10 for number in numbers]
        result += place * (sum(digits) % 10 if op == "+" else abs(digits[0] - digits[1]))
        place *= 10
    return Fraction(result)
