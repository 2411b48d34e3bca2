"""How an answer ended: the finish reasons of all servers -> ours, and those that say that the server broke the answer off."""

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
"""In lower case. What is in no list ("tool_calls", or a word that nobody has documented) is "other": an incomplete answer."""

BROKEN = frozenset({"error", "abort", "aborted", "cancelled", "insufficient_system_resource", "network_error"})
"""The server broke the answer off: the words of OpenRouter, Mistral, vLLM, SGLang, DeepSeek and Zhipu."""

FINISH: dict[str, Finish] = {word: finish for finish, words in WORDS.items() for word in words.split()}


def finish_of(reason: Any, absent: Finish = "stop") -> Finish:
    """`absent` is what no reason at all means. Raises a transient ProviderError for an answer that was broken off."""
    word = str(reason or "").lower()
    if word in BROKEN:
        raise ProviderError(f"the server broke the answer off (finish reason {word!r})", "transient", status=200)
    return FINISH.get(word, "other") if word else absent
