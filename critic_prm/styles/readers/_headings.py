"""Find section headings such as "Step 3:" or "**Paragraph 0.**" at line starts; shared by the readers."""

from __future__ import annotations

import re

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
