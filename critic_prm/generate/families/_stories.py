"""Data types of word problems: quantities, calculations, stories, and the number ranges per level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from critic_prm.generate.families._slips import apply


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number stated in the problem."""

    value: Fraction
    money: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One calculation. Its terms are quantities or indices of earlier nodes. "@" in `say` stands for its equation.

    `joined` nodes are written in the same step as the previous node.
    """

    op: str
    terms: tuple[Quantity | int, ...]
    say: str
    money: bool = False
    joined: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """A word problem. "@" stands for the restated quantity in `opening` and for the answer in `closing`."""

    problem: str
    nodes: tuple[Node, ...]
    closing: str
    opening: tuple[str, Quantity] | None = None


SIZES = {1: (4, 20), 2: (8, 60), 3: (20, 150), 4: (40, 600), 5: (100, 3000)}
FACTORS = {1: (2, 5), 2: (2, 9), 3: (3, 12), 4: (3, 25), 5: (4, 60)}
LENGTHS = {1: (2, 3), 2: (3, 3), 3: (4, 5), 4: (5, 6), 5: (7, 8)}
"""SIZES, FACTORS and LENGTHS give ranges per level: of counts, of factors, and of the number of calculations."""


def whole(value: int) -> Quantity:
    """Build a quantity from an integer."""
    return Quantity(Fraction(value))


def price(rng: Random, level: int) -> Quantity:
    """Draw a price: whole dollars at levels 1 and 2, multiples of 5 cents above."""
    cents = rng.randint(*FACTORS[level]) * 100 + (0 if level < 3 else rng.choice((0, 20, 25, 40, 50, 60, 75, 80, 95)))
    return Quantity(Fraction(cents, 100), money=True)


def show(quantity: Quantity) -> str:
    """Format a quantity as the problem states it."""
    if not quantity.money:
        return str(quantity.value)
    return f"${quantity.value}" if quantity.value.denominator == 1 else f"${float(quantity.value):.2f}"


def values(nodes: Sequence[Node]) -> list[Fraction]:
    """Return the correct result of every calculation."""
    found: list[Fraction] = []
    for node in nodes:
        found.append(apply(node.op, [found[term] if isinstance(term, int) else term.value for term in node.terms]))
    return found
