"""Create a folder atomically, replacing an earlier one of the same kind."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from critic_prm import signals
from critic_prm.errors import InputError, UsageError


@contextmanager
def new_folder(out: str | Path, mark: str, noun: str) -> Iterator[Path]:
    """Yield an empty folder to fill. It is renamed to `out` if the block succeeds and removed if it fails.

    An existing `out` is replaced if it is an empty folder or contains the file `mark`. Raises UsageError for anything else
    there, calling it `noun`, and InputError if `out` cannot be written.
    """
    target = Path(out)
    if target.exists() and not (target / mark).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} exists and is no {noun}; choose a new folder")
    work = target.with_name(f".{target.name}.partial")
    shutil.rmtree(work, ignore_errors=True)
    signals.note(str(target), "was not written")
    try:
        work.mkdir(parents=True)
        yield work
        _put(work, target)
        signals.note(str(target), "is complete")
    except OSError as error:
        raise InputError(str(target), f"cannot be written: {error.strerror or error}", "choose another folder") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put(work: Path, target: Path) -> None:
    """Move the finished folder to the target. An earlier one is moved aside first and removed last."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    work.rename(target)
    shutil.rmtree(old, ignore_errors=True)
