"""Recognize a critic and its data in the wrong order on the command line."""

from __future__ import annotations

from pathlib import Path

from critic_prm.critics.open import kind_of
from critic_prm.data.records.reading import HUB
from critic_prm.errors import UsageError


def check_order(command: str, critic: str | Path, *data: str) -> None:
    """Raise UsageError, with the right command, if `critic` is data and one of `data` is a critic."""
    first = str(critic)
    if kind_of(first) not in (None, "judge"):
        return
    other = next((one for one in data if kind_of(one) in ("verifier", "local", "file")), None)
    if other is not None and _is_data(first):
        rest = " ".join((first, *(one for one in data if one != other)))
        raise UsageError(f"{first} is not a critic, but {other} is; run: critic-prm {command} {other} {rest}")


def _is_data(name: str) -> bool:
    from critic_prm.evaluate.benchmarks import benchmarks

    return Path(name).exists() or name.startswith(HUB) or name.partition(":")[0].replace("-", "_") in benchmarks()
