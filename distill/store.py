"""Write verifier folders completely or not at all, and check every file before it is read back."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import orjson

from critic_prm import registry, signals
from critic_prm.errors import CriticPrmError, InputError
from distill.decision import calibration_from_json
from distill.settings import DEFAULT, LoadOptions
from distill.types import load_scorer
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
        raise InputError(str(folder), "it exists and is not a verifier", "name another folder, or remove this one yourself")


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


def read_verifier(folder: Path, loading: LoadOptions = DEFAULT) -> Verifier:
    """Read and check a verifier folder. Raises InputError."""
    info = read_info(folder)
    if info["student"] not in (students := registry.names("student")):
        raise InputError(
            str(folder),
            f"it holds the student {info['student']!r}, which this version does not know",
            f"there are: {', '.join(students)}",
        )
    check_folder(folder)
    found = fingerprint(folder)
    if found != info["fingerprint"]:
        raise InputError(
            str(folder), f"its weights are damaged or changed: fingerprint {found}, verifier.json says {info['fingerprint']}",
            "copy or distill it again",
        )  # fmt: skip
    try:
        calibration = calibration_from_json(info["calibration"])
        scorer = load_scorer(info["student"], folder, loading)
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
            str(folder), "it is not a verifier: it has no verifier.json", "name a folder that critic-prm distill wrote"
        )
    with open_regular(path) as file:
        text = file.read(MOST_INFO + 1)
    if len(text) > MOST_INFO:
        raise InputError(str(path), f"it has more than {MOST_INFO:,} bytes", "copy or distill it again")
    info = read_json(path, text)
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise InputError(str(path), f'it is not a verifier of this kind: "format" is not {FORMAT!r}')
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


MOST_FILES = 10_000
MOST_JSON = 64 << 20
MOST_HEADER = 100 << 20
"""The longest header that safetensors itself accepts, in bytes."""
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
ADAPTER = "adapter_config.json"
"""With this file in a folder, transformers loads another model, from the place or hub name that the file gives."""
SIZES = ("hidden_size", "intermediate_size", "vocab_size")
FIX = "do not use this folder unless you know who made it"


def check_folder(folder: Path) -> None:
    """Check every file of a folder before any of it is used. Only JSON files and safetensors headers are read.

    Raises InputError for a link that points outside the folder, anything that is not a regular file, an implausibly large file,
    unreadable JSON, pickled weights without safetensors beside them, and sizes in config.json that do not match the weights.
    """
    root = folder.resolve()
    for number, path in enumerate(_walk(folder)):
        if number >= MOST_FILES:
            raise InputError(str(folder), f"it holds more than {MOST_FILES:,} files", FIX)
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise InputError(str(path), "it is a link that leads out of the folder", FIX)
        if path.name == ADAPTER:
            raise InputError(str(path), "it names another model to load, but verifiers contain their own", FIX)
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if path.suffix == ".json":
                if size > MOST_JSON:
                    raise InputError(str(path), f"it has {size:,} bytes, at most {MOST_JSON:,} are read", FIX)
                read_json(path, file.read(MOST_JSON))
            elif path.suffix == ".safetensors":
                read_header(path, file, size)
    for place in {folder, *(p.parent for p in _walk(folder))}:
        _check_pickles(place)
        _check_sizes(place)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without blocking on a FIFO or device. Raises InputError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(str(path), f"it cannot be opened: {error.strerror}", "copy or distill it again") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise InputError(str(path), "it is not a regular file", FIX)
    return os.fdopen(descriptor, "rb")


def read_json(path: Path, text: bytes) -> Any:
    """Parse JSON. Raises InputError if it is broken or nested too deeply."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(str(path), f"broken JSON: {str(error)[:200]}", "copy or distill it again") from None


def read_header(path: Path, file: BinaryIO, size: int) -> dict[str, tuple[int, ...]]:
    """Read the tensor shapes from a safetensors file of `size` bytes. Raises InputError if the header is not plausible."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER):
        raise InputError(str(path), f"its header claims {length:,} bytes of {size:,}", "copy or distill it again")
    header = read_json(path, file.read(length))
    shapes: dict[str, tuple[int, ...]] = {}
    for name, told in header.items() if isinstance(header, dict) else ():
        if name == "__metadata__":
            continue
        shape, span = (told.get("shape"), told.get("data_offsets")) if isinstance(told, dict) else (None, None)
        if not _whole(shape) or not _whole(span) or len(span) != 2 or not span[0] <= span[1] <= size - 8 - length:
            raise InputError(str(path), f"the tensor {name[:80]!r} does not fit into the file", "copy or distill it again")
        shapes[name] = tuple(shape)
    return shapes


def _whole(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in files)
        yield from (path for name in folders if (path := Path(place, name)).is_symlink())


def _check_pickles(folder: Path) -> None:
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled and not any(folder.glob("*.safetensors")):
        raise InputError(
            str(folder), f"its weights are a pickle ({pickled[0]}), which is never opened", "save them as safetensors"
        )


def _check_sizes(folder: Path) -> None:
    """Check that each size in config.json is that of some tensor, since models are allocated before their weights are read."""
    config, weights = folder / "config.json", sorted(folder.glob("model*.safetensors"))
    if not config.is_file() or not weights:
        return
    told = read_json(config, config.read_bytes())
    if not isinstance(told, dict):
        raise InputError(str(config), "it is not a JSON object", "copy or distill it again")
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weights:
        with open_regular(path) as file:
            shapes |= read_header(path, file, os.fstat(file.fileno()).st_size)
    there = {n for shape in shapes.values() for n in shape}
    for name in SIZES:
        value = told.get(name)
        if value is not None and (type(value) is not int or (value not in there and 2 * value not in there)):
            raise InputError(str(config), f"{name} is {value!r:.80}, which no tensor has", "copy or distill it again")
    layers = told.get("num_hidden_layers")
    if layers is not None and (type(layers) is not int or not 0 <= layers <= len(shapes)):
        raise InputError(
            str(config), f"num_hidden_layers is {layers!r:.80}, with {len(shapes)} tensors", "copy or distill it again"
        )
