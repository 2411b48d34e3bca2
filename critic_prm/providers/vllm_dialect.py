"""Convert between Chat Completions bodies and vLLM's offline `LLM.chat`, by the rules of vLLM's server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from critic_prm.errors import ProviderError
from critic_prm.providers.provider import Wire

CHAT = (
    "add_generation_prompt",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
    "mm_processor_kwargs",
    "tools",
)
"""Fields of a body that are passed to `LLM.chat` unchanged."""

ELSEWHERE = frozenset({"model", "messages", "logprobs", "top_logprobs", "max_completion_tokens", "response_format"})
"""Fields that are passed under other names."""

SILENT = frozenset({"user", "reasoning_effort", "service_tier", "metadata", "store"})
"""Fields that do not affect a reply or are handled elsewhere."""

OWN = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "stop_token_ids")
"""Sampling parameters that the model's generation_config.json may set; a request's values take precedence."""

LEAST = -9999.0
"""The log-probability that vLLM's server reports for a probability of 0."""


def chat_of(wire: Wire) -> dict[str, Any]:
    """Return the arguments of `LLM.chat` that control how messages become a prompt."""
    chat = {name: wire[name] for name in CHAT if wire.get(name) is not None}
    if (effort := wire.get("reasoning_effort")) is not None:
        told = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
        chat["chat_template_kwargs"] = told | dict(chat.get("chat_template_kwargs") or {})
    return chat


def sampling_of(wire: Wire, own: Any) -> Any:
    """Return the SamplingParams of a body; `own` are the model's defaults.

    Raises ProviderError for a field that would be ignored.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    known = frozenset(SamplingParams.__struct_fields__)
    given = {name: value for name, value in wire.items() if value is not None and name not in (*CHAT, *ELSEWHERE, *SILENT)}
    if unknown := sorted(set(given) - known):
        raise ProviderError(f"vLLM in this process knows no parameter {unknown[0]!r}", "run")
    arguments = {name: getattr(own, name) for name in OWN} | given
    arguments["max_tokens"] = wire.get("max_completion_tokens") or wire.get("max_tokens")
    if wire.get("logprobs") and "logprob_token_ids" not in given:
        arguments["logprobs"] = wire.get("top_logprobs") or 0
    if "logit_bias" in given:
        arguments["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    if (obey := given.get("structured_outputs") or _structure(wire.get("response_format"))) is not None:
        arguments["structured_outputs"] = StructuredOutputsParams(**obey)
    return SamplingParams(**arguments)


def _structure(said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Convert OpenAI's response_format to vLLM's structured outputs."""
    if said is None or said.get("type") == "text":
        return None
    if said.get("type") == "json_schema":
        return {"json": said["json_schema"]["schema"]}
    if said.get("type") == "json_object":
        return {"json_object": True}
    raise ProviderError(f"vLLM in this process knows no response_format of type {said.get('type')!r}", "run")


def body_of(model: str, wire: Wire, output: Any, now: float) -> dict[str, Any]:
    """Convert a finished RequestOutput to the body of a chat completion."""
    import vllm

    prompt = len(output.prompt_token_ids or ())
    written = sum(len(choice.token_ids) for choice in output.outputs)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": output.num_cached_tokens or 0},
    }
    return {
        "object": "chat.completion",
        "created": int(now),
        "model": model,
        "choices": [_choice(choice, wire) for choice in output.outputs],
        "system_fingerprint": f"vllm-{vllm.__version__}-in-process",
        "usage": usage,
    }


def _choice(choice: Any, wire: Wire) -> dict[str, Any]:
    body = {
        "index": choice.index,
        "message": {"role": "assistant", "content": choice.text},
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }
    if wire.get("logprobs") and choice.logprobs is not None:
        most = None if wire.get("logprob_token_ids") else wire.get("top_logprobs") or 0
        content = [_token(place, name, most) for name, place in zip(choice.token_ids, choice.logprobs, strict=True)]
        body["logprobs"] = {"content": content}
    return body


def _token(place: Mapping[int, Any], name: int, most: int | None) -> dict[str, Any]:
    top = [_spelled(entry) for entry in place.values()]
    return {**_spelled(place[name]), "top_logprobs": top if most is None or most < 0 else top[:most]}


def _spelled(entry: Any) -> dict[str, Any]:
    return {"token": entry.decoded_token or "", "logprob": max(entry.logprob, LEAST)}
