"""What a heading "Step 3:" or "**Paragraph 0.**" looks like at the start of a line, as the readers of sections share it."""

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
# "step 7." at the start of a line is the end of a sentence that was broken there.
_PROSE = re.compile(r"\s*(?:the )?(?:step|paragraph|section)s? [^:：]*\.")


def headings(text: str, end: int | None = None) -> list[re.Match[str]]:
    """The headings of `text` (up to `end`), in order; their groups `first` and `last` are numbers as they were written."""
    found = _ANY.finditer(text) if end is None else _ANY.finditer(text, 0, end)
    return [match for match in found if not _PROSE.match(match.group())]


# A line of prose that was broken before "Step 2:" or "Verdict: correct" does not end like this.
_ENDS = frozenset(".!?。！？:：;}])$*_`|>\"'”’…")
_BLANK_LINE = re.compile(r"\n[ \t]*\n[ \t]*\Z")


def ends(before: str) -> bool:
    """Whether what stands before a line ends a sentence or a paragraph, so that the line begins something new."""
    said = before.rstrip()
    return not said or said[-1] in _ENDS or _BLANK_LINE.search(before) is not None


def parts(text: str, end: int, base: int) -> dict[int, str]:
    """The text under each heading before `end`, by 0-based step; a step with several headings keeps the last one's text."""
    found = headings(text, end)
    stops = [match.start() for match in found[1:]] + [end]
    return {
        int(match.group("first")) - base: text[match.end() : stop].strip() for match, stop in zip(found, stops, strict=False)
    }


def last_heading(text: str) -> int:
    """Where the last heading ends, 0 without one."""
    found = headings(text)
    return found[-1].end() if found else 0
