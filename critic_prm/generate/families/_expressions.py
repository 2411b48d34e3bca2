"""Draw arithmetic expressions that are evaluated one operation per step, each step writing the remainder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import TypeAlias

from critic_prm.generate.families._common import WORDS, Impossible, Run, SimulatedTask, say
from critic_prm.generate.families._stories import FACTORS, SIZES, Style, apply, draw_style, misread, slips

RANK = {"+": 1, "-": 1, "*": 2, "/": 2}
OPERATIONS = {1: (2, 3), 2: (3, 3), 3: (4, 5), 4: (5, 6), 5: (7, 8)}

Operation: TypeAlias = "tuple[str, Tree, Tree]"
Tree: TypeAlias = "Fraction | Operation"


def value(tree: Tree) -> Fraction:
    """Evaluate the tree."""
    return tree if isinstance(tree, Fraction) else apply(tree[0], [value(tree[1]), value(tree[2])])


def first(tree: Tree) -> Operation:
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


def out_of_order(tree: Tree) -> list[tuple[Tree, Operation, str, Tree]]:
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
class ExpressionTask(SimulatedTask):
    """An expression and one way of writing its evaluation."""

    problem: str
    tree: Tree
    style: Style
    phrases: tuple[tuple[str, str], ...]  # per step: its beginning and its end
    numbering: str
    form: str = "expression"
    changes_answer = True
    tries = 12

    def kinds(self, steps: int) -> Sequence[tuple[str, ...]]:
        kinds, tree = [], self.tree
        while not isinstance(tree, Fraction):
            node = first(tree)
            kinds.append(("slip", "operator", "misread") + ("order",) * bool(out_of_order(tree)))
            tree = swap(tree, node, value(node))
        return kinds

    def solve(self, run: Run) -> str:
        tree = self.tree
        for start, end in self.phrases:
            node = first(tree)
            result = value(node)
            if run.error:
                node, result, tree = self._spoil(tree, node, run)
            else:
                tree = swap(tree, node, result)
            if not 0 < result < 50 * max(SIZES[5]) or result.denominator != 1:
                raise Impossible
            equation = self.style.math(f"{show(node, self.style)} = {self.style.number(result)}")
            run.texts.append(end.format(start.format(eq=equation), self.style.math(show(tree, self.style))))
        if not isinstance(tree, Fraction):
            raise Impossible
        return str(tree)

    def _spoil(self, tree: Tree, node: Operation, run: Run) -> tuple[Operation, Fraction, Tree]:
        """Return the calculation as written, its result, and the remaining expression."""
        op, left, right = node
        assert isinstance(left, Fraction)
        assert isinstance(right, Fraction)
        result, rng = value(node), run.rng
        if run.error == "order":
            place, early, sign, other = rng.choice(out_of_order(tree))
            done = value(early)
            if done <= 0:
                raise Impossible
            return early, done, swap(tree, place, ("-", other, done) if sign == "before -" else (sign, done, other))
        written = node
        if run.error == "operator":
            written = ({"+": "-", "-": "+", "*": "+", "/": rng.choice("*-")}[op], left, right)
        elif run.error == "misread":
            other = run.choose(misread(left, rng) if rng.random() < 0.5 else misread(right, rng))
            written = (op, other, right) if rng.random() < 0.5 else (op, left, other)
        done = run.choose(slips(op, [left, right], result, rng)) if run.error == "slip" else value(written)
        if done == result:
            raise Impossible
        return written, done, swap(tree, node, done)


def show(tree: Tree, style: Style, rank: int = 0) -> str:
    """Write an expression with the brackets it needs."""
    if isinstance(tree, Fraction):
        return str(style.number(tree))
    op, left, right = tree
    text = f"{show(left, style, RANK[op])} {style.sign(op)} {show(right, style, RANK[op] + 1)}"
    return f"({text})" if RANK[op] < rank else text


def draw_expression(rng: Random, level: int) -> ExpressionTask:
    """Draw an expression whose intermediate results are all positive integers."""
    count = rng.randint(*OPERATIONS[level])
    while True:
        tree = _grow(rng, count, level)
        if tree is not None and 0 < value(tree) < 20 * SIZES[level][1]:
            break
    phrases = tuple(
        (say(rng, "expressions", "do"), say(rng, "expressions", "rest" if step < count - 1 else "end")) for step in range(count)
    )
    style = draw_style(rng)
    problem = rng.choice(WORDS["expressions"]["ask"]).format(style.math(show(tree, style)))
    return ExpressionTask(problem, tree, style, phrases, style.numbering)


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
