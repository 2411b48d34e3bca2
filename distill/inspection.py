"""Check a verifier folder before it is used: file types, file sizes, and whether the weights fit the config."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import orjson

from critic_prm.errors import InputError

MOST_FILES = 10_000
MOST_JSON = 64 << 20
MOST_HEADER = 100 << 20
"""The longest header that safetensors itself accepts, in bytes."""
PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt")
ADAPTER = "adapter_config.json"
"""With this file in a folder, transformers loads another model, from the place or hub name that the file gives."""
SIZES = ("hidden_size", "intermediate_size", "vocab_size")
MEND = "do not use this folder unless you know who made it"


def check_folder(folder: Path) -> None:
    """Check every file of a folder before any of it is used. Only JSON files and safetensors headers are read.

    Raises InputError for a link that points outside the folder, anything that is not a regular file, an implausibly large file,
    unreadable JSON, pickled weights without safetensors beside them, and sizes in config.json that do not match the weights.
    """
    root = folder.resolve()
    for number, path in enumerate(_walk(folder)):
        if number >= MOST_FILES:
            raise InputError(str(folder), f"it holds more than {MOST_FILES:,} files", MEND)
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise InputError(str(path), "it is a link that leads out of the folder", MEND)
        if path.name == ADAPTER:
            raise InputError(str(path), "it names another model to load, and verifiers hold their own", MEND)
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if path.suffix == ".json":
                if size > MOST_JSON:
                    raise InputError(str(path), f"it has {size:,} bytes, at most {MOST_JSON:,} are read", MEND)
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
        raise InputError(str(path), "it is not a regular file", MEND)
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
