"""Look up presets in presets.toml: where a server is, which key it takes, and what of Chat Completions it accepts."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cache
from math import inf
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from critic_prm.providers.addresses import check_address


@dataclass(frozen=True, slots=True)
class Preset:
    """One table of presets.toml, which documents the fields. The defaults are those of any compatible server."""

    name: str = ""
    title: str = ""
    also: tuple[str, ...] = ()
    base_url: str | None = None
    base_url_env: str = ""
    path: str = ""
    hosts: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    key: str = ""
    key_header: str = ""
    only_there: bool = False
    start: str = ""
    limit: str = ""
    seed: str = "seed"
    logprobs: Literal["always", "sent", "never"] = "sent"
    logprobs_field: Literal["top_logprobs", "logprobs"] = "top_logprobs"
    most_logprobs: float = inf
    schema: Literal["json_schema", "json_object", ""] = "json_schema"
    effort: str = "reasoning_effort"
    efforts: tuple[str, ...] = ()
    temperature: float = inf
    stops: int = 4
    reasoning: str = ""
    models: str = ""
    docs: str = ""
    read: str = ""
    tried: tuple[str, ...] = ()

    @property
    def official_addresses(self) -> tuple[str, ...]:
        """Addresses of the provider's own servers, where its API key may be sent even if a file names them."""
        return (self.base_url, *self.regions) if self.base_url and self.key and self.hosts else ()

    def owns(self, base_url: str | None) -> bool:
        """Whether an address (None: the default one) is on one of the provider's own hosts."""
        host = urlsplit(base_url or self.base_url or "").hostname or ""
        return any(fnmatchcase(host, pattern) for pattern in self.hosts)

    def at(self, base_url: str | None) -> Preset:
        """The preset for requests to an address. With `only_there`, that is any compatible server's if the host is not its own.

        The key and the title stay.
        """
        if not self.only_there or self.owns(base_url):
            return self
        return Preset(self.name, self.title, key=self.key, base_url_env=self.base_url_env)

    def address(self, base_url: str | None) -> str | None:
        """The address to use: the given one, that of the environment, or the default. `path` is added to one without a path.

        None is the default of the provider's SDK, or unknown.
        """
        named = base_url or (os.environ.get(self.base_url_env) if self.base_url_env else None)
        if not named:
            return None if self.only_there else self.base_url
        if self.path and "://" not in named:  # OLLAMA_HOST may be a host, with or without a port
            port = urlsplit(self.base_url or "").port
            named = f"http://{named}" if port is None or urlsplit(f"//{named}").port else f"http://{named}:{port}"
        check_address(named)
        if not self.path:
            return named
        parts = urlsplit(named)
        return named if parts.path.strip("/") else parts._replace(path=self.path).geturl()


@cache
def presets() -> Mapping[str, Preset]:
    """All presets by name."""
    known = {field.name for field in fields(Preset)}
    found = {}
    for name, table in tomllib.loads(Path(__file__).with_name("presets.toml").read_text("utf-8")).items():
        if unknown := sorted(table.keys() - known):
            raise ValueError(f"presets.toml: [{name}] has the unknown field {unknown[0]!r}")
        given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
        found[name] = Preset(name, **given)
    return found


def preset_of(provider: str) -> Preset:
    """The preset of a provider; that of any compatible server, under this name, if the table has none."""
    return presets().get(provider) or replace(Preset(), name=provider, title=provider)


def provider_called(name: str) -> str | None:
    """The provider for another name of it, such as "xai" for "grok"; None if there is none."""
    return next((preset.name for preset in presets().values() if name.lower() in preset.also), None)


def with_effort(body: dict[str, Any], field: str, effort: str) -> None:
    """Put a reasoning effort into a request body. "a.b" is the field b of the object a."""
    outer, dot, inner = field.partition(".")
    body[outer] = {inner: effort} if dot else effort
