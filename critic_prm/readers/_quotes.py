"""A span of a reply + what the trajectory says -> whether the reply only copies it there; a quotation is never a verdict."""

from __future__ import annotations

import re
from functools import lru_cache

# A copy is told from a judge's own words by what surrounds it: this many letters, digits or signs shared on one side.
_CONTEXT = 12
_WINDOW = 4 * _CONTEXT

# Characters that a copy may add, drop or change: white space, zero-width and direction marks, emphasis, quotation marks.
_LOOSE = re.compile(r"[\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff*_`\"'“”‘’«»「」>]+")
_INTRODUCES = re.compile(r"(?:[:：,，]|\b(?:says?|reads?|writes?|states?|claims?|contains?|quotes?|quoted))\Z", re.IGNORECASE)


def squeeze(text: str) -> str:
    """`text` without what a copy may change."""
    return _LOOSE.sub("", text).casefold()


@lru_cache(maxsize=512)
def _squeezed(quotable: tuple[str, ...]) -> str:
    return "\x00".join(squeeze(text) for text in quotable)


def occurs(span: str, quotable: tuple[str, ...]) -> bool:
    """Whether the trajectory says this anywhere."""
    core = squeeze(span)
    return bool(core) and core in _squeezed(quotable)


def copied(span: str, before: str, after: str, quotable: tuple[str, ...], between: str = "") -> bool:
    """Whether `span`, together with enough of what stands `before` or `after` it, stands in the trajectory.

    A judge may use the very words of a step for its own verdict, so equal words alone prove nothing: what surrounds them
    must be the same too. The surroundings must be the judge's free text; headings and other verdicts are left out of them
    by the caller, because a step may guess those. `between` is such a heading, between the span and `after`.
    """
    if not quotable:
        return False
    core, source = squeeze(span), _squeezed(quotable)
    if not core or core not in source:
        return False
    left, right = squeeze(before[-_WINDOW:])[-_CONTEXT:], squeeze(after[:_WINDOW])[:_CONTEXT]
    if len(left) == _CONTEXT and left + core in source:
        return True
    return len(right) == _CONTEXT and core + squeeze(between) + right in source


def introduced(text: str, start: int) -> bool:
    """Whether what stands before `start` announces a quotation: a colon, or a word like "says"."""
    return _INTRODUCES.search(text[max(0, start - 80) : start].rstrip()) is not None
