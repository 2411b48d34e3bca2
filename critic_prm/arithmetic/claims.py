"""Find and check every written equation and inequality in a step, and judge solutions by them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal, NamedTuple

from critic_prm.arithmetic.algebra import Notes, agreement, follow, letters, onward, remember
from critic_prm.arithmetic.lexer import SPOKEN, Token, Value, words
from critic_prm.arithmetic.parser import PLAIN, Reading, Shape, Unreadable, distance, parse, say
from critic_prm.arithmetic.sides import Chain, Side, chains, sides
from critic_prm.data.judgement import Judgement, Verdict, first_error_of
from critic_prm.data.trajectory import Trajectory


class Term(NamedTuple):
    """A side of a relation, its value and its structure."""

    side: Side
    value: Value
    shape: Shape

    @property
    def plain(self) -> bool:
        """Whether the side is a number without any operation."""
        return not self.shape.operations


def term(side: Side, reading: Reading = PLAIN, letters: Mapping[str, Value] | None = None) -> Term:
    """Evaluate a side. Raises Unreadable."""
    if len(side.tokens) == 1 and side.tokens[0].kind == "n":
        return Term(side, side.tokens[0].value, _NUMBER)
    return Term(side, *parse(side.tokens, reading, letters))


_NUMBER = Shape()


def holds(a: Term, relation: str, b: Term) -> bool:
    """Return whether the relation holds, allowing for rounding. Raises Unreadable if the difference is too large."""
    if relation == "=":
        return _equal(a, b)
    close = a.value == b.value or _near(a.value, b.value)
    if relation == "!=":
        return not close
    if relation == "~":
        off = distance(a.value, b.value)
        return _equal(a, b) or off * 20 <= distance(b.value, 0) or off < _last_place(b, True)
    if relation in ("<=", ">="):
        return close or (a.value < b.value) == (relation == "<=")
    return not close and (a.value < b.value) == (relation == "<")


def explained(a: Term, b: Term, inner: bool) -> bool:
    """Return whether a relation that does not hold may still be meant correctly: a label, a unit conversion, a remark in
    brackets.

    `inner`: the left side is also the right side of an earlier relation.
    """
    if a.side.tokens[-1].text == "!" or _torn(a) or _label(a, inner) or _part(a, b) or _conversion(a, b):
        return True
    if a.plain and b.plain and (a.side.units or b.side.units):
        return True
    return any(side.side.doubtful or _mixed_units(side) or _aside(side) or _share(side) for side in (a, b))


def _near(a: Value, b: Value) -> bool:
    if not isinstance(a, float) and not isinstance(b, float):
        return False
    off = distance(a, b)
    return off <= 1e-9 * max(abs(float(a)), abs(float(b)), 1e-9)


def _equal(a: Term, b: Term) -> bool:
    """Return whether the values are equal, possibly after rounding up or down to the places of the plainer side."""
    if a.value == b.value or _near(a.value, b.value):
        return True
    off = distance(a.value, b.value)
    if any(one.plain and off < _last_place(one, _inexact(other)) for one, other in ((b, a), (a, b))):
        return True
    return _coarse(a, b) and off * 100 <= distance(b.value, 0)


def _inexact(a: Term) -> bool:
    """Return whether a whole number would be a rounding of this term."""
    if isinstance(a.value, float):
        return True
    return isinstance(a.value, Fraction) and (a.shape.divides or a.shape.percent or any(t.places > 0 for t in a.side.tokens))


def _last_place(a: Term, inexact: bool) -> Fraction:
    """Return one unit in the last decimal place of a plain number; 0 where a whole number must be exact."""
    places = max((t.places for t in a.side.tokens if t.kind == "n"), default=0)
    if places < 0 or a.shape.fractions or (places == 0 and not inexact and not a.shape.percent):
        return Fraction(0)
    return Fraction(1, 10 ** (places + 2 * a.shape.percent))


_ROUNDED = words("rounded")


def _coarse(a: Term, b: Term) -> bool:
    """Return whether a number in the terms is itself rounded, so that results from it are too: 3.14, 0.333, 1.732."""
    return any(t.places >= 3 or t.text in _ROUNDED for t in (*a.side.tokens, *b.side.tokens))


def _label(a: Term, inner: bool) -> bool:
    """Return whether a left side is a name rather than a computation: "Day 3 = 5 + 2", "5 apples = 5 * 2 = 10"."""
    if not a.plain or a.shape.letters:
        return False
    return bool(a.side.units) or a.shape.percent or a.side.prose or (a.shape.fractions and not inner)


def _part(a: Term, b: Term) -> bool:
    """Return whether the relation states the amount of a fraction of something: "so 3/4 = 15 apples"."""
    return a.shape.operations == 1 and a.shape.divides and 0 < a.value < 1 <= b.value and b.plain


_FACTORS = {2, 3, 4, 7, 8, 12, 16, 24, 30, 36, 52, 60, 144, 365, 1000, 1440, 1760, 3600, 5280, 10**4, 10**6}
_MEASURES = words("measures")


def _conversion(a: Term, b: Term) -> bool:
    """Return whether a unit conversion between the sides would explain the difference."""
    units = {*a.side.units, *b.side.units}
    if not a.value or not b.value or isinstance(a.value, float) or isinstance(b.value, float):
        return False
    ratio = abs(Fraction(a.value) / Fraction(b.value))
    ratio = max(ratio, 1 / ratio)
    return ratio == 100 or (ratio in _FACTORS and bool(units & _MEASURES) and not set(a.side.units) & set(b.side.units))


def _mixed_units(a: Term) -> bool:
    """Return whether a sum mixes units: "1 hour + 5 minutes"."""
    return len(set(a.side.units) & _MEASURES) > 1 and any(t.kind == "o" and t.text in "+-" for t in a.side.tokens)


def _torn(a: Term) -> bool:
    """Return whether a side starts with a binary operator, that is, its beginning was cut off."""
    tokens = a.side.tokens
    return len(tokens) > 1 and tokens[0].kind == "o" and not tokens[1].tight


def _aside(a: Term) -> bool:
    """Return whether an apparent product may be a remark: "8 (4-4-0) wheels"."""
    tokens = a.side.tokens
    return any(t.kind == "n" and after.text == "(" and not after.tight for t, after in pairwise(tokens))


def _share(a: Term) -> bool:
    """Return whether a percentage is added to or subtracted from a plain number: "60 - 10%"."""
    signs = sum(t.text == "%" for t in a.side.tokens)
    return 0 < signs < sum(t.kind == "n" for t in a.side.tokens) and any(t.text in ("+", "-") for t in a.side.tokens)


def second_reading(a: Term, relation: str, b: Term, letters: Mapping[str, Value] | None) -> bool:
    """Return whether the relation holds under another reading of its ambiguous parts."""
    one, other = a.shape, b.shape
    options = [PLAIN]
    if one.percent or other.percent:
        options.append(Reading(percent=1))
    if one.juxtaposed or other.juxtaposed:
        options += [Reading(mixed=False), Reading(mixed=False, strong=True)]
    if one.juxtaposed or other.juxtaposed or one.divides or other.divides:
        options.append(Reading(strong=True))
    if one.powers or other.powers:
        options.append(Reading(signed=True))
    if len(options) == 1:
        return False
    left, right = (_readings(term.side, options, letters) for term in (a, b))
    try:
        return any(holds(x, relation, y) for x in left for y in right)
    except Unreadable:
        return False


def _readings(side: Side, options: list[Reading], letters: Mapping[str, Value] | None) -> list[Term]:
    terms = []
    for option in options:
        with suppress(Unreadable):
            terms.append(term(side, option, letters))
    return terms


MAX_TEXT = 6_000
"""Maximum number of characters read per step; the rest is not checked."""
MAX_EFFORT = 20_000
"""Maximum number of tokens parsed per step, counting repetitions; later relations are not checked."""

Finding = Literal["true", "false", "unclear", "unread"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One relation between two expressions."""

    finding: Finding
    """Result of the check. "true": holds under a usual reading. "false": does not hold. "unclear": the values differ, but the
    context may explain it. "unread": not arithmetic that this package evaluates.
    """
    relation: str
    span: tuple[int, int]
    """Position in the text."""
    left: Value | None = None
    """Value of the left side under the plain reading, if it has one."""
    right: Value | None = None
    """Value of the right side under the plain reading, if it has one."""
    critique: str = ""
    """Explanation of a false or unclear claim."""


_HEDGE = re.compile(
    r"contradict|impossib|no solution|not true|false|inconsisten|incorrect|not possible|cannot|can't|doesn't|does not|"
    r"not equal|isn't|is not|≠|\\ne|not satisf|not valid|invalid|wrong|mistake|fail|whether|assum|suppos|check|"
    r"should|\bbase\b|\bmod\b|\\pmod|\\equiv|≡",
    re.IGNORECASE,
)
"""Matches steps that may legitimately write down something false."""
_UNUSUAL = re.compile(
    r"\bbase[ -]?(?:\$|\d|two|three|four|five|six|seven|eight|nine|ten|b\b)|_\{?\d+\}?\s*[+=]|binary|hexadecimal|octal|modulo|"
    r"\bmod\b|\\pmod|\\equiv|operation|clock|\\star|\\oplus|\\otimes|\\diamond|◇|⊕|@",
    re.IGNORECASE,
)
"""Matches problems in which digits or operators may have an unusual meaning."""


def excused(text: str, problem: str) -> bool:
    """Return whether the wording of a step or its problem explains every relation that does not hold."""
    return _HEDGE.search(text) is not None or _UNUSUAL.search(problem, 0, MAX_TEXT) is not None


def check(text: str, problem: str = "", notes: Notes | None = None) -> list[Claim]:
    """Return every written relation in `text`, in order. `problem` shows whether signs have their usual meaning.

    A relation with variables is true if it holds for all values and false if it holds for none. `notes` carries what is known
    of variables from step to step; this call adds to it.

    Cost is bounded: at most MAX_TEXT characters are read, numbers have bounds, and only + - * / ^ ! roots and binomials are
    evaluated. Never raises.
    """
    if len(text) > MAX_TEXT:
        # Keep whole sentences only: a number that is cut in two would have a wrong value.
        text = text[: max(text.rfind("\n", 0, MAX_TEXT), text.rfind(". ", 0, MAX_TEXT)) + 1]
    claims: list[Claim] = []
    effort = _Effort()
    before: tuple[str, Side | None] = ("", None)
    for chain in chains(text):
        ends = [sides(member) for member in chain.members]
        place = _Place(text, chain, notes, effort)
        claims += _chain(ends, place)
        before = _restated(before, ends, place, claims)
        if effort.left <= 0:
            break
    if notes is not None and notes.asked is not None:
        claims += _onward(notes, text)
    if any(claim.finding == "false" for claim in claims) and excused(text, problem):
        return [replace(claim, finding="unclear") if claim.finding == "false" else claim for claim in claims]
    return claims


def _onward(notes: Notes, text: str) -> Iterator[Claim]:
    for holds_on, (start, end), value in onward(notes, text):
        critique = (
            "" if holds_on else f"{text[start:end].strip()} is {say(value)}, the problem asks for {say(notes.asked or 0)}"
        )
        yield Claim("true" if holds_on else "false", "=", (start, end), value, notes.asked, critique)


class _Effort:
    """Remaining number of tokens that may be parsed for one step. Bounds the time that hostile text can take."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_EFFORT

    def spend(self, left: Side, right: Side, times: int) -> bool:
        self.left -= times * (len(left.tokens) + len(right.tokens) + 2)
        return self.left > 0


class _Place(NamedTuple):
    """A chain in the text of its step, with what is known of variables."""

    text: str
    chain: Chain
    notes: Notes | None
    effort: _Effort

    @property
    def values(self) -> Mapping[str, Value] | None:
        return self.notes.values if self.notes is not None else None

    def span(self, left: Side | Token, right: Side | Token) -> tuple[int, int]:
        return left.start + self.chain.offset, right.end + self.chain.offset

    def quote(self, start: int, end: int) -> str:
        return " ".join(self.text[start + self.chain.offset : end + self.chain.offset].split())


def _chain(ends: Sequence[tuple[Side | None, Side | None]], place: _Place) -> list[Claim]:
    """Return the claims of a = b = c, one per relation."""
    relations = place.chain.relations
    claims: list[Claim] = []
    terms: dict[int, Term | None] = {}
    for at, relation in enumerate(relations):
        left, right = ends[at][1], ends[at + 1][0]
        if left is None or right is None or not left.readable or not right.readable:
            claims.append(Claim("unread", relation.text, place.span(left or relation, right or relation)))
            continue
        if not place.effort.spend(left, right, 1):
            break
        a, b = (_term(side, terms, place.values) for side in (left, right))
        inner = at > 0 and relations[at - 1].text == "="
        if relation.value == SPOKEN and (a is None or a.plain or a.shape.operations == a.shape.divides):
            # "4/7 is equal to $24" states the amount of a fraction: only a computation is certainly a value.
            claims.append(Claim("unread", relation.text, place.span(left, right)))
            continue
        if a is not None and b is not None:
            claims.append(_numbers(a, relation.text, b, inner, place))
        elif relation.text == "=" and (a is not None or letters(left)) and (b is not None or letters(right)):
            claims.append(_variables(left, right, inner, place))
            if place.notes is not None and place.notes.values is not None and b is not None and len(left.tokens) == 1:
                place.notes.values.setdefault(left.tokens[0].text, b.value)
        else:
            claims.append(Claim("unread", relation.text, place.span(left, right)))
    return _repaired(claims)


def _term(side: Side, terms: dict[int, Term | None], known: Mapping[str, Value] | None) -> Term | None:
    """Evaluate a side, once even if it belongs to two relations. None if it cannot be evaluated."""
    key = id(side)
    if key not in terms:
        terms[key] = None
        with suppress(Unreadable):
            terms[key] = term(side, PLAIN, known)
    return terms[key]


def _restated(
    before: tuple[str, Side | None], ends: Sequence[tuple[Side | None, Side | None]], place: _Place, claims: list[Claim]
) -> tuple[str, Side | None]:
    """Compare "Total = 84" with the preceding "Total = 22 + 19 + 43"; return what to compare the next chain with."""
    name, relations = place.chain.members[0], place.chain.relations
    right = ends[1][0]
    if len(relations) > 1 or relations[0].text != "=" or right is None or not right.readable:
        return "", None
    if not name or any(t.kind not in "wv" for t in name):
        return "", None
    called = " ".join(t.text for t in name)
    if before[1] is not None and before[0] == called.lower() and len(right.tokens) <= 2:
        claims += _same(called, before[1], right, place.span(name[0], right), place)
    return called.lower(), right


def _same(called: str, computed: Side, stated: Side, span: tuple[int, int], place: _Place) -> list[Claim]:
    if not place.effort.spend(computed, stated, 30):
        return []
    try:
        a, b = term(computed, PLAIN, place.values), term(stated, PLAIN, place.values)
        if a.plain or not b.plain:
            return []
        if holds(a, "=", b) or second_reading(a, "=", b, place.values):
            return [Claim("true", "=", span, a.value, b.value)]
    except Unreadable:
        return []
    critique = f"{called} was {say(a.value)}, the step now says {place.quote(stated.start, stated.end)}"
    return [Claim("unclear" if explained(a, b, True) else "false", "=", span, a.value, b.value, critique)]


def _numbers(a: Term, relation: str, b: Term, inner: bool, place: _Place) -> Claim:
    span = place.span(a.side, b.side)
    try:
        if holds(a, relation, b):
            return Claim("true", relation, span, a.value, b.value)
        if not place.effort.spend(a.side, b.side, 30):
            return Claim("unread", relation, span)
        if second_reading(a, relation, b, place.values):
            return Claim("true", relation, span, a.value, b.value)
        doubt = explained(a, b, inner)
        if not inner and not doubt and place.chain.bullet is not None and place.chain.bullet.text == "-":
            negative = a.side._replace(tokens=(place.chain.bullet, *a.side.tokens))
            doubt = holds(term(negative, PLAIN, place.values), relation, b)
    except Unreadable:
        return Claim("unread", relation, span)
    return Claim("unclear" if doubt else "false", relation, span, a.value, b.value, _critique(a, relation, b, place))


def _critique(a: Term, relation: str, b: Term, place: _Place) -> str:
    shown, stated = (place.quote(t.side.start, t.side.end) for t in (a, b))
    if relation == "=":
        return f"{shown} is {say(a.value)}, the step says {stated}" + ("" if b.plain else f", which is {say(b.value)}")
    return f"{shown} {relation} {stated} does not hold: the left side is {say(a.value)}, the right side {say(b.value)}"


def _variables(left: Side, right: Side, inner: bool, place: _Place) -> Claim:
    """Check an equation with variables.

    An identity is true. An equation without a solution is false, and so is a later link of a = b = c whose sides are not
    identical.
    """
    span = place.span(left, right)
    if not place.effort.spend(left, right, 20):
        return Claim("unread", "=", span)
    try:
        found = agreement(left, right)
    except Unreadable:
        return Claim("unread", "=", span)
    if found == "always":
        return Claim("true", "=", span)
    if letters(left) == letters(right) and (found == "never" or (found == "sometimes" and inner)):
        shown, stated = place.quote(left.start, left.end), place.quote(right.start, right.end)
        critique = f"{shown} = {stated} holds for no value" if found == "never" else f"{shown} is not the same as {stated}"
        doubt = left.doubtful or right.doubtful or bool(left.units or right.units)
        return Claim("unclear" if doubt else "false", "=", span, critique=critique)
    if found == "sometimes" and place.notes is not None:
        agrees, critique = follow(place.notes, left, right, place.quote(left.start, right.end), place.text)
        return Claim("unread" if agrees is None else "true" if agrees else "false", "=", span, critique=critique)
    return Claim("unread", "=", span)


def _repaired(claims: list[Claim]) -> list[Claim]:
    """Downgrade false claims to unclear in a = b = c with equal ends: the slip in the middle did not reach the result."""
    values = [value for claim in claims for value in (claim.left, claim.right) if value is not None]
    if len(values) < 4 or values[0] != values[-1] or any(claim.relation != "=" for claim in claims):
        return claims
    return [
        replace(claim, finding="unclear") if claim.finding == "false" and claim.left is not None else claim for claim in claims
    ]


NOTHING = "no equation to check"


def judge_one(trajectory: Trajectory, sample: int = 0) -> Judgement:
    """Judge one trajectory. Never raises, whatever the text."""
    verdicts: list[Verdict] = []
    checked = 0
    notes = Notes()
    remember(notes, trajectory.problem)
    for index, text in enumerate(trajectory.texts):
        notes.step = index
        claims = check(text, trajectory.problem, notes)
        verdict = _verdict(index, claims)
        verdicts.append(verdict)
        checked += verdict.value != "neutral"
        if verdict.value == "incorrect":
            break
    return Judgement(
        status="ok",
        verdicts=tuple(verdicts),
        first_error=first_error_of(verdicts, len(trajectory.steps)),
        sample=sample,
        notes=(f"{checked} of {len(verdicts)} steps held an equation that could be checked",),
    )


def _verdict(index: int, claims: Sequence[Claim]) -> Verdict:
    for claim in claims:
        if claim.finding == "false":
            return Verdict(index, "incorrect", claim.critique)
    true = sum(claim.finding == "true" for claim in claims)
    if not true:
        return Verdict(index, "neutral", NOTHING)
    return Verdict(index, "correct", "the equation holds" if true == 1 else f"all {true} equations that could be checked hold")
