"""Read configuration files safely: bound TOML, and restrict the names and paths that a file may refer to.

The command line and Python code may name anything.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from critic_prm import registry
from critic_prm.errors import InputError

LONGEST = 100
"""Maximum number of characters of a rejected value shown in an error."""

MOST_BYTES, MOST_PARTS = 1 << 20, 64
"""Maximum size of a TOML file, and of the dotted parts of a key: tomllib needs quadratic time for a key of many parts."""

_LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){MOST}""".replace("MOST", str(MOST_PARTS))
)


def read_toml(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises OSError, and ValueError for any invalid content, including a file of more than 1 MB,
    deep nesting, keys of many parts, and numbers of thousands of digits."""
    with Path(path).open("rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    text = content.decode()
    if _LONG_KEY.search(text):
        raise ValueError(f"a key has more than {MOST_PARTS} dotted parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that a name was read from. `trust` lists the files the user trusts (`--trust FILE`).

    The methods check a name from the file and return it in a form that is safe to open: a packaged name unchanged, a path
    resolved against the file's folder. For anything else they raise InputError, which explains how to allow it, unless the file
    is trusted. Nothing is read or imported before the check.
    """

    file: str | Path
    trust: Sequence[str | Path] = ()

    @property
    def folder(self) -> Path:
        """The absolute path of the file's folder."""
        return Path(self.file).absolute().parent

    @property
    def trusted(self) -> bool:
        """Whether the user trusts the file."""
        return any(Path(one).resolve() == Path(self.file).resolve() for one in self.trust)

    def path(self, what: str, value: object) -> Path:
        """Path of a file or folder to read: relative to the file's folder if it exists there, else as given."""
        text = str(value)
        beside, here = self.folder / text, Path(text).absolute()
        found = here if exists(here) and not exists(beside) else beside
        return found if self.trusted else self._below(what, value, found)

    def output(self, what: str, value: object) -> Path:
        """Path of a file to write, relative to the file's folder."""
        found = self.folder / str(value)
        return found if self.trusted else self._below(what, value, found)

    def name(self, what: str, value: object, packaged: Collection[str]) -> str:
        """One of the `packaged` names, or the path of a file to read."""
        if isinstance(value, str) and value in packaged:
            return value
        if exists(self.folder / str(value)):
            return str(self.path(what, value))
        if self.trusted:
            return str(value)
        raise self.refusal(what, value, f"{', '.join(packaged)}, or files in its own folder")

    def provider(self, what: str, value: object) -> str:
        """Check "provider/model" with a packaged provider. If the model can be a path (scripted, vllm), check it as a path to
        read."""
        kind, slash, model = str(value).partition("/")
        if kind not in registry.names("provider") or not slash or not model:
            if self.trusted:
                return str(value)
            raise self.refusal(what, value, f"provider/MODEL; the providers are {', '.join(registry.names('provider'))}")
        provider = registry.load("provider", kind).PROVIDER
        if provider.files_need_trust and not self.trusted:
            own = [name for name in registry.names("provider") if name != kind]
            raise self.refusal(what, value, f"provider/MODEL of these providers: {', '.join(own)}")
        if provider.model_is_path and (model[0] in "/\\~." or exists(self.folder / model) or exists(Path(model))):
            return f"{kind}/{self.path(what, model)}"
        return str(value)

    def refusal(self, what: str, value: object, allowed: str, fix: str = "") -> InputError:
        """The error for a value that the file may not use."""
        shown = repr(value)
        shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
        file = str(self.file) if str(self.file).isprintable() else ascii(str(self.file))
        return InputError(
            file,
            f"{what} is {shown}; a file may name {allowed}",
            fix or f"to allow it: --trust {file} (in Python, trust=[...])",
        )

    def _below(self, what: str, value: object, found: Path) -> Path:
        refusal = self.refusal(what, value, "files in its own folder")
        # Reject home directories and network shares: other programs expand them, and resolving a share contacts its server.
        if not isinstance(value, str) or not value or value.startswith(("~", "//", "\\\\")):
            raise refusal
        if not is_below(found, self.folder) or (exists(found) and not (found.is_file() or found.is_dir())):
            raise refusal
        return found


def is_below(path: Path, folder: Path) -> bool:
    """Whether `path` is inside `folder` after following all links. False for invalid paths."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL byte, a name that is too long
        return False


def exists(path: Path) -> bool:
    """Whether `path` exists. False for invalid paths."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
