"""Find and import providers, formats, critics and other plug-ins, of this package and of installed ones; find shipped files.

Another package adds an implementation with an entry point in the group of its kind, for example in its pyproject.toml:

    [project.entry-points."critic_prm.providers"]
    acme = "my_package.acme"

The module is what a file in `critic_prm/providers/` would be. A search method or a loss is an object in a module, such as
`my_package.losses:FOCAL`. The groups are `critic_prm.` and the last part of the packages in KINDS: `critic_prm.formats`,
`critic_prm.critics`, `critic_prm.students`, `critic_prm.losses` and so on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from critic_prm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


@dataclass(frozen=True, slots=True)
class Kind:
    """An extensible kind. `marker` matches the start of a line that defines an implementation in a module of `package`.

    It is a regular expression. If it has a group, that is the name of the implementation, and a module may define several.
    Otherwise the implementation is the module itself.
    """

    package: str
    marker: str
    presets: str = ""
    """Module whose `preset(name)` makes an implementation from a table of the package's presets.toml; empty without such a
    file. A module of the package with the same name goes first."""


KINDS: Mapping[str, Kind] = {
    "provider": Kind("critic_prm.providers", "PROVIDER =", presets="critic_prm.providers.openai"),
    "format": Kind("critic_prm.data.formats", "FORMATS ="),  # formats by name: those that share code share a module
    "reader": Kind("critic_prm.styles.readers", r"def read\("),
    "family": Kind("critic_prm.generate.families", r"def draw\("),
    "check": Kind("critic_prm.generate.checks", r"def examine\("),
    "critic": Kind("critic_prm.critics", "CRITIC ="),
    "search method": Kind("critic_prm.search", r"async def (\w+)\(tree: SearchTree, settings: SearchSettings\)"),
    "analysis": Kind("critic_prm.evaluate.analyze", "NUMBERS"),
    "loss": Kind("distill.losses", r"([A-Z_]+) = Loss\("),
    "student": Kind("distill.students", "STUDENT ="),
}
"""Adding an implementation means adding or changing one file of its package; nothing else lists them."""


def names(kind: str) -> list[str]:
    """The names of all implementations of `kind`, sorted, with hyphens for underscores. Nothing is imported."""
    return sorted({*_packaged(kind), *_presets(kind), *_installed(kind)})


@cache
def load(kind: str, name: str) -> Any:
    """Import the implementation called `name`. Raises UsageError that lists the available names."""
    name = name.replace("_", "-")
    if name in _packaged(kind):
        module, defined = _packaged(kind)[name]
        return vars(import_module(module))[defined] if defined else import_module(module)
    if name in _presets(kind):
        return import_module(KINDS[kind].presets).preset(name)
    if name in _installed(kind):
        return _installed(kind)[name].load()
    raise UsageError(f"there is no {kind} {name!r}; available: {', '.join(names(kind))}")


def extra(module: str, name: str, purpose: str) -> Any:
    """Import an optional module. Raises ConfigError that names the extra to install."""
    with suppress(ImportError):
        return import_module(module)
    raise ConfigError(f"{purpose} needs {module}; install it with: {install(name)}")


def install(name: str) -> str:
    """The pip command that installs an extra.

    It names the extra's own requirements: they are on every package index, and pip finds them wherever this package came from.
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("critic-prm") or []
    except PackageNotFoundError:  # the sources alone, on sys.path
        lines = []
    ours = [line.partition(";")[0].strip() for line in lines if re.search(rf"extra *== *['\"]{name}['\"]", line)]
    return f"pip install {' '.join(map(quote, ours))}" if ours else f"pip install '.[{name}]' in a checkout of critic-prm"


def resource(name: str) -> Path:
    """The path of a shipped file such as "prompts" or "cache.db.example", in the installed package or in a checkout."""
    packaged = Path(__file__).parent / name
    return packaged if packaged.exists() else Path(__file__).parents[1] / name


@cache
def _packaged(kind: str) -> Mapping[str, tuple[str, str]]:
    """Name -> the module that defines the implementation, and what it is called there ("" if it is the module)."""
    package, marker = KINDS[kind].package, re.compile(f"^{KINDS[kind].marker}", re.MULTILINE)
    spec = find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    found = {}
    for path in (path for folder in folders or () for path in Path(folder).glob("[!_]*.py")):
        for match in marker.finditer(path.read_text("utf-8")):
            defined = match[1] if marker.groups else ""
            found[(defined or path.stem).lower().replace("_", "-")] = (f"{package}.{path.stem}", defined)
    return found


@cache
def _presets(kind: str) -> frozenset[str]:
    """The names of the tables in the presets.toml of a package."""
    if not KINDS[kind].presets:
        return frozenset()
    spec = find_spec(KINDS[kind].package)
    paths = [Path(folder) / "presets.toml" for folder in (spec.submodule_search_locations if spec else None) or ()]
    return frozenset(name for path in paths for name in re.findall(r"^\[([\w-]+)\]", path.read_text("utf-8"), re.MULTILINE))


@cache
def _installed(kind: str) -> Mapping[str, EntryPoint]:
    group = f"critic_prm.{KINDS[kind].package.rpartition('.')[2]}"
    return {entry.name.replace("_", "-"): entry for entry in _entry_points() if entry.group == group}


@cache
def _entry_points() -> tuple[EntryPoint, ...]:
    """The entry points for this package. importlib.metadata, which is slow to import, is needed only where there are any."""
    folders = (Path(folder) for folder in sys.path if Path(folder).is_dir())
    files = [file for folder in folders for file in folder.glob("*-info/entry_points.txt")]
    files = [file for file in files if b"[critic_prm." in file.read_bytes()]
    if not files:
        return ()
    from importlib.metadata import PathDistribution

    return tuple(entry for file in files for entry in PathDistribution(file.parent).entry_points)
