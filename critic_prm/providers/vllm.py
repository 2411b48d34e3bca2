"""Provider for vLLM, as a server or in this process.

It uses Chat Completions with vLLM's parameters for structured outputs, continued replies and selected log-probabilities.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar

from critic_prm.errors import UsageError
from critic_prm.option import Option
from critic_prm.providers.openai import NO_KEY, OpenAIProvider, read_chat
from critic_prm.providers.presets import preset_of
from critic_prm.providers.provider import Capability, Provider, RawReply, Request, Wire
from critic_prm.providers.vllm_in_process import ENGINE, Inside
from critic_prm.registry import install

PRESET = preset_of("vllm")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the provider."""

    engine: Annotated[dict[str, Any], Option(envvar=ENGINE)] = field(default_factory=dict)
    """Arguments of `vllm.LLM` for a model in this process, as JSON, such as {"max_model_len": 8192}."""


@dataclass
class VLLMProvider(Provider):
    """Adds vLLM's extensions to the Chat Completions provider `chat`. If set, `inside` answers instead of a server.

    Log-probabilities are those of the model before temperature and top-p, unless the server was started with another
    --logprobs-mode. With structured outputs, they are computed over the tokens that the grammar allows at that position.
    `logprob_token_ids` in --extra-body replaces the alternatives of every token by those tokens.
    """

    model_is_path: ClassVar = True

    model: str
    base_url: str | None
    chat: OpenAIProvider = field(repr=False)
    inside: Inside | None = field(default=None, repr=False)
    name: str = "vllm"

    read = staticmethod(read_chat)

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: Options = Options()) -> VLLMProvider:
        """Open a provider with VLLM_BASE_URL and VLLM_API_KEY from the environment.

        Without an address, the model is loaded into this process if vLLM is installed (the extra `vllm`); otherwise a server on
        this machine is used. Both send the same bodies, so they share cached replies if the server uses the same model name.
        Nothing is loaded before the first request that the cache cannot answer.
        """
        named = base_url or os.environ.get(PRESET.base_url_env)
        here = not named and find_spec("vllm") is not None
        chat = OpenAIProvider(model, named or PRESET.base_url, os.environ.get(PRESET.key) or NO_KEY, name="vllm")
        if not named:
            chat.not_running = (
                f"vLLM is not installed here ({install('vllm')}), and no server answers at {chat.base_url}:"
                f" start one (`{PRESET.start}`), or name its address with --base-url"
            )
        return cls(model, None if here else chat.base_url, chat, Inside(model, options.engine) if here else None)

    @property
    def capabilities(self) -> Collection[Capability]:
        return ("continue", "logprobs") if self.inside is None else ("continue", "logprobs", "in-process")

    @property
    def key_variable(self) -> str:
        return self.chat.key_variable

    def send_with(self, headers: Mapping[str, str], key_variable: str | None) -> None:
        if self.inside is not None:
            raise UsageError("vllm without --base-url runs in this process; leave out --header and --api-key-env")
        self.chat.send_with(headers, key_variable)

    @property
    def gpus(self) -> float:
        return self.inside.gpus if self.inside is not None else 0

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
            # add_generation_prompt defaults to true in vLLM, which rejects both being true.
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        if "logprob_token_ids" in body:
            body["logprobs"] = True
            body.pop("top_logprobs", None)
        return body

    async def complete(self, wire: Wire) -> RawReply:
        if self.inside is not None:
            return RawReply(await self.inside.complete(wire))
        return await self.chat.complete(wire)

    async def close(self) -> None:
        if self.inside is not None:
            await self.inside.close()
        await self.chat.close()


PROVIDER = VLLMProvider
