"""vLLM, as a server or inside this process: Chat Completions with its names for structured outputs, begun answers and chosen
log-probabilities."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from critic_prm.providers.openai import OpenAIProvider
from critic_prm.providers.provider import RawReply, Reply, Request, Wire
from critic_prm.providers.vllm_in_process import Inside

DEFAULT_URL = "http://localhost:8000/v1"
MODEL_IS_PATH = True
"""A model's name may be a folder; one that comes from a file is checked (see `critic_prm.data.trust`)."""


def connect(model: str, base_url: str | None) -> VLLMProvider:
    """VLLM_BASE_URL and VLLM_API_KEY are read from the environment. Without an address the model is loaded into this process
    where vLLM is installed (the extra `vllm`), and else looked for at a server on this machine.

    Both roads send the same bodies, so a reply that one of them brought serves the other, as long as the server calls the
    model by the same name. Nothing is loaded before the first request that the cache cannot answer.
    """
    base_url = base_url or os.environ.get("VLLM_BASE_URL")
    here = base_url is None and find_spec("vllm") is not None
    chat = OpenAIProvider(model, base_url or DEFAULT_URL, os.environ.get("VLLM_API_KEY") or "none", name="vllm")
    return VLLMProvider(model, None if here else chat.base_url, chat, Inside(model) if here else None)


@dataclass
class VLLMProvider:
    """What vLLM adds to Chat Completions, on top of a provider that speaks it; `inside` answers in place of a server.

    Log-probabilities are the model's own before temperature and top-p, unless the server was started with another
    --logprobs-mode; where structured outputs hold, they are taken over what the grammar allows at that place.
    `logprob_token_ids` in --extra-body replaces the alternatives of every token by those tokens.
    """

    model: str
    base_url: str | None
    chat: OpenAIProvider = field(repr=False)
    inside: Inside | None = field(default=None, repr=False)
    name: str = "vllm"
    gives: frozenset[str] = field(default=frozenset({"continue", "logprobs"}), repr=False)

    def __post_init__(self) -> None:
        if self.inside is not None:
            self.gives |= {"near"}

    @property
    def max_reply_bytes(self) -> int:
        return self.chat.max_reply_bytes

    @max_reply_bytes.setter
    def max_reply_bytes(self, most: int) -> None:
        self.chat.max_reply_bytes = most

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.chat.secrets

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

    async def complete(self, wire: Wire) -> RawReply:
        if self.inside is not None:
            return RawReply(await self.inside.complete(wire))
        return await self.chat.complete(wire)

    def read(self, raw: Mapping[str, Any]) -> Reply:
        return self.chat.read(raw)

    async def close(self) -> None:
        if self.inside is not None:
            await self.inside.close()
        await self.chat.close()
