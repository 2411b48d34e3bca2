"""Provider for all models that the package `litellm` reaches: Bedrock, Vertex, native Gemini, models with the Responses API.

The model is LiteLLM's name of it, such as litellm/bedrock/MODEL. LiteLLM finds keys and addresses in its own environment
variables. The bodies are those of Chat Completions, and so are the replies that LiteLLM makes of its providers' answers.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import orjson

from critic_prm.errors import ConfigError, ProviderError
from critic_prm.providers.addresses import secrets_in
from critic_prm.providers.failures import allowance, failed, without_echoes
from critic_prm.providers.openai import OpenAIProvider, read_chat
from critic_prm.providers.provider import MAX_REPLY_BYTES, Provider, RawReply, Request, Wire
from critic_prm.registry import extra

CREDENTIALS = re.compile("unable to locate credentials|default credentials were not found|missing credentials", re.IGNORECASE)
"""What cloud SDKs say without credentials; LiteLLM reports it as a failed connection."""


@dataclass
class LiteLLMProvider(Provider):
    """Sends requests with `litellm.acompletion`. `key` and `base_url` are passed on if given."""

    files_need_trust: ClassVar = True

    model: str
    base_url: str | None = None
    key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    name: str = "litellm"
    max_reply_bytes: int = MAX_REPLY_BYTES
    own_key_variable: str = ""

    read = staticmethod(read_chat)

    @classmethod
    def connect(cls, model: str, base_url: str | None, options: None = None) -> LiteLLMProvider:
        """Open the provider. The package is imported with the first request."""
        return cls(model, base_url)

    @property
    def key_variable(self) -> str:
        return self.own_key_variable or "the variable that LiteLLM reads for this provider"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of all variables that may hold credentials: LiteLLM does not say which it reads."""
        held = (value for name, value in os.environ.items() if _SECRET.search(name))
        return tuple(filter(None, (self.key, *held, *self.headers.values(), *secrets_in(self.base_url))))

    def send_with(self, headers: Mapping[str, str], key_variable: str | None) -> None:
        self.headers = headers
        if key_variable is not None:
            self.own_key_variable, self.key = key_variable, os.environ.get(key_variable)

    def wire(self, request: Request) -> Wire:
        return OpenAIProvider(self.model, self.base_url or "", "", name=self.name).wire(request)

    async def complete(self, wire: Wire) -> RawReply:
        if self.own_key_variable and not self.key:
            raise ConfigError(f"litellm needs a key: set {self.own_key_variable}")
        litellm = _imported()
        given: dict[str, Any] = {"base_url": self.base_url, "api_key": self.key, "extra_headers": dict(self.headers) or None}
        given = {name: value for name, value in given.items() if value is not None}
        try:
            reply = await litellm.acompletion(**wire, **given, num_retries=0, max_retries=0, drop_params=False)
        except ImportError as error:
            raise ConfigError(f"litellm/{self.model} needs a further package: {error}") from None
        except Exception as error:
            raise without_echoes(_failure(error, self.key_variable), wire, self.secrets) from None
        hidden = vars(reply).get("_hidden_params") or {}
        return RawReply(orjson.loads(reply.model_dump_json()), allowance(_headers(hidden.get("additional_headers"))))

    async def close(self) -> None:
        import sys

        if (litellm := sys.modules.get("litellm")) is not None:
            await litellm.close_litellm_async_clients()


PROVIDER = LiteLLMProvider

_SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")


def _imported() -> Any:
    """The package, without what it does by itself: fetch a price table when it is imported, print hints, report usage."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    litellm = extra("litellm", "litellm", "the provider litellm")
    litellm.suppress_debug_info, litellm.telemetry = True, False
    warnings.filterwarnings("ignore", ".*`ReadOnly` qualifier", UserWarning)  # its types make pydantic warn on first use
    return litellm


def _failure(error: Exception, key: str) -> ProviderError:
    """Convert an exception of LiteLLM, which has the status and the text of the provider's answer."""
    found, said = vars(error), " ".join(str(error).split())
    status = found.get("status_code")
    if CREDENTIALS.search(said):
        status = 401
    if not isinstance(status, int):
        return ProviderError(
            f"{type(error).__name__}: {said[:240]}", "transient", detail=f"{type(error).__name__}: {said[:400]}"
        )
    response = found.get("response")
    headers = _headers(found.get("headers")) or _headers(response.headers if response is not None else None)
    code = found.get("code")
    if status == 429 and found.get("llm_provider") in ("openai", "azure") and "exceeded your current quota" in said:
        code = "insufficient_quota"  # LiteLLM leaves the code out; at Gemini the same words mean a limit per minute
    return failed(status, headers, {"error": {"message": said, "code": code, "type": type(error).__name__}}, key)


def _headers(stated: Any) -> dict[str, str]:
    """Headers in lower case. LiteLLM puts a prefix before those of the provider."""
    return {str(name).lower().removeprefix("llm_provider-"): str(value) for name, value in dict(stated or {}).items()}
