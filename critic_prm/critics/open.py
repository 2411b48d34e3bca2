"""Open a critic by name: the rule checker, a verifier folder, a judge, rollouts, or a TOML file with a cascade or mixture."""

from __future__ import annotations

from collections.abc import Mapping, Set
from importlib import import_module
from pathlib import Path
from typing import Any

from critic_prm.data.critic import Critic, Judging
from critic_prm.data.toml_files import read_toml
from critic_prm.data.trust import Origin
from critic_prm.errors import InputError, UsageError
from critic_prm.registry import load

KINDS = ("cascade", "mixture")


def open_file(path: str | Path, judging: Judging) -> Critic:
    """Open the critic in a TOML file with one table, [cascade] or [mixture]. Paths in it are relative to it. Raises InputError
    for a file that cannot be read or names what it may not, and UsageError for what does not fit."""
    try:
        tables = read_toml(path)
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"this critic cannot be read: {error}", f"it is TOML with a table {_tables()}") from None
    kinds = [kind for kind in KINDS if isinstance(tables.get(kind), dict)]
    if len(kinds) != 1 or len(tables) > 1:
        raise UsageError(f"{path} has the tables {', '.join(tables) or 'none'}; a critic has one, {_tables()}")
    try:
        origin = Origin(path, judging.trust)
        critic: Critic = import_module(f"critic_prm.critics.{kinds[0]}").from_table(tables[kinds[0]], origin, judging)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    except RecursionError:
        raise InputError(str(path), "this critic contains itself", "name other critics in it") from None
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InputError(str(path), f"a value is of the wrong kind: {error}", "see the example in the documentation") from None
    return critic


def _tables() -> str:
    return " or ".join(f"[{kind}]" for kind in KINDS)


def check(table: Mapping[str, Any], name: str, needed: Set[str], allowed: Set[str]) -> None:
    """Raises UsageError for keys that are missing or mean nothing."""
    if missing := needed - table.keys():
        raise UsageError(f"[{name}] lacks {', '.join(sorted(missing))}")
    if unknown := table.keys() - needed - allowed:
        known = ", ".join(sorted(needed | allowed))
        raise UsageError(f"[{name}] has no {', '.join(sorted(unknown))}; there are: {known}")
