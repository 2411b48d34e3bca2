"""A row that is no trajectory -> what it is, as far as its fields tell, and what to do instead."""

from __future__ import annotations

from typing import Any

_JUDGE = "a judge's replies or scores without the solutions they are about"
_KNOWN: tuple[tuple[tuple[str, ...], str, str], ...] = ()


def refusal(row: Any) -> tuple[str, str]:
    """What the row is and what to do about it."""
    if not isinstance(row, dict):
        return f"a row of this file is no object but {str(row)[:40]!r}", "a row is a JSON object with a problem and its steps"
    for keys, what, mend in _KNOWN:
        if all(key in row for key in keys):
            return f"this is {what}", mend
    shown = ", ".join(sorted(row)[:8]) + (", ..." if len(row) > 8 else "")
    return f"no known format has the fields {shown}", 'a native row has "problem" (text) and "steps" (a list of texts)'
