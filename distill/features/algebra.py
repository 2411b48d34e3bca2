"""Check a step's arithmetic, its identities at two points, and its solutions in earlier equations."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from functools import lru_cache
from math import log10
from typing import NamedTuple

from critic_prm.arithmetic.algebra import Assignment
from critic_prm.arithmetic.claims import check, excused
from critic_prm.arithmetic.lexer import SPOKEN
from critic_prm.arithmetic.parser import PLAIN, Unreadable, parse
from critic_prm.arithmetic.sides import Side, chains, sides
from distill.features.text import LARGEST, Scan

REMEMBERED = 12
"""Maximum number of earlier equations that a step is compared with."""
MOST = 12
"""Maximum number of relations that are read in a text."""
Pair = tuple[float, float]


@lru_cache(maxsize=1024)
def _point(name: str) -> Pair:
    """Return two fixed positive values for a letter, between 0.5 and 2.5, the same in every run."""
    code = zlib.crc32(name.encode("utf-8", "surrogatepass"))
    return 0.5 + (code & 0xFFFF) / 0x8000, 0.5 + (code >> 16) / 0x8000


_POINTS = Assignment(lambda name: _point(name)[0]), Assignment(lambda name: _point(name)[1])
_NONE: frozenset[str] = frozenset()


class Expression(NamedTuple):
    """One side of an equation: its values at the two points, its letters, and whether it is a single number or letter."""

    values: Pair
    letters: frozenset[str]
    atom: bool
    decimals: int


class Relation(NamedTuple):
    """Two adjacent expressions and the relation between them: "=" or "~" (approximately)."""

    left: Expression
    right: Expression
    about: bool
    chain: int

    @property
    def letters(self) -> frozenset[str]:
        """The letters of both sides."""
        return self.left.letters | self.right.letters

    @property
    def difference(self) -> Pair:
        """Left side minus right side, at the two points."""
        (a, b), (c, d) = self.left.values, self.right.values
        return a - c, b - d


def relations(text: str) -> tuple[list[Relation], int]:
    """Return the first MOST relations of a text that could be read, and the number of relations that could not."""
    found: list[Relation] = []
    unread = 0
    for number, chain in enumerate(chains(text)):
        ends = [sides(member) for member in chain.members]
        read: dict[int, Expression | None] = {}
        for (_, left), sign, (right, _) in zip(ends, chain.relations, ends[1:], strict=False):
            if sign.text not in "=~":
                continue
            a, b = (_expression(side, read) for side in (left, right))
            if a is None or b is None or (sign.value == SPOKEN and a.atom):
                unread += 1
                continue
            found.append(Relation(a, b, sign.text == "~", number))
            if len(found) == MOST:
                return found, unread
    return found, unread


def _expression(side: Side | None, read: dict[int, Expression | None]) -> Expression | None:
    """Evaluate a side, once even if it belongs to two relations. None if it cannot be evaluated."""
    if side is None or not side.readable or side.doubtful:
        return None
    key, tokens = id(side), side.tokens
    if key not in read:
        read[key] = None
        letters, atom = _NONE, True
        try:
            if len(tokens) == 1 and tokens[0].kind == "n":
                values = float(tokens[0].value), float(tokens[0].value)
            elif len(tokens) == 1 and tokens[0].kind == "v" and "π" != tokens[0].text != "\\pi":
                letters, values = frozenset((tokens[0].text,)), _point(tokens[0].text)
            else:
                first, shape = parse(tokens, PLAIN, _POINTS[0])
                letters, atom = shape.letters, not (shape.operations or shape.divides or shape.percent)
                values = float(first), float(parse(tokens, PLAIN, _POINTS[1])[0] if letters else first)
        except (Unreadable, OverflowError):
            return None
        if abs(values[0]) < LARGEST and abs(values[1]) < LARGEST:
            decimals = max([token.places for token in tokens if token.kind == "n"], default=0)
            read[key] = Expression(values, letters, atom, max(decimals, 0))
    return read[key]


class Algebra:
    """Tracks the equations and values of one solution."""

    NAMES = (
        "stated", "true", "false", "false_share", "rounded", "identity", "no_identity", "equation", "assigned", "reassigned",
        "kept_value", "follows", "no_longer_follows", "unread", "chain_length", "false_any", "worst_gap", "refuted",
        "true_before", "false_before", "identity_before", "no_identity_before", "assigned_before", "refuted_before",
        "equations_before", "repeats_equation", "computed",
    )  # fmt: skip

    def __init__(self, problem: Scan) -> None:
        self.problem = problem.text
        self.values: dict[str, float] = {}
        self.equations: list[tuple[frozenset[str], Pair]] = []
        self.before: dict[str, int] = defaultdict(int)
        for relation in relations(problem.text)[0]:
            self._remember(relation)

    def _remember(self, relation: Relation) -> None:
        self.equations = [*self.equations[1 - REMEMBERED :], (relation.letters, relation.difference)]

    def step(self, scan: Scan) -> tuple[float, ...]:
        found, unread = relations(scan.text)
        n: dict[str, int] = defaultdict(int)
        worst = 0.0
        lengths = Counter([relation.chain for relation in found])
        earlier = len(self.equations)
        for relation in found:
            left, right = relation.left, relation.right
            if not relation.letters:
                if left.atom and right.atom and left.values == right.values:
                    continue
                n["computed"] += not left.atom
                verdict, gap = _compare(left, right, relation.about)
                n[verdict] += 1
                worst = max(worst, gap)
            elif left.letters == right.letters and _equal(left.values, right.values):
                n["identity"] += 1
            else:
                n[self._kind(relation, lengths[relation.chain] > 1)] += 1
                n[self._against(relation, earlier)] += 1
                self._remember(relation)
        # The fast check above uses floats and few readings; if it finds something false, the exact checker is called.
        if n["false"] and not excused(scan.text, self.problem):
            n["refuted"] = sum(c.finding == "false" for c in check(scan.text, self.problem))
        b, stated = self.before, len(found)
        row = (
            stated, n["true"], n["false"], n["false"] / (stated or 1), n["rounded"], n["identity"], n["broken"], n["equation"],
            n["assigned"], n["reassigned"], n["kept"], n["follows"], n["lost"], unread, max(lengths.values(), default=0),
            n["false"] > 0, worst, n["refuted"], b["true"], b["false"], b["identity"], b["broken"], b["assigned"], b["refuted"],
            earlier, n["repeats"], n["computed"],
        )  # fmt: skip
        for name, count in n.items():
            b[name] += count
        return row

    def _kind(self, relation: Relation, in_chain: bool) -> str:
        """Classify a relation with letters that is not an identity, and note the value that it assigns."""
        left, right = relation.left, relation.right
        if left.atom and len(left.letters) == 1 and not right.letters:
            (name,), value = left.letters, right.values[0]
            old = self.values.get(name)
            self.values[name] = value
            return "assigned" if old is None else "kept" if abs(old - value) <= 1e-6 * (1 + abs(value)) else "reassigned"
        return "broken" if left.letters == right.letters and in_chain else "equation"

    def _against(self, relation: Relation, earlier: int) -> str:
        """Compare with the equations of earlier steps.

        Returns "repeats" for an earlier equation again, "follows" for a constant multiple of one, "lost" for neither, although
        one has the same letters, and "" for new letters.
        """
        a, b = relation.difference
        same = [pair for letters, pair in self.equations[-earlier - 1 :] if letters == relation.letters] if earlier else []
        for c, d in same:
            if _equal((a, b), (c, d)):
                return "repeats"
            if abs(a * d - b * c) <= 1e-7 * (abs(a * d) + abs(b * c) + 1e-12):
                return "follows"
        return "lost" if same else ""


def _equal(x: Pair, y: Pair) -> bool:
    return all(abs(a - b) <= 1e-7 * (1 + abs(a) + abs(b)) for a, b in zip(x, y, strict=True))


def _compare(left: Expression, right: Expression, about: bool) -> tuple[str, float]:
    """Return "true", "rounded" (equal when rounded to the decimals shown) or "false", and the log10 of the relative gap."""
    a, b = left.values[0], right.values[0]
    gap = abs(a - b)
    if gap <= 1e-9 * (1 + abs(a) + abs(b)):
        return "true", 0.0
    decimals = right.decimals if right.atom else left.decimals
    tolerance = max(0.51 * 10.0**-decimals, (0.03 if about else 0.005) * max(abs(a), abs(b)))
    if (decimals or about) and gap <= tolerance:
        return "rounded", 0.0
    return "false", log10(1 + gap / (1e-3 + min(abs(a), abs(b))))
