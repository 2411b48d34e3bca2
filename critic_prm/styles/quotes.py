"""Detect quotations: decide whether a span of a reply is copied from the trajectory and so is not a verdict."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

# A copy is recognized by the text shared around the span: this many characters of free text, or a whole step with half as
# many or with other text besides the verdict.
_SHARED = 12
_WINDOW = 240
# An adversarial text may repeat a verdict's words many times; at most this many occurrences are checked.
_PLACES = 40

# Characters that a copy may add, drop or change: white space, zero-width and direction marks, emphasis, quotation marks.
_LOOSE = re.compile(r"[\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff*_`\"'“”‘’«»「」>]+")
# Headings and verdicts after `squeeze`. They are no evidence of a copy: a step may imitate the format of a judge.
_FORM = re.compile(
    r"\x00|(?:step|paragraph|section|步骤|第)[#_]?\d{0,6}步?[:.)：]?|(?:(?:the|this)(?:step|action|paragraph)is)?\$?\\boxed\{[^{}]{0,40}\}\$?\.?"
    r"|isthe(?:step|action)correct\??(?:\(yes/no\)\?)?(?:yes|no)?|(?:final)?(?:verdict|answer):(?:correct|incorrect|neutral|yes|no)?"
)
_INTRODUCES = re.compile(
    r"(?:[:：,，]|\b(?:says?|reads?|writes?|states?|claims?|contains?|quotes?|quoted)|```\w{0,10})\Z", re.IGNORECASE
)


def squeeze(text: str) -> str:
    """Normalize `text` by removing everything that a copy may change."""
    return _LOOSE.sub("", text).casefold()


@lru_cache(maxsize=64)
def _squeezed(quotable: tuple[str, ...]) -> str:
    return "\x00" + "\x00".join(squeeze(text) for text in quotable) + "\x00"


def occurs(span: str, quotable: tuple[str, ...]) -> bool:
    """Whether the trajectory contains this text."""
    core = squeeze(span)
    # `squeeze` keeps braces: if the trajectory has none, no box in the reply can come from it.
    if "{" in core and not any("{" in text for text in quotable):
        return False
    return bool(core) and core in _squeezed(quotable)


def copied(text: str, start: int, end: int, quotable: tuple[str, ...]) -> bool:
    """Whether text[start:end] occurs in the trajectory together with enough of its surrounding text.

    A judge may use the words of a step for its own verdict, so equal words alone prove nothing; the free text around them must
    match too.
    """
    if not quotable or not occurs(text[start:end], quotable):
        return False
    before, after = squeeze(text[max(0, start - _WINDOW) : start]), squeeze(text[end : end + _WINDOW])
    return _shared(squeeze(text[start:end]), before, after, quotable)


@lru_cache(maxsize=512)
def _shared(core: str, before: str, after: str, quotable: tuple[str, ...]) -> bool:
    source = _squeezed(quotable)
    place = source.find(core)
    for _ in range(_PLACES):
        if place < 0:
            return False
        stop = place + len(core)
        left = _common(before[::-1], source[max(0, place - _WINDOW) : place][::-1])
        right = _common(after, source[stop : stop + _WINDOW])
        free = len(_FORM.sub("", source[place - left : stop + right]))
        whole = source[place - left - 1] == "\x00" and source[stop + right] == "\x00"
        if free >= (_SHARED // 2 if whole else _SHARED) or (whole and left + right >= _SHARED):
            return True
        place = source.find(core, place + 1)
    return False


def _common(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    if one.startswith(other):
        return len(other)
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))


def introduced(text: str, start: int) -> bool:
    """Whether the text before `start` introduces a quotation: a colon, a word like "says", the start of a code block."""
    return _INTRODUCES.search(text[max(0, start - 80) : start].rstrip()) is not None


Candidate = tuple[int, int, object]
"""A verdict in a reply: its start, its end, and its value."""

DOUBTFUL = "the last verdict also occurs in the trajectory and contradicts an earlier one: it may be a quotation"


def own(text: str, candidates: Sequence[Candidate], quotable: tuple[str, ...]) -> int | None:
    """Of several verdicts on the same item, the index in `candidates` of the judge's final one.

    This is the last candidate, unless it is introduced as a quotation. If the last candidate also occurs in the trajectory and
    an earlier one that does not occur there has a different value, neither is trusted (None): a step must not be able to
    influence its own verdict.
    """
    last = len(candidates) - 1
    if last < 1 or not quotable:
        return last
    suspect = [occurs(text[start:end], quotable) for start, end, _ in candidates]
    while last > 0 and suspect[last] and introduced(text, candidates[last][0]):
        last -= 1
    if suspect[last] and any(
        not copy and said != candidates[last][2] for copy, (_, _, said) in zip(suspect[:last], candidates, strict=False)
    ):
        return None
    return last
