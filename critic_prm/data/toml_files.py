"""TOML files of a person or a stranger -> tables; whatever is wrong with one is an error of one kind."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file of at most 1 MB. Raises OSError, and ValueError for all that is wrong with its content, also
    for what is nested too deeply and for numbers of thousands of digits."""
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    try:
        return tomllib.loads(content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
