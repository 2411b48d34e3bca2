"""Split a prompt and response in one text, as sent by RL trainers and pooling clients, into problem and steps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from critic_prm.data.trajectory import split_steps
from critic_prm.errors import CriticPrmError
from critic_prm.serve.schemas import STEPS

TURNS = STEPS
"""Maximum number of chat turns in one text."""


class TooManyParts(CriticPrmError):
    """A text that would be split into more parts than a request may have."""


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
"""Characters per regex search, and an upper limit on the length of a match of the patterns above."""


def _found(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches of `finditer`, found by searches of bounded length. A regex search holds the GIL, so a long one would block
    all other requests."""
    place = 0
    while place < len(text):
        match = pattern.search(text, place, place + WINDOW + LONGEST)
        if match is not None:
            yield match
        place = place + WINDOW if match is None else match.end()


def turns(text: str) -> list[tuple[str, str]]:
    """The turns of a text in a chat template, as (role, content); empty for a text without roles."""
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
    """The text without its begin, end and padding tokens."""
    kept, end = [], 0
    for match in _found(_NOISE, text):
        kept.append(text[end : match.start()])
        end = match.end()
    return "".join([*kept, text[end:]]).strip()


def problem_and_response(text: str, prompt: str | None = None) -> tuple[str, str]:
    """The last question and the response to it.

    If the text begins with `prompt`, it is split there. Otherwise the roles of a chat template decide, then `prompt`, and
    without one the first blank line separates problem and response.
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
    """The steps of a response. Each step ends with a `tag`, and text after the last tag is dropped, as a PRM with step tags
    scores it. Without tags, steps are split at "Step k:" markers or blank lines. An empty response is one empty step, which the
    critic judges."""
    if (found := response.count(tag)) > STEPS:
        raise TooManyParts(f"a solution has more than {STEPS} steps")
    if found:
        return [part.strip() for part in response.split(tag)[:-1]]
    return split_steps(response) or [response.strip()]
