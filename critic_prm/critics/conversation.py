"""Replies of one conversation -> one reply to read, and the request that goes on from there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from critic_prm.providers.provider import Message, Reply, Request, Sampling, TokenLogprob, Usage
from critic_prm.styles.reader import without_thinking

_OPENED = re.compile(r"\s*<(\w+)>")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with a judge.

    `messages` end with a question. `begun` is what the judge's answer to it begins with, where it is continued rather than
    asked anew. `parts` are the replies so far, each after the text that stands between it and the one before.
    """

    messages: tuple[Message, ...]
    begun: str = ""
    parts: tuple[tuple[str, Reply], ...] = ()
    joint: str = ""

    def request(self, sampling: Sampling, schema: Mapping[str, Any] | None) -> Request:
        """What to send next."""
        if not self.begun:
            return Request(self.messages, sampling, schema)
        return Request((*self.messages, Message("assistant", self.begun)), sampling, None, continues=True)

    def heard(self, reply: Reply) -> Conversation:
        return Conversation(self.messages, self.begun, (*self.parts, (self.joint, reply)))

    def ask(self, text: str) -> Conversation:
        """Go on with a question of ours."""
        closing = self._closing()
        said = Message("assistant", f"{self.begun}{self.parts[-1][1].text}{closing}".strip())
        return Conversation((*self.messages, said, Message("user", text)), "", self.parts, f"{closing}\n\n")

    def go_on(self, text: str) -> Conversation:
        """Let the judge's own answer go on with `text`."""
        joint = f"{self._closing()}\n\n{text}"
        return Conversation(self.messages, f"{self.begun}{self.parts[-1][1].text}{joint}", self.parts, joint)

    def resumed(self, begun: str) -> Conversation:
        """As after `go_on`, when all that is known is the message that was begun."""
        before = begun.rfind(self.parts[-1][1].text) + len(self.parts[-1][1].text)
        return Conversation(self.messages, begun, self.parts, begun[before:])

    @property
    def reply(self) -> Reply:
        """All replies as one."""
        return joined(self.parts)

    def _closing(self) -> str:
        """What closes a thinking block that the last reply left open."""
        text = self.parts[-1][1].text
        opened = _OPENED.match(text) if without_thinking(text)[1] else None
        return f"\n</{opened.group(1)}>" if opened else ""


def joined(parts: Sequence[tuple[str, Reply]]) -> Reply:
    """Replies put together with the text between them: how the last one ended counts, tokens add up, log-probabilities stay
    where they were. Thinking in a later reply is blanked out, as a reader does with the first one's."""
    if len(parts) == 1 and not parts[0][0]:
        return parts[0][1]
    texts: list[str] = []
    logprobs: list[TokenLogprob] = []
    usage = Usage()
    last = parts[-1][1]
    for place, (joint, reply) in enumerate(parts):
        text, endless = without_thinking(reply.text) if place else (reply.text, False)
        text = " " * len(text) if endless else text
        texts += [joint, text]
        logprobs += [*_filler(joint), *_spelled(text, reply.logprobs)]
        usage += reply.usage
    known = any(reply.logprobs for _, reply in parts)
    return Reply("".join(texts), last.finish, last.raw, usage, tuple(logprobs) if known else (), last.model, last.note)


def _spelled(text: str, logprobs: Sequence[TokenLogprob]) -> list[TokenLogprob]:
    """The tokens that spell exactly `text`; a part that no token spells, or that was blanked out, becomes one without
    alternatives."""
    spelled = "".join(token.token for token in logprobs)
    said = text if text in spelled else text.strip()
    start = spelled.find(said) if said and logprobs else -1
    if start < 0:
        return _filler(text)
    before, _, after = text.partition(said)
    kept = _filler(before)
    place = 0
    for token in logprobs:
        left, right = max(place, start), min(place + len(token.token), start + len(said))
        if left < right:
            whole = right - left == len(token.token)
            kept += [token] if whole else _filler(said[left - start : right - start])
        place += len(token.token)
    return kept + _filler(after)


def _filler(text: str) -> list[TokenLogprob]:
    return [TokenLogprob(text, 0.0)] if text else []
