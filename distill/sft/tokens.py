"""Tokenize conversations with a mask of the assistant tokens, as they will be generated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from critic_prm.errors import InputError

Messages: TypeAlias = Sequence[Mapping[str, str]]
Tokenizer: TypeAlias = Any

_THINKS = re.compile(r"<(think|thinking|reasoning)>\s*\Z")


PLAIN = (
    "{%- for message in messages -%}"
    "{{ message['role'] | capitalize + ':\\n' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\\n\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ 'Assistant:\\n' }}{%- endif -%}"
)
"""Chat template for a base that has none. It is saved with the student, so that a server prompts it as in training."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenized conversation: `ids` (n,) int32, and `learn` (n,) bool, which ids carry loss.

    These are the assistants' tokens, including the token that ends the turn.
    """

    ids: NDArray[np.int32]
    learn: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Ending:
    """How the template ends an assistant's turn.

    `text` is the part up to and including the token `id`; it is empty if there is no such token and the tokenizer's eos is
    used. `whole` is everything that the template puts after an answer.
    """

    id: int
    text: str
    whole: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """One assistant turn: the prompt (text), the answer to learn (ids), and the text of both together."""

    prompt: str
    answer: list[int]
    text: str


def open_chat_tokenizer(base: str) -> Tokenizer:
    """Open the base's tokenizer and make sure that it has a chat template. Raises InputError."""
    from distill.training.network import open_tokenizer

    tokenizer = open_tokenizer(base)
    if tokenizer.eos_token_id is None:
        raise InputError(base, "its tokenizer has no end-of-text token", "choose a base whose tokenizer has an eos_token")
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN
    return tokenizer


def sequences(tokenizer: Tokenizer, messages: Messages, where: str = "a chat", ending: Ending | None = None) -> list[Tokens]:
    """Tokenize the conversation as one sequence, or as one per assistant turn if the template changes earlier answers.

    Some templates do, for example by removing the thinking from earlier answers. A prompt and its answer are tokenized
    separately, as in generation, so no token spans both, and the mask follows from the part that an id came from. `ending` is
    `ending_of(tokenizer)`, if already known. Raises InputError for a conversation that the template rejects or that has no
    assistant.
    """
    ending = ending or ending_of(tokenizer)
    places = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    if not places:
        raise InputError(where, "it has no assistant message", "a chat must end with the assistant's answer")
    turns = [_turn(tokenizer, messages, place, ending, where) for place in places]
    pairs = list(pairwise(turns))
    if not all(after.prompt.startswith(before.text) for before, after in pairs):
        return [_joined([(_ids(tokenizer, turn.prompt), turn.answer)]) for turn in turns]
    texts = [turns[0].prompt, *(after.prompt[len(before.text) :] for before, after in pairs)]
    return [_joined([(_ids(tokenizer, text), turn.answer) for text, turn in zip(texts, turns, strict=True)])]


def prompt_ids(tokenizer: Tokenizer, messages: Messages, where: str = "a chat") -> list[int]:
    """Tokenize the prompt of the student: the messages and the start of its answer."""
    return _ids(tokenizer, _render(tokenizer, messages, True, where))


def ending_of(tokenizer: Tokenizer) -> Ending:
    """Find how the template ends an assistant's turn by rendering an example."""
    text = _render(tokenizer, [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": "ANSWER"}], False)
    whole = text.rpartition("ANSWER")[2]
    special = set(tokenizer.all_special_ids) | {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    for id in _ids(tokenizer, whole):
        if id in special:
            token = tokenizer.convert_ids_to_tokens(id)
            return Ending(id, whole[: whole.index(token) + len(token)], whole)
    return Ending(int(tokenizer.eos_token_id), "", whole)


def _turn(tokenizer: Tokenizer, messages: Messages, place: int, ending: Ending, where: str) -> _Turn:
    prompt = _render(tokenizer, messages[:place], True, where)
    text = _render(tokenizer, messages[: place + 1], False, where)
    if text.startswith(prompt):
        body = text[len(prompt) :].removesuffix(ending.whole)
    else:
        # The template starts an answer differently in the prompt: with an open thinking block, which is closed here.
        body, thinking = messages[place]["content"], _THINKS.search(prompt)
        if thinking:
            inner = re.match(rf"\s*<{thinking.group(1)}>", body)
            body = body[inner.end() :] if inner else f"\n</{thinking.group(1)}>\n\n{body}"
    ids = _ids(tokenizer, body + ending.text)
    if not ids or ids[-1] != ending.id:
        ids.append(ending.id)
    return _Turn(prompt, ids, prompt + body + ending.text)


def _render(tokenizer: Tokenizer, messages: Messages, for_answer: bool, where: str = "a chat") -> str:
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=for_answer))
    except Exception as error:  # templates raise arbitrary exceptions
        roles = ", ".join(message.get("role", "none") for message in messages)
        raise InputError(
            where, f"the base's chat template rejects a conversation of {roles}: {error}", "choose another base"
        ) from None


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _joined(parts: Sequence[tuple[list[int], list[int]]]) -> Tokens:
    ids: list[int] = []
    learn: list[bool] = []
    for prompt, answer in parts:
        ids += [*prompt, *answer]
        learn += [False] * len(prompt) + [True] * len(answer)
    return Tokens(np.array(ids, np.int32), np.array(learn, np.bool_))
