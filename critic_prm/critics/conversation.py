"""Represent a conversation with a judge: join its replies for the reader and build the next request."""

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

    `messages` ends with a question. `begun` is the start of the assistant message if the reply is continued instead of asked
    for again. `parts` holds the replies so far, each with the text that precedes it.
    """

    messages: tuple[Message, ...]
    begun: str = ""
    parts: tuple[tuple[str, Reply], ...] = ()
    joint: str = ""

    def request(self, sampling: Sampling, schema: Mapping[str, Any] | None) -> Request:
        """The next request to send."""
        if not self.begun:
            return Request(self.messages, sampling, schema)
        return Request((*self.messages, Message("assistant", self.begun)), sampling, None, continues=True)

    def heard(self, reply: Reply) -> Conversation:
        return Conversation(self.messages, self.begun, (*self.parts, (self.joint, reply)))

    def ask(self, text: str) -> Conversation:
        """Continue with a new user message."""
        closing = self._closing()
        said = Message("assistant", f"{self.begun}{self.parts[-1][1].text}{closing}".strip())
        return Conversation((*self.messages, said, Message("user", text)), "", self.parts, f"{closing}\n\n")

    def go_on(self, text: str) -> Conversation:
        """Continue the assistant message itself with `text`."""
        joint = f"{self._closing()}\n\n{text}"
        return Conversation(self.messages, f"{self.begun}{self.parts[-1][1].text}{joint}", self.parts, joint)

    def resumed(self, begun: str) -> Conversation:
        """Rebuild the state after `go_on` from the partial assistant message alone."""
        before = begun.rfind(self.parts[-1][1].text) + len(self.parts[-1][1].text)
        return Conversation(self.messages, begun, self.parts, begun[before:])

    @property
    def reply(self) -> Reply:
        """All replies joined into one."""
        return joined(self.parts)

    def _closing(self) -> str:
        """The text that closes a thinking block left open by the last reply."""
        text = self.parts[-1][1].text
        opened = _OPENED.match(text) if without_thinking(text)[1] else None
        return f"\n</{opened.group(1)}>" if opened else ""


def joined(parts: Sequence[tuple[str, Reply]]) -> Reply:
    """Join replies with the text between them. The finish reason is that of the last reply, token counts are added, and
    log-probabilities keep their positions. Thinking in later replies is blanked out, as a reader does for the first reply."""
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
    """Tokens whose concatenation is exactly `text`. Text that no token covers, or that was blanked out, becomes a token without
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
