"""Map the finish reasons of all servers to ours, and detect replies that the server aborted."""

from __future__ import annotations

from typing import Any

from critic_prm.errors import ProviderError
from critic_prm.providers.provider import Finish

WORDS: dict[Finish, str] = {
    "stop": "stop eos eos_token stop_token end_turn stop_sequence complete completed",
    "length": "length max_tokens max_output_tokens model_length model_context_window_exceeded",
    "filter": "content_filter safety sensitive",
    "refusal": "refusal",
}
"""Servers' finish reasons in lower case. Any other one ("tool_calls", or an undocumented one) maps to "other" (incomplete)."""

BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"})
"""Finish reasons of aborted replies at OpenRouter, Mistral, vLLM, SGLang, DeepSeek and Zhipu."""

FINISH: dict[str, Finish] = {word: finish for finish, words in WORDS.items() for word in words.split()}


def finish_of(reason: Any, absent: Finish = "stop") -> Finish:
    """Map a finish reason; `absent` is the result if there is none. Raises a transient ProviderError for an aborted reply."""
    word = str(reason or "").lower()
    if word in BROKEN:
        raise ProviderError(f"the server broke the answer off (finish reason {word!r})", "transient", status=200)
    return FINISH.get(word, "other") if word else absent
