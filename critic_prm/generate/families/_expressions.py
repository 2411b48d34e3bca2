"""Draw arithmetic expressions that are evaluated one operation per step, each step writing the remainder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import TypeAlias

from critic_prm.generate.families._slips import Style, apply, draw_style, misread, slips
from critic_prm.generate.families._stories import FACTORS, SIZES
from critic_prm.generate.families._words import numbered
from critic_prm.generate.family import Solution

RANK = {"+": 1, "-": 1, "*": 2, "/": 2}
OPERATIONS = {1: (2, 3), 2: (3, 3), 3: (4, 5), 4: (5, 6), 5: (7, 8)}
ASK = (
    "Compute {}.",
    "Evaluate the expression {}.",
    "What is the value of {}?",
    "Work out {}.",
    "Calculate {} step by step.",
    "Simplify {}.",
)
DO = ("{eq}", "Next, {eq}", "We compute {eq}", "Now {eq}")
REST = ("{}, which leaves {}.", "{}. The expression becomes {}.", "{}, so we have {}.", "{}. What remains: {}.")
END = ("{}. The value is {}.", "{}, so the result is {}.", "{}. Answer: {}.")
TRIES = 12

Tree: TypeAlias = "Fraction | tuple[str, Tree, Tree]"


def value(tree: Tree) -> Fraction:
    """Evaluate the tree."""
    return tree if isinstance(tree, Fraction) else apply(tree[0], [value(tree[1]), value(tree[2])])


def size(tree: Tree) -> int:
    """Return the number of operations."""
    return 0 if isinstance(tree, Fraction) else 1 + size(tree[1]) + size(tree[2])


def first(tree: Tree) -> tuple[str, Tree, Tree]:
    """Return the operation to evaluate first: the leftmost one with two numeric operands."""
    assert not isinstance(tree, Fraction)
    for part in tree[1:]:
        if not isinstance(part, Fraction):
            return first(part)
    return tree


def swap(tree: Tree, old: Tree, new: Tree) -> Tree:
    """Return the tree with the node `old` (compared by identity) replaced by `new`."""
    if tree is old:
        return new
    return tree if isinstance(tree, Fraction) else (tree[0], swap(tree[1], old, new), swap(tree[2], old, new))


def out_of_order(tree: Tree) -> list[tuple[Tree, tuple[str, Tree, Tree], str, Tree]]:
    """Find the places where a violation of the operator precedence is possible.

    The violations are evaluating from left to right, and reading a minus sign as if brackets followed it. Each entry is (place,
    premature calculation, operator, other operand).
    """
    if isinstance(tree, Fraction):
        return []
    op, left, right = tree
    found = [place for part in (left, right) for place in out_of_order(part)]
    if op in "*/":
        return found
    if isinstance(left, Fraction) and not isinstance(right, Fraction) and right[0] in "*/" and isinstance(right[1], Fraction):
        found.append((tree, (op, left, right[1]), right[0], right[2]))  # 4 + 5 * 2 as 9 * 2
    if isinstance(right, Fraction) and not isinstance(left, Fraction) and left[0] == "-" and isinstance(left[2], Fraction):
        found.append((tree, (op, left[2], right), "before -", left[1]))  # 20 - 8 - 3 as 20 - 5, or 20 - 8 + 3 as 20 - 11
    return found


@dataclass(frozen=True)
class ExpressionTask:
    """An expression and one way of writing its evaluation."""

    tree: Tree
    style: Style
    ask: str
    words: tuple[tuple[str, str], ...]  # per step: its beginning and its end

    @property
    def problem(self) -> str:
        return self.ask.format(self.style.math(self._show(self.tree)))

    @property
    def facts(self) -> Mapping[str, object]:
        return {"form": "expression"}

    @cached_property
    def right(self) -> Solution:
        solution = self._work({}, None)
        assert solution is not None
        return solution

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        found, tree = [], self.tree
        while not isinstance(tree, Fraction):
            node = first(tree)
            found.append(("slip", "operator", "misread") + ("order",) * bool(out_of_order(tree)))
            tree = swap(tree, node, value(node))
        return tuple(found)

    def plant(self, at: int, kind: str, rng: Random) -> Solution | None:
        for _ in range(TRIES):
            solution = self._work({at: kind}, rng)
            if solution and solution.answer != self.right.answer:
                return solution
        return None

    def _work(self, errors: Mapping[int, str], rng: Random | None) -> Solution | None:
        tree, texts, bounds = self.tree, [], 50 * max(SIZES[5])
        for index, (start, end) in enumerate(self.words):
            node = first(tree)
            result = value(node)
            if index in errors and rng:
                spoilt = self._spoil(tree, node, errors[index], rng)
                if spoilt is None:
                    return None
                node, result, tree = spoilt
            else:
                tree = swap(tree, node, result)
            if not 0 < result < bounds or result.denominator != 1:
                return None
            equation = self.style.math(f"{self._show(node)} = {self.style.number(result)}")
            texts.append(end.format(start.format(eq=equation), self.style.math(self._show(tree))))
        return Solution(numbered(texts, self.style.numbering), str(tree)) if isinstance(tree, Fraction) else None

    def _spoil(
        self, tree: Tree, node: tuple[str, Tree, Tree], kind: str, rng: Random
    ) -> tuple[tuple[str, Tree, Tree], Fraction, Tree] | None:
        """Return the calculation as written, its result, and the remaining expression."""
        op, left, right = node
        assert isinstance(left, Fraction)
        assert isinstance(right, Fraction)
        result = value(node)
        if kind == "order":
            place, early, sign, other = rng.choice(out_of_order(tree))
            done = value(early)
            if done <= 0:
                return None
            later: Tree = ("-", other, done) if sign == "before -" else (sign, done, other)
            return early, done, swap(tree, place, later)
        if kind == "slip":
            wrong = slips(op, [left, right], result, rng)
            done = rng.choice(wrong) if wrong else result
            written: tuple[str, Tree, Tree] = node
        elif kind == "operator":
            written = ({"+": "-", "-": "+", "*": "+", "/": rng.choice("*-")}[op], left, right)
            done = value(written)
        else:
            options = misread(left, rng) if rng.random() < 0.5 else misread(right, rng)
            if not options:
                return None
            other = rng.choice(options)
            written = (op, other, right) if rng.random() < 0.5 else (op, left, other)
            done = value(written)
        return None if done == result else (written, done, swap(tree, node, done))

    def _show(self, tree: Tree, rank: int = 0) -> str:
        if isinstance(tree, Fraction):
            return str(self.style.number(tree))
        op, left, right = tree
        text = f"{self._show(left, RANK[op])} {self.style.sign(op)} {self._show(right, RANK[op] + 1)}"
        return f"({text})" if RANK[op] < rank else text


def draw_expression(rng: Random, level: int) -> ExpressionTask:
    """Draw an expression whose intermediate results are all positive integers."""
    count = rng.randint(*OPERATIONS[level])
    while True:
        tree = _grow(rng, count, level)
        if tree is not None and 0 < value(tree) < 20 * SIZES[level][1]:
            break
    words = [(rng.choice(DO), rng.choice(REST if step < count - 1 else END)) for step in range(count)]
    return ExpressionTask(tree, draw_style(rng), rng.choice(ASK), tuple(words))


def _grow(rng: Random, count: int, level: int) -> Tree | None:
    if count == 0:
        return Fraction(rng.randint(2, SIZES[level][1] // 2 if level < 4 else 99))
    op = rng.choice("++--**/")
    on_left = rng.randint(0, count - 1)
    left, right = _grow(rng, on_left, level), _grow(rng, count - 1 - on_left, level)
    if left is None or right is None:
        return None
    if op == "*":
        small = Fraction(rng.randint(*FACTORS[min(level, 3)]))
        left, right = (
            (left, small if isinstance(right, Fraction) else right) if rng.random() < 0.5 or on_left else (small, right)
        )
    if op == "/" and isinstance(right, Fraction):
        divisors = [d for d in range(2, 26) if value(left) % d == 0 and value(left) > d]
        right = Fraction(rng.choice(divisors)) if divisors else right
    result = value((op, left, right))
    return (op, left, right) if result > 0 and result.denominator == 1 and result < 20 * SIZES[level][1] else None
