"""Where a name came from: the command line and Python may name anything, a file only what is packaged or lies in its folder."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from critic_prm import registry
from critic_prm.errors import InputError

LONGEST = 100
"""Characters of a refused value that an error shows."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The file that a name was read from. `trust` are the files that the user trusts (`--trust FILE`).

    The methods take a name from the file and return it as the library may open it: a packaged name as it is, a path with the
    file's folder in front. For anything else they raise InputError, which says how to allow it, unless the file is trusted.
    Nothing is read or imported before that.
    """

    file: str | Path
    trust: Sequence[str | Path] = ()

    @property
    def folder(self) -> Path:
        return Path(self.file).absolute().parent

    @property
    def trusted(self) -> bool:
        return any(Path(one).resolve() == Path(self.file).resolve() for one in self.trust)

    def path(self, what: str, value: object) -> Path:
        """The path of a file or folder to read: beside the file where there is one, else as it is named."""
        text = str(value)
        beside, here = self.folder / text, Path(text).absolute()
        found = here if exists(here) and not exists(beside) else beside
        return found if self.trusted else self._below(what, value, found)

    def output(self, what: str, value: object) -> Path:
        """The path of a file to write, relative to the file's folder."""
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
        raise self.refusal(what, value, f"{', '.join(packaged)}, or what lies in its own folder")

    def provider(self, what: str, value: object) -> str:
        """ "provider/model" with a packaged provider. Where the model can be a path (scripted, vllm), it is one to read."""
        kind, slash, model = str(value).partition("/")
        if kind not in registry.names("provider") or not slash or not model:
            if self.trusted:
                return str(value)
            raise self.refusal(what, value, f"provider/MODEL; the providers are {', '.join(registry.names('provider'))}")
        may_be_path = getattr(registry.load("provider", kind), "MODEL_IS_PATH", False)
        if may_be_path and (model[0] in "/\\~." or exists(self.folder / model) or exists(Path(model))):
            return f"{kind}/{self.path(what, model)}"
        return str(value)

    def refusal(self, what: str, value: object, allowed: str, mend: str = "") -> InputError:
        """The error for a value that the file may not name."""
        shown = repr(value)
        shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}..."
        file = str(self.file) if str(self.file).isprintable() else ascii(str(self.file))
        return InputError(
            file,
            f"{what} is {shown}; a file may name {allowed}",
            mend or f"to allow it: --trust {file} (in Python, trust=[...])",
        )

    def _below(self, what: str, value: object, found: Path) -> Path:
        refusal = self.refusal(what, value, "what lies in its own folder")
        # A home folder and a network share: other programs expand them, and resolving a share asks its server.
        if not isinstance(value, str) or not value or value.startswith(("~", "//", "\\\\")):
            raise refusal
        if not is_below(found, self.folder) or (exists(found) and not (found.is_file() or found.is_dir())):
            raise refusal
        return found


def is_below(path: Path, folder: Path) -> bool:
    """Whether `path` lies in `folder` once all links are followed; also False for what cannot be a path."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, a NUL, a name that is too long
        return False


def exists(path: Path) -> bool:
    """Whether there is something at `path`; also False for what cannot be a path."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
