"""Provider for a judge whose replies are all in the cache, as in cache.db.example. New requests fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from critic_prm.errors import ProviderError
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider


@dataclass
class RecordedProvider(ScriptedProvider):
    """Raises ProviderError (failure "run") for every request that it has to send."""

    model_is_path: ClassVar = False
    cache_only: ClassVar = True

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: None = None) -> RecordedProvider:
        return cls(_refuse, model=model, name="recorded")


PROVIDER = RecordedProvider


def _refuse(wire: Wire) -> ProviderError:
    return ProviderError(
        "recorded replies answer only what was asked when they were recorded; name the cache that has them with --db, or"
        " another judge, such as --judge openai/MODEL",
        "run",
    )
