"""Say what a file or folder is that was given where something else is expected, and which command was meant."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from critic_prm.errors import InputError

Wanted = Literal["solutions", "labels", "training set", "verifier", "benchmark"]


def mistaken(path: str | Path, wanted: Wanted) -> InputError | None:
    """The error for a path that is something else than `wanted`; None if it is not among the kinds in mistaken.toml."""
    kind = kind_of(path)
    if kind is None:
        return None
    command = kind.get(wanted)
    place = Path(path)
    fix = "" if command is None else "run: " + command.format(path=place, folder=place.parent)
    return InputError(str(path), f"this is {kind['name']}, not {_article(wanted)}", fix)


def kind_of(path: str | Path) -> Mapping[str, Any] | None:
    """The first kind in mistaken.toml that a file or folder is; None if it is none of them or cannot be read."""
    place = Path(path)
    if place.is_dir():
        return next((kind for kind in _kinds() if "marker" in kind and (place / kind["marker"]).is_file()), None)
    if not place.is_file():
        return None
    from critic_prm.data.records.reading import read_records

    try:
        row = next(read_records(place)).data
    except (InputError, OSError):
        return None
    return next((kind for kind in _kinds() if _fits(row, kind.get("fields"))), None)


def _fits(row: Any, fields: Sequence[str] | None) -> bool:
    """Whether a row has all of these fields."""
    return bool(fields) and isinstance(row, Mapping) and all(field in row for field in fields or ())


@cache
def _kinds() -> Sequence[Mapping[str, Any]]:
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    return tables["kind"]


def _article(wanted: Wanted) -> str:
    return wanted if wanted.endswith("s") else f"a {wanted}"
