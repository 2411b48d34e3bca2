"""Which tokens of a conversation are learned: the assistant's and no others, each as it will be generated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers")

from critic_prm.errors import InputError
from distill.sft.tokens import PLAIN, ending_of, prompt_ids, sequences

TALK = [
    {"role": "system", "content": "You judge."},
    {"role": "user", "content": "1 + 1 = 2?"},
    {"role": "assistant", "content": "It is correct."},
    {"role": "user", "content": "1 + 1 = 3? It is correct."},
    {"role": "assistant", "content": "It is wrong."},
]
THINKING = (  # as Qwen3's: thinking is shown in the last answer alone
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{{ m['content'] if loop.last else m['content'].split('</think>')[-1].lstrip('\n') }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OPENING = (  # as R1's distilled models: the prompt opens the thinking, the answer is shown without
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'].split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
SILENT = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [message["content"] for message in TALK] * 3


def parts(tokenizer: Any, found: Any) -> list[str]:
    """The text of each run of learned tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], found.learn.astype(int), [0]])))
    return [tokenizer.decode(found.ids[a:b]) for a, b in edges.reshape(-1, 2)]


def test_every_answer_is_learned_with_its_end_and_nothing_else(made: SimpleNamespace, texts: list[str]) -> None:
    tokenizer = made.tokenizer_of(texts, made.chatml)
    (found,) = sequences(tokenizer, TALK)
    assert parts(tokenizer, found) == ["It is correct.<|im_end|>", "It is wrong.<|im_end|>"]
    assert tokenizer.decode(found.ids) == tokenizer.apply_chat_template(TALK, tokenize=False).rstrip("\n")
    # What comes before an answer is, token for token, what a server will be sent.
    first = int(np.flatnonzero(found.learn)[0])
    assert found.ids[:first].tolist() == prompt_ids(tokenizer, TALK[:2])
    last = int(np.flatnonzero(~found.learn)[-1]) + 1
    assert found.ids[:last].tolist() == prompt_ids(tokenizer, TALK[:4])


def test_answers_that_the_template_shows_otherwise_later_are_sequences_of_their_own(
    made: SimpleNamespace, texts: list[str]
) -> None:
    tokenizer = made.tokenizer_of(texts, THINKING)
    thought = [dict(m) for m in TALK]
    thought[2]["content"] = "<think>Hm.</think>\nIt is correct."
    one, two = sequences(tokenizer, thought)
    assert parts(tokenizer, one) == ["<think>Hm.</think>\nIt is correct.<|im_end|>"]
    assert parts(tokenizer, two) == ["It is wrong.<|im_end|>"]
    assert "Hm." not in tokenizer.decode(two.ids)
    (together,) = sequences(tokenizer, TALK)
    assert len(parts(tokenizer, together)) == 2


@pytest.mark.parametrize(
    ("content", "learned"),
    [("It is wrong.", "\n</think>\n\nIt is wrong."), ("<think>\nHm.\n</think>\nIt is wrong.", "\nHm.\n</think>\nIt is wrong.")],
)
def test_an_answer_follows_the_thinking_that_the_prompt_opens(
    made: SimpleNamespace, texts: list[str], content: str, learned: str
) -> None:
    tokenizer = made.tokenizer_of(texts, OPENING)
    (found,) = sequences(tokenizer, [*TALK[:2], {"role": "assistant", "content": content}])
    assert parts(tokenizer, found) == [f"{learned}<|im_end|>"]
    assert tokenizer.decode(found.ids[~found.learn]).endswith("<|im_start|>assistant\n<think>\n")


@pytest.mark.parametrize("template", [PLAIN, SILENT])
def test_an_answer_ends_with_eos_where_the_template_has_no_end_of_its_own(
    made: SimpleNamespace, texts: list[str], template: str
) -> None:
    tokenizer = made.tokenizer_of(texts, template)
    found = sequences(tokenizer, TALK)
    assert [text for one in found for text in parts(tokenizer, one)] == ["It is correct.<|end|>", "It is wrong.<|end|>"]
    assert ending_of(tokenizer).id == tokenizer.eos_token_id


def test_a_conversation_that_cannot_be_learned_says_where_it_stands(made: SimpleNamespace, texts: list[str]) -> None:
    tokenizer = made.tokenizer_of(texts, made.chatml)
    with pytest.raises(InputError, match=r"chats.jsonl:3: it has no assistant message"):
        sequences(tokenizer, TALK[:2], "chats.jsonl:3")
    tokenizer.chat_template = "{{ raise_exception('no system message, please') }}"
    with pytest.raises(InputError, match="rejects a conversation of"):
        sequences(tokenizer, TALK)
