"""vLLM's own server: Chat Completions, with its names for structured outputs, begun answers and chosen log-probabilities."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from critic_prm.provider import Arrival, Reply, Request, Wire
from critic_prm.providers.openai import OpenAIProvider

DEFAULT_URL = "http://localhost:8000/v1"


def connect(model: str, base_url: str | None) -> VLLMProvider:
    """VLLM_BASE_URL and VLLM_API_KEY are read from the environment; without them, the server is on this machine."""
    base_url = base_url or os.environ.get("VLLM_BASE_URL") or DEFAULT_URL
    chat = OpenAIProvider(model, base_url, os.environ.get("VLLM_API_KEY") or "none", name="vllm")
    return VLLMProvider(model, base_url, chat)


@dataclass
class VLLMProvider:
    """What vLLM adds to Chat Completions, on top of a provider that speaks it.

    Log-probabilities are the model's own unless the server was started with another --logprobs-mode. `logprob_token_ids` in
    --extra-body replaces the alternatives of every token by those tokens.
    """

    model: str
    base_url: str | None
    chat: OpenAIProvider = field(repr=False)
    name: str = "vllm"
    gives: frozenset[str] = field(default=frozenset({"continue", "logprobs"}), repr=False)

    def wire(self, request: Request) -> Wire:
        body = self.chat.wire(replace(request, schema=None))
        if request.schema is not None:
            body["structured_outputs"] = {"json": request.schema}
        if request.continues:
            # Its default for the first is true, and both true at once are refused.
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        if "logprob_token_ids" in body:
            body["logprobs"] = True
            body.pop("top_logprobs", None)
        return body

    async def complete(self, wire: Wire) -> Arrival:
        return await self.chat.complete(wire)

    def read(self, raw: Mapping[str, Any]) -> Reply:
        return self.chat.read(raw)

    async def close(self) -> None:
        await self.chat.close()
