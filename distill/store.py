"""Write verifier folders completely or not at all, and check and read them back."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from critic_prm import signals
from critic_prm.errors import CriticPrmError, InputError
from distill.calibration import calibration_from_json
from distill.inspection import check_folder, open_regular, read_json
from distill.scoring.load import DEFAULT, LoadOptions
from distill.students.choose import open_student, student_names
from distill.verifier import Verifier, fingerprint

FORMAT = "critic-prm-verifier"
VERSION = 1
MOST_INFO = 16 << 20
NEEDED = ("student", "base", "threshold", "threshold_from", "calibration", "training", "versions", "fingerprint")


def write_whole(folder: Path, fill: Callable[[Path], None]) -> None:
    """Fill a temporary sibling of `folder`, then rename it into place.

    An existing folder is replaced if `check_target` allows it, and restored if the rename fails.
    """
    check_target(folder)
    folder = folder.absolute()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise InputError(str(folder), f"it cannot be written: {error.strerror or error}") from None
    try:
        fill(fresh)
        share(fresh)
        old = fresh.with_name(fresh.name + ".old")
        if folder.exists():
            folder.rename(old)
        try:
            fresh.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
        signals.note(str(folder), "is complete")
    except OSError as error:
        raise CriticPrmError(
            f"{folder}: the verifier was not written: {error.strerror or error}; what was there is untouched"
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def check_target(folder: Path) -> None:
    """Raise InputError unless `folder` is a verifier, empty or missing, so that `-o ~` cannot overwrite a home directory."""
    if folder.exists() and not (folder.is_dir() and ((folder / "verifier.json").is_file() or not any(folder.iterdir()))):
        raise InputError(str(folder), "it exists and is no verifier", "name another folder, or remove this one yourself")


def work_folder(folder: Path) -> Path:
    """Return the hidden sibling folder in which a run that writes `folder` keeps its resumable state; the caller creates it."""
    return folder.absolute().with_name(f".{folder.absolute().name}.training")


def share(folder: Path) -> None:
    """Apply the user's umask to a folder and its contents.

    Temporary folders, and weights as safetensors writes them, are otherwise readable by their owner only, and servers often run
    as another user.
    """
    mask = _umask()
    for path in (folder, *folder.rglob("*")):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def read_verifier(folder: Path, opening: LoadOptions = DEFAULT) -> Verifier:
    """Read and check a verifier folder. Raises InputError."""
    info = read_info(folder)
    try:
        student = open_student(info["student"])
    except CriticPrmError:
        raise InputError(
            str(folder),
            f"it holds the student {info['student']!r}, which this version does not know",
            f"there are: {', '.join(student_names())}",
        ) from None
    check_folder(folder)
    found = fingerprint(folder)
    if found != info["fingerprint"]:
        raise InputError(
            str(folder), f"its weights are damaged or changed: fingerprint {found}, verifier.json says {info['fingerprint']}",
            "copy or distill it again",
        )  # fmt: skip
    try:
        calibration = calibration_from_json(info["calibration"])
        scorer = student.load(folder, opening)
    except CriticPrmError:
        raise
    except Exception as error:  # for a damaged folder, libraries raise many kinds of exceptions
        said = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
        raise InputError(str(folder), f"it is damaged: {said}", "copy or distill it again") from None
    return Verifier(folder.name or str(folder), scorer, calibration, float(info["threshold"]), info)


def read_info(folder: Path) -> dict[str, Any]:
    """Read and check `verifier.json`. Raises InputError."""
    path = folder / "verifier.json"
    if not folder.is_dir():
        raise InputError(str(folder), "there is no such folder", "make a verifier with: critic-prm distill DIR -o VERIFIER")
    if not path.exists():
        raise InputError(
            str(folder), "it is no verifier: it has no verifier.json", "name a folder that critic-prm distill wrote"
        )
    with open_regular(path) as file:
        text = file.read(MOST_INFO + 1)
    if len(text) > MOST_INFO:
        raise InputError(str(path), f"it has more than {MOST_INFO:,} bytes", "copy or distill it again")
    info = read_json(path, text)
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise InputError(str(path), f'it is no verifier of this kind: "format" is not {FORMAT!r}')
    if not isinstance(info.get("version"), int) or not 1 <= info["version"] <= VERSION:
        raise InputError(
            str(path), f"its format version is {info.get('version')!r}, this version reads 1 to {VERSION}", "upgrade critic-prm"
        )
    if not isinstance(info.get("student", ""), str):
        raise InputError(str(path), f'"student" is {str(info["student"])[:80]!r}', "it must be the name of a student")
    missing = [name for name in NEEDED if name not in info]
    if missing:
        raise InputError(str(path), f"it lacks {', '.join(missing)}", "copy or distill it again")
    if isinstance(info["threshold"], bool) or not isinstance(info["threshold"], int | float) or not 0 <= info["threshold"] <= 1:
        raise InputError(str(path), f'"threshold" is {info["threshold"]!r}', "it must be a number from 0 to 1")
    return info


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
