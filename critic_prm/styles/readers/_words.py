"""Map verdict words to values, with closed word tables in English and Chinese."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

from critic_prm.data.judgement import VerdictValue

Words = Mapping[str, VerdictValue]

_SYNONYMS: Mapping[VerdictValue, str] = {
    "correct": "correct|right|true|valid|accurate|sound|is correct|fully correct|entirely correct|completely correct"
    "|no error|no errors|error-free|not incorrect|not wrong|✓|✔|✅"
    "|正确|正确的|是正确的|对|对的|是对的|没错|没有错误|无错误|无误|成立|合理|正確|正確的|對|沒有錯誤|無誤",
    "incorrect": "incorrect|wrong|false|invalid|inaccurate|erroneous|flawed|mistaken|unsound|is incorrect|is wrong|not correct"
    "|not valid|not right|✗|✘|❌"
    "|错误|错误的|是错误的|不正确|不正确的|错|错的|是错的|不对|不对的|有误|有错误|不成立|不合理|錯誤|錯誤的|不正確|不正確的|錯|不對|有誤|有錯誤",
    "neutral": "neutral|中性|中立|中性的|中立的",
}
_ANSWERS: Mapping[VerdictValue, str] = {"correct": "yes|是|是的", "incorrect": "no|否|不是|不"}

HEDGE = re.compile(
    r"[\s,;:!.，；：—–(-]{0,6}(?:(?:but|except|however|although|though|if|only|unless|mostly|partly|partially)\b|但|不过|除)",
    re.IGNORECASE,
)
"""What qualifies or revokes the verdict before it in the line."""

# Characters that may surround a verdict word without being part of it.
_AROUND = ' \t\r\n.!,;:。！，；：*_`$~\\"”'


def _table(*sources: Mapping[VerdictValue, str]) -> Words:
    return {word: value for source in sources for value, words in source.items() for word in words.split("|")}


VERDICT: Words = _table(_SYNONYMS)
"""Words for a verdict on a step."""

ANSWER: Words = _table(_SYNONYMS, _ANSWERS)
"""The same, plus answers to "is it correct?"."""


@lru_cache(maxsize=4096)
def plain(word: str) -> str:
    """Normalize a word: case, decoration, full-width letters and surrounding punctuation are removed."""
    if not word.isascii():
        word = unicodedata.normalize("NFKC", word).replace("\ufe0f", "")
    return " ".join(word.casefold().strip(_AROUND).split())


def value_of(word: str, table: Words) -> VerdictValue | None:
    """The value of a verdict word; None if the word is not a verdict."""
    return table.get(plain(word))
