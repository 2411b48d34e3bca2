"""Recognize verdict words, boxes and section headings; shared by the readers."""

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
    "corrected": "corrected|self-corrected|later corrected|corrected later|withdrawn|retracted|已更正|已纠正|已修正",
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


# All spellings contain "oxed{", and a pattern that begins with plain letters is searched many times faster.
OPEN = r"oxed[ \t]?+\{[ \t$]{0,4}+(?:\\[a-z]{2,8}+[ \t]{0,2}+\{)?+[ \t]{0,4}+"
TAIL = r"\}{1,3}+(?P<tail>[ \t$*_`.。!)\]\\]{0,8}+)"
# \boxed, \\boxed, a bare boxed, and the backspace that JSON makes of \b.
_BEFORE = re.compile(r"(?:\\{1,2}b|\x08|(?<![a-z])b)\Z")


def begin(text: str, place: int) -> int | None:
    """The start of the box whose "oxed{" is at `place`; None if that is the end of another word."""
    before = _BEFORE.search(text, max(0, place - 3), place)
    return None if before is None else before.start()


# Quantifiers are bounded or possessive, so that no text can make matching slow. For re.VERBOSE | re.MULTILINE |
# re.IGNORECASE.
_HEADING = r"""
    ^[ \t]{0,8}+ (?:[-+•*\#]{1,6}+[ \t]{0,4}+)?+ (?:\d{1,4}+[.)][ \t]{1,4}+)?+ [*_]{0,3}+
    (?:(?:critique|analysis|review|evaluation)[ \t]of[ \t])?+ (?:the[ \t])?+
    (?:steps?|paragraphs?|section|步骤|第) [ \t_\#]{0,3}+
    (?P<first>\d{1,6}+) (?:/\d{1,6}+)?+ (?:[ \t]?(?:-|–|—|to|through|and|至|到)[ \t]?(?:step[ \t])?+(?P<last>\d{1,6}+))?+
    [ \t]?+[步段]?+ [ \t]?+ [*_]{0,3}+ [ \t]?+ (?:\([^()\n]{0,80}+\)[ \t]?+[*_]{0,3}+)?+
    (?:[:：.)、]|[–—-][ \t]|[ \t]{0,4}\r?$|(?<=[*_])) [*_]{0,3}+
"""
_ANY = re.compile(_HEADING, re.IGNORECASE | re.MULTILINE | re.VERBOSE)
# "step 7." at the start of a line is the end of a sentence with a line break before it.
_PROSE = re.compile(r"\s*(?:the )?(?:step|paragraph|section)s? [^:：]*\.")


def headings(text: str, end: int | None = None) -> list[re.Match[str]]:
    """The headings of `text` (up to `end`), in order. The groups `first` and `last` are the numbers as written."""
    found = _ANY.finditer(text) if end is None else _ANY.finditer(text, 0, end)
    return [match for match in found if not _PROSE.match(match.group())]


# Line endings other than these mean that a sentence was broken before "Step 2:" or "Verdict: correct".
_ENDS = frozenset(".!?。！？:：;}])$*_`|>\"'”’…")
_BLANK_LINE = re.compile(r"\n[ \t]*\n[ \t]*\Z")


def ends(before: str) -> bool:
    """Whether the text before a line ends a sentence or a paragraph, so that the line starts something new."""
    said = before.rstrip()
    return not said or said[-1] in _ENDS or _BLANK_LINE.search(before) is not None


def parts(text: str, end: int, base: int) -> dict[int, str]:
    """The text under each heading before `end`, by 0-based step. If a step has several headings, the last one's
    text is used."""
    found = headings(text, end)
    stops = [match.start() for match in found[1:]] + [end]
    return {
        int(match.group("first")) - base: text[match.end() : stop].strip() for match, stop in zip(found, stops, strict=False)
    }


def last_heading(text: str) -> int:
    """The end of the last heading, 0 if there is none."""
    found = headings(text)
    return found[-1].end() if found else 0
