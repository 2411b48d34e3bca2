"""Text to claims: every written equation and inequality, with what each side comes to and whether it holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from critic_prm.arithmetic.compare import Term, explained, holds, term
from critic_prm.arithmetic.lexer import Token, lex
from critic_prm.arithmetic.parser import PLAIN
from critic_prm.arithmetic.sides import Side, sides
from critic_prm.arithmetic.values import Unreadable, Value, say

MAX_TEXT = 8_000
"""Characters of one step that are looked at; what lies beyond is not checked."""

Finding = Literal["true", "false", "unclear", "unread"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One relation between two expressions.

    `finding`: it holds; it does not; the values differ, but what stands around them may explain it; no arithmetic. `span` is
    where it stands in the text. `left` and `right` are the values under the plain reading, None where there is none.
    """

    finding: Finding
    relation: str
    span: tuple[int, int]
    left: Value | None = None
    right: Value | None = None
    critique: str = ""


_HINT = re.compile(r"[=<>≈≠≤≥]|\\(?:le|ge|ne|lt|gt|approx|simeq)|equal")
_DIGIT = re.compile(r"\d")
_HEDGE = re.compile(
    r"contradict|impossib|no solution|not true|false|inconsisten|incorrect|not possible|cannot|can't|doesn't|does not|"
    r"not equal|isn't|is not|≠|\\ne|not satisf|not valid|invalid|wrong|mistake|fail|whether|assum|suppos|\bif\b|check|would|should|"
    r"\bbase\b|\bmod\b|\\pmod|\\equiv|≡",
    re.IGNORECASE,
)
"""Steps that may well write down what is not so."""
_UNUSUAL = re.compile(
    r"\bbases?[ -]|binary|hexadecimal|octal|modulo|\bmod\b|\\pmod|\\equiv|operation|\bdefine|clock|\\star|\\oplus|\\otimes|"
    r"\\diamond|◇|⊕|@",
    re.IGNORECASE,
)
"""Problems in which digits or signs may not mean what they usually do."""


def check(text: str, problem: str = "", letters: Mapping[str, Value] | None = None) -> list[Claim]:
    """Every written relation in `text`, in order. `problem` tells whether the usual meaning of the signs can be relied on.

    Bounded: at most MAX_TEXT characters are read, numbers have bounds, and nothing is evaluated but + - * / ^ ! roots and
    binomials. Never raises.
    """
    text = text[:MAX_TEXT]
    if _HINT.search(text) is None or _DIGIT.search(text) is None:
        return []
    hedged = bool(_HEDGE.search(text)) or bool(problem and _UNUSUAL.search(problem))
    claims: list[Claim] = []
    for members, relations in _chains(lex(text)):
        ends = [sides(member) for member in members]
        for at, relation in enumerate(relations):
            claims.append(_claim(ends[at][1], relation, ends[at + 1][0], at > 0, hedged, text, letters))
    return claims


def _chains(tokens: Sequence[Token]) -> list[tuple[list[list[Token]], list[Token]]]:
    """Clauses that hold a relation, each as its members and the relations between them."""
    chains: list[tuple[list[list[Token]], list[Token]]] = []
    members: list[list[Token]] = [[]]
    relations: list[Token] = []
    count = len(tokens)
    for at, token in enumerate(tokens):
        if token.kind == "r":
            relations.append(token)
            members.append([])
        elif token.kind == "b" or (token.kind == "l" and not (at + 1 < count and tokens[at + 1].kind == "r")):
            if relations:
                chains.append((members, relations))
                relations = []
            members = [[]]
        elif token.kind != "l" and not (not members[-1] and not relations and _bullet(tokens, at)):
            members[-1].append(token)
    if relations:
        chains.append((members, relations))
    return chains


def _bullet(tokens: Sequence[Token], at: int) -> bool:
    """Whether a sign is the mark of a list item: at the start of a clause, with a space behind it."""
    token = tokens[at]
    if token.kind != "o" or token.text not in "-*+" or (at and tokens[at - 1].kind not in "lb"):
        return False
    return at + 1 < len(tokens) and tokens[at + 1].start > token.end


def _claim(
    left: Side | None,
    relation: Token,
    right: Side | None,
    inner: bool,
    hedged: bool,
    text: str,
    letters: Mapping[str, Value] | None,
) -> Claim:
    if left is None or right is None or not left.readable or not right.readable:
        span = (left.start if left else relation.start, right.end if right else relation.end)
        return Claim("unread", relation.text, span)
    span = (left.start, right.end)
    try:
        a, b = term(left, PLAIN, letters), term(right, PLAIN, letters)
        if holds(a, relation.text, b):
            return Claim("true", relation.text, span, a.value, b.value)
        doubt = hedged or explained(a, relation.text, b, inner, letters)
    except Unreadable:
        return Claim("unread", relation.text, span)
    return Claim("unclear" if doubt else "false", relation.text, span, a.value, b.value, _critique(a, relation.text, b, text))


def _critique(a: Term, relation: str, b: Term, text: str) -> str:
    shown, stated = (" ".join(text[t.side.start : t.side.end].split()) for t in (a, b))
    if relation == "=":
        return f"{shown} is {say(a.value)}, the step says {stated}" + ("" if b.plain else f", which is {say(b.value)}")
    return f"{shown} {relation} {stated} does not hold: the left side is {say(a.value)}, the right side {say(b.value)}"
