"""Tokenize arithmetic in text, including LaTeX, currency and Unicode notation."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

Value: TypeAlias = int | Fraction | float

SPOKEN = 1
"""The `value` of an operator or relation that was written as a word."""
MAX_DIGITS = 60
"""Maximum number of digits; longer strings are not treated as numbers."""


class Token(NamedTuple):
    """One token. `kind` is a letter:

    n number, o operator, r relation, w word, v letter (a variable), f function (frac, sqrt, binom), ( and ) brackets, b
    boundary between clauses, l end of a line, x anything that makes its surroundings unreadable.
    """

    kind: str
    text: str
    start: int
    end: int
    tight: bool
    """Whether nothing, not even a space, precedes the token."""
    value: Value = 0
    places: int = 0
    """Decimal places as written; -1 for a Unicode fraction such as ½."""


_make: Callable[[tuple[str, str, int, int, bool, Value, int]], Token] = partial(tuple.__new__, Token)
"""Like `Token`, but without a Python call: most of the time of a step goes into its tokens."""
WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))


def words(name: str) -> frozenset[str]:
    """Return one of the word lists of words.toml."""
    return frozenset(WORDS["words"][name].split())


_COMMANDS = {name: frozenset(listing.split()) for name, listing in WORDS["commands"].items()}
_SILENT, _HUGGING, _ARROWS = _COMMANDS["silent"] | {"\\ "}, _COMMANDS["hugging"], _COMMANDS["arrows"]
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")
_OPEN = frozenset("([{（")
_SYMBOLS: dict[str, tuple[str, str]] = {
    **{letter: ("v", letter) for letter in _COMMANDS["letters"]},
    **{arrow: ("b", arrow) for arrow in _ARROWS},
    "\\{": ("(", "\\{"),
    "\\}": (")", "\\}"),
    **{
        spelling: (kind, symbol)
        for kind, section in (("f", "functions"), ("r", "relations"), ("o", "operators"))
        for symbol, spellings in WORDS[section].items()
        for spelling in spellings.split()
    },
}
"""The kind and the text of the token of each symbol and LaTeX command."""

_TOKENS: Sequence[Sequence[str]] = tomllib.loads(Path(__file__).with_name("tokens.toml").read_text("utf-8"))["tokens"]
_PLAIN = {"pi": "v", "degree": "w", "label": "w", "ordinal": "w", "arrow": "b", "hash": "b"}
"""The kind of the token for what needs no further look; all else makes its surroundings unreadable."""
_KINDS = ("", "", *(kind for kind, *_ in _TOKENS))
_TOKEN = re.compile(
    r"[ \t\u00a0\u2009\u202f~]*()(?:" + "|".join(f"{''.join(pattern)}()" for _, *pattern in _TOKENS) + ")", re.DOTALL
)
"""Spaces, then a token. The empty group before the token marks its start; the group after it tells which pattern matched."""


def lex(text: str) -> list[Token]:
    """Return all tokens of `text`, in order. Runs in linear time; spaces, `$` and LaTeX spacing produce no token.

    The content of calculator annotations (`<<3*4=12>>`) comes last, as separate clauses, so that the text around them stays
    intact.
    """
    tokens: list[Token] = []
    marks: list[tuple[int, str]] = []
    push, make = tokens.append, _make
    tight, closed, end, length = False, -1, 0, len(text)
    for match in _TOKEN.finditer(text):
        kind = _KINDS[match.lastindex or 0]
        start = match.start(1)
        if start != end:
            tight = False
        end = match.end()
        word = text[start:end]
        if kind == "word":
            name = len(word) == 1 or not (word.isalpha() or word.replace("-", "").isalpha())
            push(make(("v" if name else "w", word, start, end, tight, 0, 0)))
        elif kind == "whole" and end - start <= MAX_DIGITS:
            push(make(("n", word, start, end, tight, int(word), 0)))
        elif kind == "bracket":
            push(make(("(" if word in _OPEN else ")", word, start, end, tight, 0, 0)))
        elif kind == "sign":
            push(make((*_SYMBOLS[word], start, end, tight, 0, 0)))
        elif kind == "command":
            if word == "\\)":
                closed = end
            elif word == "\\(":
                if closed >= 0 and not text[closed:start].strip():
                    push(Token("b", word, start, end, tight))
                elif tokens and tokens[-1].text == "-" and closed == tokens[-1].start - 1:
                    tokens[-1] = tokens[-1]._replace(kind="b")  # "\\(a\\) - \\(b\\)": a dash between list items
            if word in _SILENT:
                tight = tight and word in _HUGGING
                continue
            push(make((*(_SYMBOLS.get(word) or ("x", word)), start, end, tight, 0, 0)))
        elif kind in ("number", "whole"):
            if end - start > MAX_DIGITS:
                push(Token("x", word, start, end, tight))
            else:
                value, places = _number(word)
                push(Token("n", word, start, end, tight, value, places))
        elif kind == "relation":
            if word == "!=" and tight and tokens and tokens[-1].kind in "n)":
                push(Token("o", "!", start, start + 1, True))  # 5!=120; 5!=6 may be meant as "not equal", see `claims`
                word = "="
            push(make((*_SYMBOLS[word], start, end, tight, 0, 0)))
        elif kind == "money":
            # Two dollar signs separated only by whitespace close one formula and open the next.
            if word == "$" and closed >= 0 and not text[closed:start].strip() and closed != start:
                push(Token("b", word, start, end, tight))
            closed, tight = end, False
            continue
        elif kind == "stop":
            if word == "," and tokens and start and end < length and text[start - 1].isdigit() and text[end].isdigit():
                push(Token("x", word, start, end, tight))
            else:
                push(Token("b", word, start, end, tight))
        elif kind == "line":
            push(Token("l", "\n", start, end, tight))
        elif kind == "calculator":
            marks.append((start + 2, word[2:-2]))
            continue
        elif kind == "vulgar":
            push(Token("n", word, start, end, tight, Fraction(*WORDS["fractions"][word]), -1))
        elif kind == "superscript":
            push(Token("o", "^", start, start, True))
            push(Token("n", word, start, end, True, int(word.translate(_SUPERSCRIPT)[:9]), 0))
        elif kind == "root":
            push(Token("f", "sqrt", start, end, tight))
        elif kind == "choose":
            n, _, k = word.partition("C")
            push(Token("n", word, start, end, tight, math.comb(int(n), int(k))))
        elif kind == "dots" and tight and tokens and tokens[-1].kind == "n" and tokens[-1].places > 0:
            continue  # 0.333... is 0.333
        elif kind == "equals":
            push(Token("r" if word != "equal" else "w", "=", start, end, tight, SPOKEN))
        elif kind == "stars":
            if tight and tokens and tokens[-1].kind in "n)v" and end < length and text[end] in "0123456789(-":
                push(Token("o", "^", start, end, tight))
        elif kind == "amp":
            tight = False
            continue
        else:
            push(Token(_PLAIN.get(kind, "x"), word, start, end, tight))
        tight = True
    for offset, inside in marks:
        push(Token("b", "<<", offset - 2, offset, False))
        tokens += [t._replace(start=t.start + offset, end=t.end + offset) for t in lex(inside)]
    return tokens


@lru_cache(maxsize=1024)
def _number(word: str) -> tuple[Value, int]:
    """Return the value and the number of decimal places written."""
    digits = re.sub(r"[,{}\\!]", "", word)
    if digits.isdigit():
        return int(digits), 0
    mantissa, _, exponent = digits.lower().partition("e")
    whole, _, part = mantissa.partition(".")
    shift = int(exponent or 0) - len(part)
    if abs(shift) > 300:
        return float("inf"), 0
    number = int(whole + part)
    if shift >= 0:
        return number * 10**shift, 0
    value = Fraction(number, 10**-shift)
    return value if value.denominator > 1 else value.numerator, -shift
