"""A prompt and response as one text, as RL trainers and pooling clients send them -> the problem and its steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from critic_prm.data.trajectory import split_steps
from critic_prm.errors import CriticPrmError
from critic_prm.serve.schemas import STEPS

TURNS = STEPS
"""The most turns of a chat in one text."""


class TooManyParts(CriticPrmError):
    """A text that would be cut into more parts than a request may have."""


_MARKERS = re.compile(
    r"<\|im_start\|>[ \t]{0,8}(?P<chatml>\w{1,32})\n"  # ChatML: Qwen and many others
    r"|<\|start_header_id\|>(?P<llama>\w{1,32})<\|end_header_id\|>"  # Llama 3
    r"|<start_of_turn>(?P<gemma>\w{1,32})\n"
    r"|<\|(?P<phi>system|user|assistant)\|>"
    r"|(?P<inst>\[INST\])|(?P<answer>\[/INST\])"
)
_NOISE = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|end_of_text|begin_of_text|end|eos|pad)\|>|<end_of_turn>|<bos>|<eos>|<pad>|</?s>"
)

WINDOW, LONGEST = 1 << 14, 128
"""Characters that one search looks through, and more than the longest match of the patterns above has."""


def _found(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """What `finditer` finds, by searches of bounded length: a search holds the interpreter for as long as it takes, and all
    other requests with it."""
    place = 0
    while place < len(text):
        match = pattern.search(text, place, place + WINDOW + LONGEST)
        if match is not None:
            yield match
        place = place + WINDOW if match is None else match.end()


def turns(text: str) -> list[tuple[str, str]]:
    """The turns of a text in a chat template, as (role, what was said); none for a text without roles."""
    marks = list(islice(_found(_MARKERS, text), TURNS + 1))
    if len(marks) > TURNS:
        raise TooManyParts(f"a text has more than {TURNS} turns")
    ends = [mark.start() for mark in marks[1:]] + [len(text)] * bool(marks)
    return [(_role(mark), clean(text[mark.end() : end])) for mark, end in zip(marks, ends, strict=True)]


def _role(mark: re.Match[str]) -> str:
    if mark["inst"] or mark["answer"]:
        return "user" if mark["inst"] else "assistant"
    name = mark["chatml"] or mark["llama"] or mark["gemma"] or mark["phi"]
    return "assistant" if name == "model" else name


def clean(text: str) -> str:
    """A text without the tokens that begin, end or pad it."""
    kept, end = [], 0
    for match in _found(_NOISE, text):
        kept.append(text[end : match.start()])
        end = match.end()
    return "".join([*kept, text[end:]]).strip()


def problem_and_response(text: str, prompt: str | None = None) -> tuple[str, str]:
    """The last question and what answers it.

    By the roles of a chat template; else `prompt`, where the text begins with it; else the text up to its first blank line.
    """
    if prompt is not None and text.startswith(prompt):
        asked = [said for role, said in turns(prompt) if role == "user" and said]
        return (asked[-1] if asked else clean(prompt)), clean(text[len(prompt) :])
    return in_turns(turns(text)) or _by_blank_line(clean(text), None if prompt is None else clean(prompt))


def in_turns(said: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """The last user turn and the assistant turns after it; None without a user turn."""
    last = next((index for index in range(len(said) - 1, -1, -1) if said[index][0] == "user"), None)
    if last is None:
        return None
    return said[last][1], "\n\n".join(text for role, text in said[last + 1 :] if role == "assistant")


def _by_blank_line(text: str, prompt: str | None) -> tuple[str, str]:
    if prompt is not None:
        return prompt, text.removeprefix(prompt).strip()
    problem, gap, response = text.partition("\n\n")
    return (problem.strip(), response.strip()) if gap else ("", text)


def steps_of(response: str, tag: str) -> list[str]:
    """The steps of a response: each up to a `tag`, what follows the last one left out, as a PRM with step tags scores it;
    without a tag by marks or blank lines. An empty response is one empty step: the critic says what it is worth."""
    if (found := response.count(tag)) > STEPS:
        raise TooManyParts(f"a solution has more than {STEPS} steps")
    if found:
        return [part.strip() for part in response.split(tag)[:-1]]
    return split_steps(response) or [response.strip()]
