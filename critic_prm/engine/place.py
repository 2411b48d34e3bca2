"""Find the cache file: --db, CRITIC_PRM_DB, ./critic-prm.db if it exists, else one per user; report which one is used."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

from critic_prm.errors import InputError

NAME = "critic-prm.db"

VARIABLE = "CRITIC_PRM_DB"

announce: ContextVar[Callable[[Path, bool], None] | None] = ContextVar("announce", default=None)
"""Called with the path of each cache that is opened, and whether it is new. The command line prints it."""


def cache_path(given: str | Path | None = None) -> Path:
    """Return the cache file: `given`, else that of CRITIC_PRM_DB, else ./critic-prm.db if it exists, else the user's.

    The last one is the same in every folder, so that a command in another folder does not pay again.
    """
    if given is not None:
        return Path(given)
    if named := os.environ.get(VARIABLE):
        return Path(named).expanduser()
    here = Path(NAME)
    return here if here.is_file() else user_cache()


def user_cache() -> Path:
    """The cache in the user's data folder, such as ~/.local/share/critic-prm/critic-prm.db; ./critic-prm.db for a user without
    a home folder, as in some containers."""
    from platformdirs import user_data_path

    try:
        folder = user_data_path("critic-prm", appauthor=False)
    except RuntimeError:
        return Path(NAME)
    return folder / NAME if folder.is_absolute() else Path(NAME)  # older versions return ~/... unchanged


def create_privately(path: Path) -> None:
    """Create the user's cache, readable by this user only; a cache at any other `path` is left to SQLite and the umask.

    SQLite gives its journals the permissions of the database. Raises InputError.
    """
    if path != user_cache():
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        problem = f"the cache cannot be created: {error.strerror}"
        raise InputError(str(path), problem, f"choose another place with --db or {VARIABLE}") from None


def shown(path: Path) -> str:
    """The path for messages, with ~ for the user's home folder."""
    home = Path(os.path.expanduser("~"))
    return f"~/{path.relative_to(home)}" if home.parent != home and path.is_relative_to(home) else str(path)
