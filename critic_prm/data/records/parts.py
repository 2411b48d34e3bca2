"""Write files atomically: to a temporary file with a random name that replaces the target, under a lock."""

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
"""Called with the path of each file just before it appears under its final name, while the lock is still held."""


class Part:
    """A temporary file beside `target`. Write to `stream`; `keep` renames the file to the target, `drop` removes it.

    The target is locked until then; the kernel releases the lock if the process dies. Raises UsageError if another run is
    writing the target, InputError if the target is an SQLite database such as a cache, and OSError.
    """

    def __init__(self, target: Path, name: str = "") -> None:
        self.target, name = target, name or str(target)
        refuse_database(target, name)
        self._lock: int | None = _locked(_beside(target, "lock"), name)
        try:
            # left by a killed process: the lock shows that nobody else is writing here now
            for left in target.parent.glob(f".{escape(target.name)}.{'[0-9a-f]' * 16}.part*"):
                with suppress(OSError):
                    left.unlink()
            self.path = _beside(target, f"{token_hex(8)}.part")
            self.stream = os.fdopen(os.open(self.path, _NEW, 0o666), "wb", buffering=1 << 20)
        except BaseException:
            self._release()
            raise

    def keep(self) -> None:
        """Move the finished file to the target."""
        self.stream.close()
        if (announce := before_keep.get()) is not None:
            announce(self.target)
        self.path.replace(self.target)
        self._release()

    def drop(self) -> None:
        """Remove the temporary file, unless it was kept."""
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
    """Write a small file atomically. An existing symlink is replaced, not followed. A device or pipe is written directly.
    Raises as Part does."""
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
    """Raise InputError if `target` is an SQLite database: replacing a cache would lose all its replies."""
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
    """Lock the file at `path`; the holder removes it. Raises UsageError if another run holds the lock."""
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
