"""Split a text into relation chains such as a = b = c, and the expressions on both sides of each relation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from critic_prm.arithmetic.lexer import SPOKEN, Token, lex, words

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
    member: list[Token] = []
    members = [member]
    relations: list[Token] = []
    bullet: Token | None = None
    count = len(tokens)
    skip = 0
    for at, token in enumerate(tokens):
        kind = token.kind
        if skip:
            skip -= 1
        elif kind in "nwvf)x":
            member.append(token)
        elif kind == "r":
            relations.append(token)
            member = []
            members.append(member)
        elif kind == "b" or (kind == "l" and not (at + 1 < count and tokens[at + 1].kind == "r")):
            if relations:
                chains.append(Chain(members, relations, bullet, offset))
                relations = []
            member, bullet = [], None
            members = [member]
        elif kind == "(" and not member and not relations and _item(tokens, at):
            skip = 2
        elif kind == "o" and not member and not relations and _bullet(tokens, at):
            bullet = token
        elif kind != "l":
            member.append(token)
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


_WORD_OPERATORS = {"plus": "+", "minus": "-", "times": "*", "percent": "%"}
_TWO_WORD_OPERATORS = {("multiplied", "by"): "*", ("divided", "by"): "/", ("added", "to"): "+"}
_FILLERS = words("fillers")
_SHORT_UNITS = words("short_units")
_UNIT_LETTERS = words("unit_letters")
_DOUBTFUL = words("doubtful")
"""Words that can change the meaning of the number before them. Such a side can confirm a claim but not refute it."""


class Side(NamedTuple):
    """One side of a relation."""

    tokens: tuple[Token, ...]
    """Tokens without words."""
    start: int
    end: int
    prose: bool
    """Whether prose precedes the expression."""
    units: tuple[str, ...]
    """Words that count or measure the numbers."""
    doubtful: bool
    """Whether the side can only confirm a claim, not refute it."""
    readable: bool
    """False for variables, functions and other parts without a value."""


def sides(member: Sequence[Token]) -> tuple[Side | None, Side | None]:
    """Return (first, last) expression of a chain member: the right side of the relation before it and the left side of the one
    after.
    """
    if not member:
        return None, None
    if len(member) == 1 and member[0].kind == "n":
        side = Side(tuple(member), member[0].start, member[0].end, False, (), False, True)
        return side, side
    pieces = _split(member)
    first, last = (pieces[0], pieces[-1]) if pieces else (None, None)
    if first is not None and first.prose:
        first = None
    if first is not None:
        # "= 360 divided by 5 is 72": it is unknown how much of a spoken calculation belongs to the relation before it.
        spoken = any(t.kind == "o" and t.value == SPOKEN and t.text != "%" for t in first.tokens)
        first = _balance(first._replace(doubtful=True) if spoken else first, left=False)
    if last is not None:
        if any(p is not None and any(t.kind == "o" for t in p.tokens) for p in pieces[:-1]):
            last = last._replace(doubtful=True)
        last = _balance(last, left=True)
    return first, last


def _word(tokens: Sequence[Token], at: int) -> bool:
    """Return whether the token is a word. A lone "a" between spaces is the article, not a variable."""
    token = tokens[at]
    if token.kind == "w":
        return True
    if token.kind != "v" or token.tight:
        return False
    if token.text in _UNIT_LETTERS and at and tokens[at - 1].kind == "n":
        after = tokens[at + 1] if at + 1 < len(tokens) else None
        return after is None or after.kind == "w" or (after.kind == "o" and after.text in "^/" and after.tight)
    if token.text not in "aAI":
        return False
    if at + 1 < len(tokens):
        return tokens[at + 1].kind == "w"
    return token.text == "a" and at > 0 and tokens[at - 1].kind == "w"


def _note(tokens: Sequence[Token], at: int) -> int:
    """Return the index after a bracket that contains only words, "(price per ticket)", if one starts at `at`; else `at`."""
    if tokens[at].kind != "(" or tokens[at].text != "(":
        return at
    end = at + 1
    while (
        end < len(tokens)
        and end < at + 12
        and (tokens[end].kind == "w" or (tokens[end].kind == "o" and tokens[end].text == "/"))
    ):
        end += 1
    return end + 1 if end > at + 1 and end < len(tokens) and tokens[end].kind == ")" else at


def _operand_ends(token: Token) -> bool:
    return token.kind in "n)v" or (token.kind == "o" and token.text in "%!")


def _operand_starts(token: Token) -> bool:
    return token.kind in "n(fv"


class _Piece:
    """A run of tokens that is being collected."""

    __slots__ = ("doubtful", "prose", "readable", "tokens", "units")

    def __init__(self, prose: bool) -> None:
        self.tokens: list[Token] = []
        self.units: list[str] = []
        self.prose, self.doubtful, self.readable = prose, False, True

    def side(self) -> Side | None:
        if not self.tokens:
            return None
        start, end = self.tokens[0].start, self.tokens[-1].end
        return Side(tuple(self.tokens), start, end, self.prose, tuple(self.units), self.doubtful, self.readable)


def _split(member: Sequence[Token]) -> list[Side | None]:
    """Split a member into runs of arithmetic. Unit words are dropped; prose separates runs.

    None at either end means that the member begins or ends with words that are not part of any arithmetic.
    """
    out: list[Side | None] = []
    piece = _Piece(False)
    at, count = 0, len(member)
    while at < count:
        token = member[at]
        kind = token.kind
        if kind in "n)x" or (kind == "o" and token.text != "/"):
            if kind == "x":
                piece.readable = False
            piece.tokens.append(token)
            at += 1
            continue
        plain = kind == "f" or (kind == "(" and at + 1 < count and member[at + 1].kind not in "wo")
        end = at if plain else _words_end(member, at, piece)
        if end == at:
            if token.kind == "v" and token.text in "xX" and _is_times(member, at, piece):
                token = token._replace(kind="o", text="*")
            piece.tokens.append(token)
            at += 1
            continue
        named = [t.text for t in member[at:end] if t.kind in "wv"]
        after = member[end] if end < count else None
        before = piece.tokens[-1] if piece.tokens else None
        while named and named[-1] in _FILLERS:
            named.pop()
        operator = _operator(named, before, after)
        if operator is not None and before is not None:
            text, used = operator
            _unit(piece, named[: len(named) - used], before)
            piece.tokens.append(Token("o", text, member[end - 1].start, member[end - 1].end, False, SPOKEN))
        elif before is not None and _operand_ends(before):
            tight = member[at].tight and not words_are_units(named) and before.kind in "n)"
            if after is None or not (_operand_starts(after) or _signed(member, end)):
                _unit(piece, named, before)
                piece.readable = piece.readable and not tight
                if after is not None and after.text == "^" and end + 1 < count:
                    end += 2
                elif after is None and any(word[0].isupper() for word in named[1:]):
                    # "= 5 * 4 apples Total cost = 12": a new sentence began and names the next quantity.
                    out.append(piece.side())
                    out.append(None)
                    return out
            else:
                _unit(piece, named, before)
                piece.readable = piece.readable and not tight
                out.append(piece.side())
                piece = _Piece(True)
        elif after is not None and (_operand_starts(after) or _signed(member, end)) and (before is None or before.kind == "("):
            glued = after.kind == "(" and after.tight
            if before is not None:
                out.append(piece.side())
            elif at == 0:
                out.append(None)
            piece = _Piece(True)
            piece.readable = not glued
        elif before is None and after is None:
            out.append(None)
            return out
        elif before is None or named:
            piece.readable = False
        at = end
    if piece.tokens or not out:
        out.append(piece.side())
    return out


def words_are_units(named: Sequence[str]) -> bool:
    """Return whether letters attached to a number ("5km") are a unit rather than a product of variables ("5ab")."""
    return bool(named) and (named[0] in _SHORT_UNITS or len(named[0]) > 3)


def _words_end(member: Sequence[Token], at: int, piece: _Piece) -> int:
    """Return the index after the words that start here, including "/hour" and "(per ticket)"."""
    end = at
    while end < len(member):
        token = member[end]
        if _word(member, end):
            end += 1
        elif (
            token.kind == "o"
            and token.text == "/"
            and end + 1 < len(member)
            and (member[end + 1].kind == "w" or (end > at and member[end + 1].text in _UNIT_LETTERS))
            and (end > at or token.tight)
        ):
            end += 2
        elif token.kind == "(" and (end > at or piece.tokens) and _note(member, end) > end:
            end = _note(member, end)
        else:
            break
    return end


def _is_times(member: Sequence[Token], at: int, piece: _Piece) -> bool:
    """Return whether an x is a multiplication sign: 3 x 4, 3x4, 5 hours x $4."""
    if at + 1 >= len(member) or not piece.tokens or not _operand_ends(piece.tokens[-1]):
        return False
    after = member[at + 1]
    if after.kind != "n" and not (after.kind == "(" and not after.tight and not member[at].tight):
        return False
    return member[at].tight == after.tight or not member[at].tight


def _signed(member: Sequence[Token], at: int) -> bool:
    """Return whether a sign at `at` belongs to the number after it: "is -5 + 8"."""
    if at + 1 >= len(member) or member[at].kind != "o" or member[at].text not in "+-":
        return False
    return member[at + 1].tight and not member[at].tight


def _operator(named: Sequence[str], before: Token | None, after: Token | None) -> tuple[str, int] | None:
    """Return the operator that the words end in and how many words it takes."""
    if not named or before is None or not _operand_ends(before):
        return None
    if named[-1] == "percent":
        return "%", 1
    if after is None or not _operand_starts(after):
        return None
    if named[-1] in _WORD_OPERATORS:
        return _WORD_OPERATORS[named[-1]], 1
    if tuple(named[-2:]) in _TWO_WORD_OPERATORS:
        return _TWO_WORD_OPERATORS[named[-2], named[-1]], 2
    if (
        named[-1] == "of"
        and (before.text in "%)}" or before.value == 0 or not isinstance(before.value, int))
        and len(named) == 1
    ):
        return "*", 1
    return None


def _unit(piece: _Piece, named: Sequence[str], before: Token) -> None:
    if not named:
        return
    piece.units.append(named[0].lower().rstrip("s"))
    if named[0] in _DOUBTFUL:
        piece.doubtful = True


def _balance(side: Side, left: bool) -> Side | None:
    """Remove brackets whose partner is across the relation: "(3 + 4 = 7)" gives 3 + 4 and 7."""
    tokens = side.tokens
    cut = 0 if left else len(tokens)
    opened: list[int] = []
    for at, token in enumerate(tokens):
        if token.kind == "(":
            opened.append(at)
        elif token.kind == ")":
            if opened:
                opened.pop()
            elif not left:
                cut = at
                break
            else:
                cut = at + 1
    if not opened and cut == (0 if left else len(tokens)):
        return side
    readable = side.readable
    if left:
        if opened:
            at = opened[-1]
            if at > cut and (tokens[at - 1].kind in "nvf)x" or tokens[at - 1].kind == "o"):
                readable = False
            cut = max(cut, at + 1)
        elif cut:
            readable = readable and cut < len(tokens) and tokens[cut].kind == "n"
        tokens = tokens[cut:]
    else:
        opened = [at for at in opened if at < cut]
        tokens = tokens[:cut]
        if opened:
            if opened[0] == len(tokens) - 1:
                tokens = tokens[:-1]
            else:
                readable = False
    if not tokens:
        return None
    return Side(tokens, tokens[0].start, tokens[-1].end, side.prose or (left and cut > 0), side.units, side.doubtful, readable)
