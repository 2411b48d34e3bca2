"""Check a step's arithmetic, its identities at two points, and its solutions in earlier equations."""

from __future__ import annotations

from math import log10

from critic_prm.arithmetic import check
from distill.features.expressions import Pair, Relation, Side, relations
from distill.features.scan import Scan

NAMES = (
    "stated", "true", "false", "false_share", "rounded", "identity", "no_identity", "equation", "assigned", "reassigned",
    "kept_value", "follows", "no_longer_follows", "unread", "chain_length", "false_any", "worst_gap", "refuted",
    "true_before", "false_before", "identity_before", "no_identity_before", "assigned_before", "refuted_before",
    "equations_before", "repeats_equation", "computed",
)  # fmt: skip
REMEMBERED = 12


class Algebra:
    """Tracks the equations and values of one solution; `step` returns NAMES for the next step."""

    def __init__(self, problem: Scan) -> None:
        self.problem = problem.text
        self.values: dict[str, float] = {}
        self.equations: list[tuple[frozenset[str], Pair]] = []
        self.true = self.false = self.identity = self.broken = self.assigned = self.refuted = 0
        for relation in relations(problem.tokens)[0]:
            self._remember(relation)

    def _remember(self, relation: Relation) -> None:
        letters = relation.left.letters | relation.right.letters
        self.equations = [*self.equations[1 - REMEMBERED :], (letters, _difference(relation))]

    def step(self, scan: Scan) -> tuple[float, ...]:
        found, unread = relations(scan.tokens)
        counts = dict.fromkeys(
            ("true", "false", "rounded", "identity", "broken", "equation", "assigned", "reassigned", "kept"), 0
        )
        follows = lost = repeats = computed = chain = 0
        worst = 0.0
        lengths: dict[int, int] = {}
        for relation in found:
            lengths[relation.chain] = lengths.get(relation.chain, 0) + 1
        before = len(self.equations)
        for relation in found:
            left, right = relation.left, relation.right
            if not left.letters and not right.letters:
                if left.atom and right.atom and left.values == right.values:
                    continue
                computed += not left.atom
                verdict, gap = _compare(left, right, relation.about)
                counts[verdict] += 1
                worst = max(worst, gap)
            elif left.letters == right.letters and _equal(left.values, right.values):
                counts["identity"] += 1
            else:
                single = _assignment(relation)
                if single:
                    name, value = single
                    old = self.values.get(name)
                    counts[
                        "assigned" if old is None else "kept" if abs(old - value) <= 1e-6 * (1 + abs(value)) else "reassigned"
                    ] += 1
                    self.values[name] = value
                elif left.letters == right.letters and lengths[relation.chain] > 1:
                    counts["broken"] += 1
                else:
                    counts["equation"] += 1
                kin = self._against(relation, before)
                follows += kin == 1
                repeats += kin == 2
                lost += kin == -1
                self._remember(relation)
        chain = max(lengths.values(), default=0)
        stated = len(found)
        # The fast check above uses floats and few readings; if it finds something false, the exact checker is called.
        refuted = sum(c.finding == "false" for c in check(scan.text, self.problem)) if counts["false"] else 0
        row = (
            stated, counts["true"], counts["false"], counts["false"] / (stated or 1), counts["rounded"], counts["identity"],
            counts["broken"], counts["equation"], counts["assigned"], counts["reassigned"], counts["kept"], follows, lost,
            unread, chain, counts["false"] > 0, worst, refuted, self.true, self.false, self.identity, self.broken,
            self.assigned, self.refuted, before, repeats, computed,
        )  # fmt: skip
        self.true += counts["true"]
        self.false += counts["false"]
        self.identity += counts["identity"]
        self.broken += counts["broken"]
        self.assigned += counts["assigned"]
        self.refuted += refuted
        return tuple(map(float, row))

    def _against(self, relation: Relation, before: int) -> int:
        """Compare with earlier equations.

        Returns 2 for an earlier equation again, 1 for a constant multiple of one, -1 for neither, although one has the same
        letters, and 0 for new letters.
        """
        letters, (a, b) = relation.left.letters | relation.right.letters, _difference(relation)
        same = False
        for others, (c, d) in self.equations[-before - 1 :] if before else ():
            if others == letters:
                same = True
                if _equal((a, b), (c, d)):
                    return 2
                if abs(a * d - b * c) <= 1e-7 * (abs(a * d) + abs(b * c) + 1e-12):
                    return 1
        return -1 if same else 0


def _difference(relation: Relation) -> Pair:
    (a, b), (c, d) = relation.left.values, relation.right.values
    return a - c, b - d


def _equal(x: Pair, y: Pair) -> bool:
    return all(abs(a - b) <= 1e-7 * (1 + abs(a) + abs(b)) for a, b in zip(x, y, strict=True))


def _compare(left: Side, right: Side, about: bool) -> tuple[str, float]:
    """Return "true", "rounded" (equal when rounded to the decimals shown) or "false", and the log10 of the relative gap."""
    a, b = left.values[0], right.values[0]
    gap = abs(a - b)
    if gap <= 1e-9 * (1 + abs(a) + abs(b)):
        return "true", 0.0
    decimals = right.decimals if right.atom else left.decimals
    if (gap <= 0.51 * 10.0**-decimals and (decimals or about)) or (
        gap <= (0.03 if about else 0.005) * max(abs(a), abs(b)) and (decimals or about)
    ):
        return "rounded", 0.0
    return "false", log10(1 + gap / (1e-3 + min(abs(a), abs(b))))


def _assignment(relation: Relation) -> tuple[str, float] | None:
    left, right = relation.left, relation.right
    if left.atom and len(left.letters) == 1 and not right.letters:
        return next(iter(left.letters)), right.values[0]
    return None
