"""Split a text into relation chains such as a = b = c."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from critic_prm.arithmetic.lexer import Token, lex

_HINT = re.compile(r"[=<>≈≠≤≥]|\\(?:le|ge|ne|lt|gt|approx|simeq)|equal")
_DIGIT = re.compile(r"\d")
_MARKS = (", ", ". ", "; ", "? ")
_CUT = re.compile(r"(?:[,;?]|(?<!\.)\.) ")


def _clauses(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of the clauses that contain a relation, so that prose costs nothing."""
    done = 0
    while (hint := _HINT.search(text, done)) is not None:
        before = max(_before(text, mark, done, hint.start()) for mark in _MARKS)
        cut = _CUT.search(text, hint.end())
        end = cut.start() + 1 if cut else len(text)
        yield (done if before < 0 else before + 2), end
        done = end


def _before(text: str, mark: str, start: int, end: int) -> int:
    """Return the last position of this mark before `end`, ignoring the end of an ellipsis; -1 if there is none."""
    at = text.rfind(mark, start, end)
    while at > start and mark == ". " and text[at - 1] == ".":
        at = text.rfind(mark, start, at)
    return at


class Chain(NamedTuple):
    """A relation chain a = b = c."""

    members: list[list[Token]]
    """The expressions between the relations."""
    relations: list[Token]
    bullet: Token | None
    """The sign before the chain, if it was read as a list marker."""
    offset: int
    """Start of the clause in the text; token positions are relative to it."""


def chains(text: str) -> Iterator[Chain]:
    """Yield all chains of `text`, in order. Text without a digit or a relation costs only a regex search."""
    if _HINT.search(text) is None or _DIGIT.search(text) is None:
        return
    for start, end in _clauses(text):
        yield from _chains(lex(text[start:end]), start)


def _chains(tokens: Sequence[Token], offset: int) -> list[Chain]:
    chains: list[Chain] = []
    members: list[list[Token]] = [[]]
    relations: list[Token] = []
    bullet: Token | None = None
    count = len(tokens)
    skip = 0
    for at, token in enumerate(tokens):
        if skip:
            skip -= 1
        elif token.kind == "r":
            relations.append(token)
            members.append([])
        elif token.kind == "b" or (token.kind == "l" and not (at + 1 < count and tokens[at + 1].kind == "r")):
            if relations:
                chains.append(Chain(members, relations, bullet, offset))
                relations = []
            members, bullet = [[]], None
        elif token.kind == "(" and not members[-1] and not relations and _item(tokens, at):
            skip = 2
        elif token.kind == "o" and not members[-1] and not relations and _bullet(tokens, at):
            bullet = token
        elif token.kind != "l":
            members[-1].append(token)
    if relations:
        chains.append(Chain(members, relations, bullet, offset))
    return chains


def _item(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a bracket starts a list number: "(1) 3 + 4 = 7"."""
    if at + 3 >= len(tokens) or (at and tokens[at - 1].kind not in "lb"):
        return False
    number, close, after = tokens[at + 1 : at + 4]
    return number.kind == "n" and number.text.isdigit() and close.kind == ")" and after.kind in "wnvf" and not after.tight


def _bullet(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a sign is a list marker: at the start of a clause and followed by a space."""
    token = tokens[at]
    if token.kind != "o" or token.text not in "-*+" or (at and tokens[at - 1].kind not in "lb"):
        return False
    return at + 1 < len(tokens) and not tokens[at + 1].tight
