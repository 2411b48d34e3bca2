"""The file of one person's answers: every change is appended and on disk before it counts as saved."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from errno import ELOOP, ENOLCK, ENOTSUP
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any

import orjson

from critic_prm.data.human import HUMAN, HumanAnswer, answer_to_json, read_annotations
from critic_prm.data.records.writing import encode, refuse_database
from critic_prm.errors import InputError, UsageError


class AnswerFile:
    """The answers of `by`, appended to `path`. The last row of a solution is its answer.

    The first row of a solution has its trajectory, later rows only its key. The file is locked while it is open. A row that was
    cut off by a crash was never reported as saved; it is removed. Raises UsageError if the file is open elsewhere or has
    answers of somebody else, and InputError if it is something else or cannot be written.
    """

    def __init__(self, path: Path, by: str) -> None:
        self.path, self.by = path, by
        refuse_database(path, str(path))
        try:
            # a folder from somebody else may have a link under this name, which leads to a file of the user
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            if error.errno == ELOOP:
                raise InputError(str(path), "this is a link", "name the file that it leads to with -o") from None
            raise InputError(str(path), f"cannot be written: {error.strerror}", "choose another file with -o") from None
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise InputError(str(path), "this is not a regular file", "choose another file with -o")
            self._lock()
            self._repair()
            rows = read_annotations(path) if os.fstat(self._file).st_size else {}
            self.answers = {key: row.answer for key, row in rows.items()}
            names = {answer.by for answer in self.answers.values() if answer.at} - {by}
            if names:
                others = ", ".join(sorted(map(repr, names)))
                raise UsageError(f"{path} has answers of {others}, not {by!r}; use --annotator, or another file with -o")
        except BaseException:
            os.close(self._file)
            raise
        self.revisions = dict.fromkeys(self.answers, 1)
        """Number of times an answer was changed: a change based on an older one is refused."""

    def write(self, key: str, row: Mapping[str, Any], answer: HumanAnswer) -> int:
        """Append an answer and wait until it is on disk. `row` is the trajectory. Returns the revision. Raises InputError."""
        text = {"id": row["id"], "key": key} if key in self.answers else dict(row)
        line = encode({**text, HUMAN: answer_to_json(answer)}, str(self.path))
        size = os.fstat(self._file).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(self._file, rest) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size)  # half a row would be read as a damaged file
            raise InputError(
                str(self.path), f"cannot be written: {error.strerror}", "free some space; nothing was lost"
            ) from None
        self.answers[key] = answer
        self.revisions[key] = self.revisions.get(key, 0) + 1
        return self.revisions[key]

    def close(self) -> None:
        os.close(self._file)

    def _lock(self) -> None:
        try:
            flock(self._file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.path} is open in another critic-prm annotate; stop that, or use -o") from None
        except OSError as error:
            if error.errno not in (ENOLCK, ENOTSUP):  # a file system without locks
                raise

    def _repair(self) -> None:
        """Remove a last line that a crash cut off, if the line before it is an answer."""
        content = self.path.read_bytes() if os.fstat(self._file).st_size else b"\n"
        if content.endswith(b"\n"):
            return
        whole, _, last = content.rpartition(b"\n")
        try:
            orjson.loads(last)
        except orjson.JSONDecodeError:
            if f'"{HUMAN}":'.encode() in whole.rpartition(b"\n")[2]:
                os.ftruncate(self._file, len(whole) + 1)
        else:
            os.write(self._file, b"\n")
