"""What a heading "Step 3:" or "**Paragraph 0.**" looks like at the start of a line, as the readers of sections share it."""

from __future__ import annotations

import re

# Quantifiers are bounded or possessive, so that no text can make matching slow. For re.VERBOSE | re.MULTILINE |
# re.IGNORECASE.
HEADING = r"""
    ^[ \t]{0,8}+ (?:[-+•*\#]{1,6}+[ \t]{0,4}+)?+ (?:\d{1,4}+[.)][ \t]{1,4}+)?+ [*_]{0,3}+
    (?:(?:critique|analysis|review|evaluation)[ \t]of[ \t])?+ (?:the[ \t])?+
    (?:steps?|paragraphs?|section|步骤|第) [ \t_\#]{0,3}+
    (?P<first>\d{1,6}+) (?:[ \t]?(?:-|–|—|to|through|and|至|到)[ \t]?(?:step[ \t])?+(?P<last>\d{1,6}+))?+
    [ \t]?+[步段]?+ [ \t]?+ [*_]{0,3}+ [ \t]?+ (?:\([^()\n]{0,80}+\)[ \t]?+[*_]{0,3}+)?+
    (?:[:：.)、]|[–—-][ \t]|[ \t]{0,4}\r?$|(?<=[*_])) [*_]{0,3}+
"""
FLAGS = re.IGNORECASE | re.MULTILINE | re.VERBOSE
_HEADING = re.compile(HEADING, FLAGS)


def parts(text: str, end: int, base: int) -> dict[int, str]:
    """The text under each heading before `end`, by 0-based step; a step with several headings keeps the last one's text."""
    found = list(_HEADING.finditer(text, 0, end))
    stops = [match.start() for match in found[1:]] + [end]
    return {
        int(match.group("first")) - base: text[match.end() : stop].strip() for match, stop in zip(found, stops, strict=False)
    }


def last_heading(text: str) -> int:
    """Where the last heading ends, 0 without one."""
    place = 0
    for match in _HEADING.finditer(text):
        place = match.end()
    return place
