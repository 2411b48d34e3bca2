r"""Patterns for \boxed{...} in the spellings that models and JSON escaping produce."""

from __future__ import annotations

import re

# All spellings contain "oxed{", and a pattern that begins with plain letters is searched many times faster.
OPEN = r"oxed[ \t]?+\{[ \t$]{0,4}+(?:\\[a-z]{2,8}+[ \t]{0,2}+\{)?+[ \t]{0,4}+"
TAIL = r"\}{1,3}+(?P<tail>[ \t$*_`.。!)\]\\]{0,8}+)"
# \boxed, \\boxed, a bare boxed, and the backspace that JSON makes of \b.
_BEFORE = re.compile(r"(?:\\{1,2}b|\x08|(?<![a-z])b)\Z")


def begin(text: str, place: int) -> int | None:
    """The start of the box whose "oxed{" is at `place`; None if that is the end of another word."""
    before = _BEFORE.search(text, max(0, place - 3), place)
    return None if before is None else before.start()
