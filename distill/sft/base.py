"""The name of a base model in; its tokenizer, with a chat template, and the causal model out."""

from __future__ import annotations

from typing import Any

from critic_prm.errors import InputError

PLAIN = (
    "{%- for message in messages -%}"
    "{{ message['role'] | capitalize + ':\\n' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\\n\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Assistant:\\n' }}{%- endif -%}"
)
"""The chat template of a base that has none. It is saved with the student, so that a server asks as training did."""


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a hub name or a local folder, with a chat template. Raises InputError."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(name, f"no tokenizer can be loaded from it: {_first_line(error)}", _MEND) from None
    if tokenizer.eos_token_id is None:
        raise InputError(name, "its tokenizer has no token that ends a text", "choose a base whose tokenizer has an eos_token")
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN
    return tokenizer


def load_causal(name: str, dtype: Any) -> Any:
    """The causal language model of a hub name or a local folder, in evaluation mode. Raises InputError."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(name)
        kinds = config.architectures or []
        if kinds and not any("CausalLM" in kind or "LMHead" in kind for kind in kinds):
            raise InputError(name, f"it is a {kinds[0]}, which does not write text", "name a causal language model")
        return AutoModelForCausalLM.from_pretrained(name, dtype=dtype).eval()
    except (OSError, ValueError, KeyError) as error:
        raise InputError(name, f"no causal language model can be loaded from it: {_first_line(error)}", _MEND) from None


_MEND = "name a folder with config.json, tokenizer and weights, or a model of the hub"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:200]
