"""Parse the stored body of a reply from any provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from critic_prm.errors import ProviderError
from critic_prm.providers.anthropic import AnthropicProvider
from critic_prm.providers.openai import read_chat
from critic_prm.providers.provider import Reply, reading_answer


def stored_reply(raw: Mapping[str, Any]) -> Reply | None:
    """Parse a stored body; its structure shows which API format it has. None if it cannot be parsed."""
    try:
        with reading_answer():
            return AnthropicProvider("", None, None).read(raw) if isinstance(raw.get("content"), list) else read_chat(raw)
    except ProviderError:
        return None
