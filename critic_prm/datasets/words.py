"""Split text into words; problems can be masked for names and numbers."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

NUMBER, NAME, LETTER = "#", "@", "v"

_TOKEN = re.compile(
    r"\\[a-zA-Z]+|\d+(?:[.,]\d+)*|[^\W\d_]{2,}(?:-[^\W\d_]{2,})+|[^\W\d_]+(?:['’][^\W\d_]+)?|[-+*/=^<>%!|\[\]()]"
)
# the same for lower-case text, with compounds split: a hyphen between two words is not a minus
_WORD = re.compile(r"\\[a-z]+|\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)?|[+*/=^<>%!|\[\]()]|(?<![^\W\d_])-|-(?![^\W\d_]{2})")
_DELIMITERS = re.compile(
    r"\\[\[\]()]|\\(?:left|right|text|mathrm|mathbf|displaystyle|quad|qquad|[,;!])(?![a-zA-Z])"
    r"|(?<=\d)-(?=[^\W\d_]{2})"  # the hyphen of 3-hour is not a minus
)
_NUMERALS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion
half third quarter fourth fifth sixth seventh eighth ninth tenth first second once twice thrice double triple dozen
"""
_NUMERAL = frozenset(_NUMERALS.split())
# pronouns that may change along with a name
_PRONOUNS = {
    **dict.fromkeys(("he", "she", "himself", "herself"), "he"),
    **dict.fromkeys(("his", "her", "hers", "him"), "his"),
}


def words(text: str) -> list[str]:
    """Words, numbers, LaTeX commands and operators of a text, case-folded, in order; punctuation and braces are dropped."""
    return _WORD.findall(_plain(text).casefold()) or text.split()


def masked(problem: str) -> list[str]:
    """The words of a problem with numbers, capitalised words and single letters masked, so that renaming changes nothing.

    Runs of one mask count once: "Mary Ann" and "Joe" are both one name, "twenty-five" and 25 both one number.
    """
    tokens = _tokens(problem)
    names = [_is_name(token) for token in tokens if token[0].isalpha() and len(token) > 1]
    if sum(names) > 0.8 * len(names):  # all capitals, or too short to tell: masking would leave nothing
        tokens = [token.casefold() for token in tokens]
    kept: list[str] = []
    # "Hye-jin" is one name; "Twenty-six" and "three-hour" are split into their parts
    parts = (part for token in tokens for part in ([token] if _is_name(token) else _parts(token)))
    for part in parts:
        mask = _mask(part)
        if mask not in (NUMBER, NAME) or not kept or kept[-1] != mask:
            kept.append(mask)
    return kept or words(problem)


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(_plain(text))


def _plain(text: str) -> str:
    return _DELIMITERS.sub(" ", text if text.isascii() else unicodedata.normalize("NFKC", text))


def _parts(token: str) -> list[str]:
    return token.split("-") if len(token) > 1 and token[0] != "-" else [token]


@lru_cache(1 << 16)
def _is_name(token: str) -> bool:
    return token[0].isupper() and token.partition("-")[0].casefold() not in _NUMERAL


@lru_cache(1 << 16)
def _mask(token: str) -> str:
    plain = token.casefold()
    if token[0].isdigit() or plain in _NUMERAL:
        return NUMBER
    if token[0] == "\\":
        return token
    if plain in _PRONOUNS:
        return _PRONOUNS[plain]
    if token[0].isupper():
        return NAME
    return LETTER if len(token) == 1 and token.isalpha() and plain != "a" else plain
