"""Provider for a judge whose replies are all in the cache, as in cache.db.example. New requests fail."""

from __future__ import annotations

from critic_prm.errors import ProviderError
from critic_prm.providers.provider import Wire
from critic_prm.providers.scripted import ScriptedProvider


def connect(model: str, base_url: str | None) -> ScriptedProvider:
    """Open a provider that raises ProviderError (failure "run") for every request that it has to send."""

    def refuse(wire: Wire) -> ProviderError:
        return ProviderError(
            "recorded replies answer only what was asked when they were recorded; for anything else name a judge, such as"
            " --judge openai/MODEL",
            "run",
        )

    return ScriptedProvider(refuse, model=model, name="recorded")
