"""Write verifier folders completely or not at all, and check every file before it is read back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

import orjson

from critic_prm import registry
from critic_prm.data.formats.mistaken import mistaken
from critic_prm.data.records.writing import check_replaceable, new_folder
from critic_prm.errors import CriticPrmError, InputError, UsageError
from distill.calibration import Calibration, calibration_from_json
from distill.decision import decision_from_json
from distill.profile import NONE, Profile, is_name, profile_from_json, quantiles_from_json
from distill.settings import DEFAULT, LoadOptions
from distill.types import load_scorer
from distill.verifier import Verifier, fingerprint
from distill.watch import ScoreWatch

FORMAT = "critic-prm-verifier"
VERSION = 2
"""Version 2 has a decision with a rule, and calibration profiles; version 1 had a threshold alone."""
MAX_INFO = 16 << 20
REQUIRED_KEYS = ("student", "base", "decision", "calibration", "training", "versions", "fingerprint")


MARK, NOUN = "verifier.json", "verifier"


@contextmanager
def new_verifier_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder to fill, which then replaces `folder`; see `new_folder`. Servers of other users can read it."""
    with new_folder(folder, MARK, NOUN) as fresh:
        yield fresh
        share(fresh)


def check_target(folder: Path) -> None:
    """Raise UsageError unless `folder` is a verifier, empty or missing, so that `-o ~` cannot overwrite a home directory."""
    check_replaceable(folder, MARK, NOUN)


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


def read_verifier(folder: Path, loading: LoadOptions = DEFAULT, profile: str | None = None) -> Verifier:
    """Read and check a verifier folder. `profile` is a calibration profile, by default the one in use; "none" for none.

    Raises InputError, and UsageError for a profile that it does not have.
    """
    info = read_info(folder)
    if info["student"] not in (students := registry.names("student")):
        raise InputError(
            str(folder),
            f"its student is {info['student']!r}, which this version does not support",
            f"available: {', '.join(students)}",
        )
    check_folder(folder)
    actual = fingerprint(folder)
    if actual != info["fingerprint"]:
        raise InputError(
            str(folder), f"its weights are damaged or changed: fingerprint {actual}, verifier.json says {info['fingerprint']}",
            "copy or distill it again",
        )  # fmt: skip
    try:
        name, used, watch = _in_use(folder, info, profile)
        scorer = load_scorer(info["student"], folder, loading)
    except CriticPrmError:
        raise
    except Exception as error:  # for a damaged folder, libraries raise many kinds of exceptions
        raise _damaged(folder, error) from None
    return Verifier(folder.name or str(folder), scorer, used, watch.decision, info, name, stats=(watch,))


def read_watch(folder: Path, profile: str | None = None) -> tuple[ScoreWatch, Mapping[str, Any]]:
    """Read what the decision of a verifier was chosen on, without loading its weights: a watch, and what the label files of the
    verifier say about it with this profile. Raises as `read_verifier`."""
    info = read_info(folder)
    try:
        name, _, watch = _in_use(folder, info, profile)
    except CriticPrmError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise _damaged(folder, error) from None
    decided = {"threshold": watch.decision.threshold, "rule": watch.decision.rule}
    return watch, {"fingerprint": info["fingerprint"], "profile": name, **decided}


def _in_use(folder: Path, info: Mapping[str, Any], profile: str | None) -> tuple[str | None, Calibration, ScoreWatch]:
    """The name of the profile in use (None for none), its probability map, and a watch with its decision."""
    calibration, decision = calibration_from_json(info["calibration"]), decision_from_json(info["decision"])
    profiles = {name: profile_from_json(value) for name, value in info.get("profiles", {}).items()}
    quantiles = quantiles_from_json(info.get("quantiles", []))
    if bad := [name for name in profiles if not is_name(name)]:
        raise ValueError(f"it has a profile called {bad[0]!r:.80}")
    if profile is None and (profile := info.get("profile")) is not None and profile not in profiles:
        raise ValueError(f"it uses the profile {profile!r:.80}, which it does not have")
    if profile is None or profile == NONE:
        return None, calibration, ScoreWatch(quantiles, decision)
    if profile not in profiles:
        raise UsageError(f"{folder} has no profile {profile!r:.80}; available: {', '.join((NONE, *profiles))}")
    used = profiles[profile]
    return profile, used.calibration, ScoreWatch(used.quantiles, used.decision)


def _damaged(folder: Path, error: Exception) -> InputError:
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]
    return InputError(str(folder), f"it is damaged: {reason}", "copy or distill it again")


def read_ranks(folder: Path, name: str | None, by: str) -> tuple[str, Sequence[float]]:
    """Return the name of a calibration profile, by default the one in use, and its quantiles of the scores of steps or
    solutions. Nothing but `verifier.json` is read. Raises InputError, and UsageError without such a profile.
    """
    info = read_info(folder)
    name, profiles = name or info.get("profile"), info.get("profiles", {})
    if name is None or name not in profiles:
        what = f"has no profile {name!r}" if name not in (None, NONE) else "has no calibration profile in use"
        raise UsageError(f"{folder} {what}, which a band of shares needs: run critic-prm calibrate {folder} SOLUTIONS")
    try:
        ranks = profile_from_json(profiles[name]).ranks
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(str(folder), f"its profile {name!r} is damaged: {error}", "calibrate it again") from None
    if by not in ranks:
        raise UsageError(f"the profile {name!r} of {folder} has no quantiles per {by}: run critic-prm calibrate again")
    return name, ranks[by]


def add_profile(folder: Path, name: str, profile: Profile) -> None:
    """Store a profile in a verifier's folder and make it the one in use. Raises InputError."""
    info = read_info(folder)
    info["profiles"] = {**info.get("profiles", {}), name: profile.to_json()}
    info["profile"], info["version"] = name, VERSION
    unfinished = folder / "verifier.json.unfinished"
    write_json(unfinished, info)
    unfinished.replace(folder / "verifier.json")


def read_info(folder: Path) -> dict[str, Any]:
    """Read and check `verifier.json`. Raises InputError."""
    path = folder / "verifier.json"
    if not path.exists() and (wrong := mistaken(folder, "verifier")):
        raise wrong
    if not folder.is_dir():
        raise InputError(str(folder), "there is no such folder", "make a verifier with: critic-prm distill DIR -o VERIFIER")
    if not path.exists():
        raise InputError(
            str(folder), "it is not a verifier: it has no verifier.json", "name a folder that critic-prm distill wrote"
        )
    with open_regular(path) as file:
        text = file.read(MAX_INFO + 1)
    if len(text) > MAX_INFO:
        raise InputError(str(path), f"it has more than {MAX_INFO:,} bytes", "copy or distill it again")
    info = read_json(path, text)
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise InputError(str(path), f'it is not a verifier of this kind: "format" is not {FORMAT!r}')
    if not isinstance(info.get("version"), int) or not 1 <= info["version"] <= VERSION:
        raise InputError(
            str(path), f"its format version is {info.get('version')!r}, this version reads 1 to {VERSION}", "upgrade critic-prm"
        )
    if not isinstance(info.get("student", ""), str):
        raise InputError(str(path), f'"student" is {str(info["student"])[:80]!r}', "it must be the name of a student")
    if info["version"] == 1 and "threshold" in info:
        origin = info.pop("threshold_from", {})
        info["decision"] = {**(origin if isinstance(origin, dict) else {}), "threshold": info.pop("threshold")}
    missing = [name for name in REQUIRED_KEYS if name not in info]
    if missing:
        raise InputError(str(path), f"it lacks {', '.join(missing)}", "copy or distill it again")
    if not all(isinstance(info.get(name, {}), dict) for name in ("decision", "calibration", "profiles")):
        raise InputError(str(path), "its decision, calibration or profiles are not JSON objects", "copy or distill it again")
    try:
        decision_from_json(info["decision"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), f"its decision cannot be read: {error}", "copy or distill it again") from None
    rate = info.get("error_rate")
    if rate is not None and (type(rate) not in (int, float) or not 0 < rate < 1):
        raise InputError(str(path), f'"error_rate" is {rate!r:.80}', "it must be a share between 0 and 1, or null")
    return info


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


MAX_FILES = 10_000
MAX_JSON = 64 << 20
MAX_HEADER = 100 << 20
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
        if number >= MAX_FILES:
            raise InputError(str(folder), f"it contains more than {MAX_FILES:,} files", FIX)
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise InputError(str(path), "it is a link that leads out of the folder", FIX)
        if path.name == ADAPTER:
            raise InputError(str(path), "it names another model to load, but verifiers contain their own", FIX)
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if path.suffix == ".json":
                if size > MAX_JSON:
                    raise InputError(str(path), f"it has {size:,} bytes, at most {MAX_JSON:,} are read", FIX)
                read_json(path, file.read(MAX_JSON))
            elif path.suffix == ".safetensors":
                read_header(path, file, size)
    for directory in {folder, *(p.parent for p in _walk(folder))}:
        _check_pickles(directory)
        _check_sizes(directory)


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
    if size < 8 or length > min(size - 8, MAX_HEADER):
        raise InputError(str(path), f"its header claims {length:,} bytes of {size:,}", "copy or distill it again")
    header = read_json(path, file.read(length))
    shapes: dict[str, tuple[int, ...]] = {}
    for name, entry in header.items() if isinstance(header, dict) else ():
        if name == "__metadata__":
            continue
        shape, span = (entry.get("shape"), entry.get("data_offsets")) if isinstance(entry, dict) else (None, None)
        if not _is_sizes(shape) or not _is_sizes(span) or len(span) != 2 or not span[0] <= span[1] <= size - 8 - length:
            raise InputError(str(path), f"the tensor {name[:80]!r} does not fit into the file", "copy or distill it again")
        shapes[name] = tuple(shape)
    return shapes


def _is_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)


def _walk(folder: Path) -> Iterator[Path]:
    for directory, folders, files in os.walk(folder):
        yield from (Path(directory, name) for name in files)
        yield from (path for name in folders if (path := Path(directory, name)).is_symlink())


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
    settings = read_json(config, config.read_bytes())
    if not isinstance(settings, dict):
        raise InputError(str(config), "it is not a JSON object", "copy or distill it again")
    shapes: dict[str, tuple[int, ...]] = {}
    for path in weights:
        with open_regular(path) as file:
            shapes |= read_header(path, file, os.fstat(file.fileno()).st_size)
    sizes = {n for shape in shapes.values() for n in shape}
    for name in SIZES:
        value = settings.get(name)
        if value is not None and (type(value) is not int or (value not in sizes and 2 * value not in sizes)):
            raise InputError(str(config), f"{name} is {value!r:.80}, which no tensor has", "copy or distill it again")
    layers = settings.get("num_hidden_layers")
    if layers is not None and (type(layers) is not int or not 0 <= layers <= len(shapes)):
        raise InputError(
            str(config), f"num_hidden_layers is {layers!r:.80}, with {len(shapes)} tensors", "copy or distill it again"
        )
