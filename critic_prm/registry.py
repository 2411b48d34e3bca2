"""Find and import providers, formats, critics and other plug-in modules, and find shipped data files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from critic_prm.errors import UsageError


@dataclass(frozen=True, slots=True)
class Kind:
    """An extensible kind: every module of `package` that defines `marker` is one implementation of it."""

    package: str
    marker: str


KINDS: Mapping[str, Kind] = {
    "provider": Kind("critic_prm.providers", "def connect("),
    "format": Kind("critic_prm.data.formats", "FORMAT ="),
    "reader": Kind("critic_prm.styles.readers", "def read("),
    "family": Kind("critic_prm.generate.families", "def draw("),
    "check": Kind("critic_prm.generate.checks", "def examine("),
    "critic": Kind("critic_prm.critics", "def connect() "),
    "search method": Kind("critic_prm.search.methods", "async def search("),
    "benchmark": Kind("critic_prm.evaluate.benchmarks", "BENCHMARK ="),
    "analysis": Kind("critic_prm.evaluate.analyze", "NUMBERS"),
    "loss": Kind("distill.losses", "def loss("),
    "student": Kind("distill.students", "def load("),
}
"""Adding an implementation means adding one file to its package; nothing else lists them."""


def names(kind: str) -> list[str]:
    """The names of all implementations of `kind`, sorted, with hyphens for underscores. Nothing is imported."""
    return list(_names(kind))


@cache
def load(kind: str, name: str) -> ModuleType:
    """Import the implementation called `name`. Raises UsageError that lists the available names."""
    if name.replace("_", "-") not in _names(kind):
        raise UsageError(f"no {kind} is called {name!r}; available: {', '.join(names(kind))}")
    return import_module(f"{KINDS[kind].package}.{name.replace('-', '_')}")


def resource(name: str) -> Path:
    """The path of a shipped file such as "prompts" or "cache.db.example", in the installed package or in a checkout."""
    packaged = Path(__file__).parent / name
    return packaged if packaged.exists() else Path(__file__).parents[1] / name


@cache
def _names(kind: str) -> tuple[str, ...]:
    spec = find_spec(KINDS[kind].package)
    folders = spec.submodule_search_locations if spec else None
    found = (path for folder in folders or () for path in Path(folder).glob("[!_]*.py") if _defines(path, KINDS[kind].marker))
    return tuple(sorted(path.stem.replace("_", "-") for path in found))


def _defines(path: Path, marker: str) -> bool:
    return any(line.startswith(marker) for line in path.read_text("utf-8").splitlines())
