"""A conversation in; token ids out, with which of them the student learns: the assistant's, each as it will be generated."""

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
"""The chat template of a base that has none. It is saved with the student, so that a server asks as training did."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """`ids` (n,) int32, and `learn` (n,) bool: which ids carry loss, those of assistants with the token that ends the turn."""

    ids: NDArray[np.int32]
    learn: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Ending:
    """How the template ends an assistant's turn: the `text` up to and with the token `id`; no text where it has no such token
    and the tokenizer's eos stands in. `whole` is all that the template puts behind an answer."""

    id: int
    text: str
    whole: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """What an assistant is asked with (text), what it should say (ids), and the text of both together."""

    asked: str
    answer: list[int]
    said: str


def open_chat_tokenizer(base: str) -> Tokenizer:
    """The base's tokenizer, with a chat template. Raises InputError."""
    from distill.training.network import open_tokenizer

    tokenizer = open_tokenizer(base)
    if tokenizer.eos_token_id is None:
        raise InputError(base, "its tokenizer has no token that ends a text", "choose a base whose tokenizer has an eos_token")
    if tokenizer.chat_template is None:
        tokenizer.chat_template = PLAIN
    return tokenizer


def sequences(tokenizer: Tokenizer, messages: Messages, where: str = "a chat", ending: Ending | None = None) -> list[Tokens]:
    """The conversation as one sequence; where the template shows earlier answers otherwise than they were given (without
    their thinking, say), a sequence for each of its assistant turns.

    A prompt and its answer are tokenized apart, as in generation, so no token reaches across the seam, and the mask follows
    from which part an id came from. `ending` is `ending_of(tokenizer)`, where that is known already. Raises InputError for a
    conversation that the template refuses or that has no assistant.
    """
    ending = ending or ending_of(tokenizer)
    places = [place for place, message in enumerate(messages) if message.get("role") == "assistant"]
    if not places:
        raise InputError(where, "no assistant says anything in it", "a chat to learn from ends with the assistant's answer")
    turns = [_turn(tokenizer, messages, place, ending, where) for place in places]
    pairs = list(pairwise(turns))
    if not all(after.asked.startswith(before.said) for before, after in pairs):
        return [_joined([(_ids(tokenizer, turn.asked), turn.answer)]) for turn in turns]
    texts = [turns[0].asked, *(after.asked[len(before.said) :] for before, after in pairs)]
    return [_joined([(_ids(tokenizer, text), turn.answer) for text, turn in zip(texts, turns, strict=True)])]


def prompt_ids(tokenizer: Tokenizer, messages: Messages, where: str = "a chat") -> list[int]:
    """What the student is asked with: the messages and the opening of its answer."""
    return _ids(tokenizer, _render(tokenizer, messages, True, where))


def ending_of(tokenizer: Tokenizer) -> Ending:
    """Found by letting the template say a word."""
    said = _render(tokenizer, [{"role": "user", "content": "QUESTION"}, {"role": "assistant", "content": "ANSWER"}], False)
    whole = said.rpartition("ANSWER")[2]
    special = set(tokenizer.all_special_ids) | {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    for id in _ids(tokenizer, whole):
        if id in special:
            token = tokenizer.convert_ids_to_tokens(id)
            return Ending(id, whole[: whole.index(token) + len(token)], whole)
    return Ending(int(tokenizer.eos_token_id), "", whole)


def _turn(tokenizer: Tokenizer, messages: Messages, place: int, ending: Ending, where: str) -> _Turn:
    asked = _render(tokenizer, messages[:place], True, where)
    said = _render(tokenizer, messages[: place + 1], False, where)
    if said.startswith(asked):
        body = said[len(asked) :].removesuffix(ending.whole)
    else:
        # The template opens an answer in a way that it does not show it in: with a thinking block, which is closed here.
        body, opened = messages[place]["content"], _THINKS.search(asked)
        if opened:
            inner = re.match(rf"\s*<{opened.group(1)}>", body)
            body = body[inner.end() :] if inner else f"\n</{opened.group(1)}>\n\n{body}"
    ids = _ids(tokenizer, body + ending.text)
    if not ids or ids[-1] != ending.id:
        ids.append(ending.id)
    return _Turn(asked, ids, asked + body + ending.text)


def _render(tokenizer: Tokenizer, messages: Messages, asks: bool, where: str = "a chat") -> str:
    try:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=asks))
    except Exception as error:  # a template raises what it likes
        roles = ", ".join(message.get("role", "none") for message in messages)
        raise InputError(
            where, f"the base's chat template refuses a conversation of {roles}: {error}", "choose another base"
        ) from None


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def _joined(parts: Sequence[tuple[list[int], list[int]]]) -> Tokens:
    ids: list[int] = []
    learn: list[bool] = []
    for asked, answer in parts:
        ids += [*asked, *answer]
        learn += [False] * len(asked) + [True] * len(answer)
    return Tokens(np.array(ids, np.int32), np.array(learn, np.bool_))
