"""A path -> a new file with an unguessable name beside it, which takes the path's place when whole; one writer at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from errno import ENOLCK, ENOTSUP
from fcntl import LOCK_EX, LOCK_NB, flock
from glob import escape
from pathlib import Path
from secrets import token_hex

from critic_prm.errors import InputError, UsageError

SQLITE = b"SQLite format 3"
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
LOCK_FILE = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a lock file is opened: a link that somebody put there is not followed, a pipe is not waited for, nothing is cut."""


before_keep: ContextVar[Callable[[Path], None] | None] = ContextVar("before_keep", default=None)
"""Called with the path of each file that is about to appear under its name, while that is still locked."""


class Part:
    """`stream` writes to a file beside `target`; `keep` gives it the target's name, `drop` removes it.

    Until then `target` is locked: the kernel ends the lock with the process. Raises UsageError while another run writes there,
    InputError for a target that is an SQLite database, such as a cache, and OSError.
    """

    def __init__(self, target: Path, name: str = "") -> None:
        self.target, name = target, name or str(target)
        refuse_database(target, name)
        self._lock: int | None = _locked(_beside(target, "lock"), name)
        try:
            # whoever left these was killed: nobody else writes here now
            for left in target.parent.glob(f".{escape(target.name)}.{'[0-9a-f]' * 16}.part*"):
                with suppress(OSError):
                    left.unlink()
            self.path = _beside(target, f"{token_hex(8)}.part")
            self.stream = os.fdopen(os.open(self.path, _NEW, 0o666), "wb", buffering=1 << 20)
        except BaseException:
            self._release()
            raise

    def keep(self) -> None:
        """Put the finished file in the target's place."""
        self.stream.close()
        if (announce := before_keep.get()) is not None:
            announce(self.target)
        self.path.replace(self.target)
        self._release()

    def drop(self) -> None:
        """Remove what was written, unless it was kept."""
        if self._lock is not None:
            with suppress(OSError):
                self.stream.close()
            self.path.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            _beside(self.target, "lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def write_whole(path: str | Path, content: bytes) -> None:
    """Write a small file whole or not at all; a link that is there is replaced, not followed. A device or a pipe is written to
    as it is. Raises as Part does."""
    target = Path(path)
    if target.exists() and not target.is_file():
        target.write_bytes(content)
        return
    part = Part(target, str(path))
    try:
        part.stream.write(content)
        part.keep()
    finally:
        part.drop()


def refuse_database(target: Path, name: str) -> None:
    """Raise InputError where `target` is an SQLite database: replacing a cache would lose every reply in it."""
    if not target.is_file():
        return
    with target.open("rb") as stream:
        if stream.read(len(SQLITE)) == SQLITE:
            raise InputError(
                name, "this is an SQLite database, perhaps a cache; it is not overwritten", "choose another output"
            )


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(f".{target.name}.{ending}")


def _locked(path: Path, name: str) -> int:
    """A lock on the file at `path`, which its holder removes. Raises UsageError while another run holds it."""
    while True:
        held = os.open(path, LOCK_FILE, 0o666)
        try:
            flock(held, LOCK_EX | LOCK_NB)
            if os.path.samestat(os.fstat(held), os.lstat(path)):
                return held
        except FileNotFoundError:
            pass  # removed by its holder between opening and locking
        except BlockingIOError:
            os.close(held)
            raise UsageError(f"{name} is being written by another run; let it finish or choose another output") from None
        except OSError as error:
            if error.errno in (ENOLCK, ENOTSUP):  # a file system without locks
                return held
            os.close(held)
            raise
        os.close(held)
