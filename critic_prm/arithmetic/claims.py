"""Find every written equation and inequality in a text, evaluate its sides and check it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from critic_prm.arithmetic.algebra import agreement, letters
from critic_prm.arithmetic.clauses import Chain, chains
from critic_prm.arithmetic.compare import Term, explained, holds, second_reading, term
from critic_prm.arithmetic.lexer import SPOKEN, Token
from critic_prm.arithmetic.notes import Notes, follow, onward
from critic_prm.arithmetic.parser import PLAIN
from critic_prm.arithmetic.sides import Side, sides
from critic_prm.arithmetic.values import Unreadable, Value, say

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
    if any(claim.finding == "false" for claim in claims) and (_HEDGE.search(text) or _UNUSUAL.search(problem, 0, MAX_TEXT)):
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
        try:
            terms[key] = term(side, PLAIN, known)
        except Unreadable:
            terms[key] = None
    return terms[key]


def _restated(
    before: tuple[str, Side | None],
    ends: Sequence[tuple[Side | None, Side | None]],
    place: _Place,
    claims: list[Claim],
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
            negative = replace(a.side, tokens=(place.chain.bullet, *a.side.tokens))
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
