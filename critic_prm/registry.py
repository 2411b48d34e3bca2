"""The folder is the registry: the modules of a package folder, by name, imported only when asked for."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from critic_prm.errors import UsageError


def names(folder: str) -> list[str]:
    """The names of the modules in critic_prm/`folder` (underscores shown as hyphens), sorted; nothing is imported from them."""
    return list(_names(folder))


@cache
def _names(folder: str) -> tuple[str, ...]:
    package = import_module(f"critic_prm.{folder}")
    return tuple(sorted(m.name.replace("_", "-") for m in iter_modules(package.__path__) if not m.name.startswith("_")))


def load(folder: str, name: str, noun: str) -> ModuleType:
    """Import the module called `name` in critic_prm/`folder`. Raises UsageError that lists what there is instead."""
    if name.replace("_", "-") not in _names(folder):
        raise UsageError(f"no {noun} is called {name!r}; there are: {', '.join(names(folder))}")
    return import_module(f"critic_prm.{folder}.{name.replace('-', '_')}")
