"""Continue a conversation with a judge: choose the follow-up to a reply, and join the replies for the reader.

The wording of the follow-ups is data, in `phrases.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from string import Template
from typing import Any, Literal

import orjson

from critic_prm.errors import UsageError
from critic_prm.providers.provider import Message, Reply, Request, Sampling, TokenLogprob, Usage
from critic_prm.styles.prompt import Question
from critic_prm.styles.reader import Reading, Schema, without_thinking

FollowUpKind = Literal["re-asked", "forced", "thought again"]

_OPENED = re.compile(r"\s*<(\w+)>")


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation with a judge; its last message is a question."""

    messages: tuple[Message, ...]
    prefix: str = ""
    """Start of the assistant message, if the reply is continued instead of asked for again."""
    parts: tuple[tuple[str, Reply], ...] = ()
    """The replies so far, each with the text that precedes it."""
    separator: str = ""
    """The text between the last reply and the next one."""

    def request(self, sampling: Sampling, schema: Mapping[str, Any] | None) -> Request:
        """The next request to send."""
        if not self.prefix:
            return Request(self.messages, sampling, schema)
        return Request((*self.messages, Message("assistant", self.prefix)), sampling, None, continues=True)

    def with_reply(self, reply: Reply) -> Conversation:
        return replace(self, parts=(*self.parts, (self.separator, reply)), separator="")

    def with_question(self, text: str) -> Conversation:
        """Continue with a new user message."""
        closing = self._closing()
        answer = Message("assistant", f"{self.prefix}{self.parts[-1][1].text}{closing}".strip())
        return Conversation((*self.messages, answer, Message("user", text)), "", self.parts, f"{closing}\n\n")

    def continued_with(self, text: str) -> Conversation:
        """Continue the assistant message itself with `text`."""
        separator = f"{self._closing()}\n\n{text}"
        prefix = f"{self.prefix}{self.parts[-1][1].text}{separator}"
        return replace(self, prefix=prefix, separator=separator)

    def resumed(self, prefix: str) -> Conversation:
        """Rebuild the state after `continued_with` from the partial assistant message alone."""
        before = prefix.rfind(self.parts[-1][1].text) + len(self.parts[-1][1].text)
        return replace(self, prefix=prefix, separator=prefix[before:])

    @property
    def reply(self) -> Reply:
        """All replies joined into one."""
        return joined(self.parts)

    def _closing(self) -> str:
        """The text that closes a thinking block left open by the last reply."""
        text = self.parts[-1][1].text
        opened = _OPENED.match(text) if without_thinking(text)[1] else None
        return f"\n</{opened.group(1)}>" if opened else ""


@dataclass(frozen=True, slots=True)
class FollowUps:
    """How to obtain a verdict that can be parsed; the options of the same names in JudgeOptions."""

    follow_ups: int = 1
    """How often to ask again, stating what was wrong, when a reply cannot be parsed or omits steps."""
    force: bool = True
    """Make the judge state its verdicts, once, if its reply was cut off."""
    think_rounds: int = 0
    """Additional rounds of thinking after a usable verdict."""

    def __post_init__(self) -> None:
        phrases = len(_phrases()["again"])
        if not 0 <= self.think_rounds <= phrases:
            raise UsageError(f"--think-rounds is {self.think_rounds}; there are phrases for 0 to {phrases} rounds")


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A conversation ready to be continued. `kind` names the follow-up in the judgement, `left` those that may come after."""

    kind: FollowUpKind
    conversation: Conversation
    left: FollowUps


def next_follow_up(
    conversation: Conversation, reading: Reading, question: Question, left: FollowUps, can_continue: bool
) -> FollowUp | None:
    """The follow-up to `reading`; None if the reading is usable or cannot be improved. `can_continue` is true if the server can
    continue a partial reply."""
    if reading.status == "ok":
        return _think_again(conversation, left, can_continue) if left.think_rounds else None
    if not conversation.reply.text.strip() or reading.status not in _phrases()["complaint"]:
        return None
    if reading.status == "truncated":
        return _force(conversation, reading, question, left, can_continue) if left.force else None
    if not left.follow_ups:
        return None
    asked = conversation.with_question(_complaint(reading, question))
    return FollowUp("re-asked", asked, replace(left, follow_ups=left.follow_ups - 1))


def _think_again(conversation: Conversation, left: FollowUps, can_continue: bool) -> FollowUp:
    """Request another round of thinking, with a new phrase each time (sequential scaling in ThinkPRM, arXiv 2504.16828)."""
    done = sum(1 for separator, _ in conversation.parts if separator)  # counts every follow-up, so no phrase is repeated
    phrases = _phrases()["again"]
    phrase = phrases[done % len(phrases)]
    further = conversation.continued_with if can_continue else conversation.with_question
    text = f"{phrase['continuation']}\n\n" if can_continue else phrase["message"]
    return FollowUp("thought again", further(text), replace(left, think_rounds=left.think_rounds - 1))


def _force(conversation: Conversation, reading: Reading, question: Question, left: FollowUps, can_continue: bool) -> FollowUp:
    left, reader = replace(left, force=False), question.style.reader
    lead = _phrases()["lead"].get(reader) if can_continue else None
    if lead is None:
        return FollowUp("forced", conversation.with_question(_complaint(reading, question)), left)
    missing = _missing(reading, question)
    if question.expect.step is None and missing and reader == "boxed-verdicts":
        heading = f"Step {missing[0]}:"
        unjudged = conversation.reply.text[max((v.span[1] for v in reading.verdicts if v.span), default=0) :]
        lead = lead if heading in unjudged else f"{heading} as far as it was examined.\n{lead}"
    return FollowUp("forced", conversation.continued_with(lead), left)


def _complaint(reading: Reading, question: Question) -> str:
    """State what was wrong, from the status and verdicts of the reading only. Its notes may be reworded later, and that must
    not change the key of the request."""
    phrases, expected = _phrases(), question.expect
    values = {
        "missing": ", ".join(str(number) for number in _missing(reading, question)),
        "first": str(expected.base),
        "last": str(expected.base + expected.steps - 1),
        "until": phrases["until"]["stops"] if expected.stops else "",
    }
    offers = question.style.reader == "boxed-verdicts" and "\\boxed{corrected}" in question.style.source
    texts = (phrases["complaint"][reading.status], phrases["wanted"]["boxed-corrected" if offers else question.style.reader])
    return " ".join(Template(text.strip()).substitute(values) for text in texts)


def _missing(reading: Reading, question: Question) -> list[int]:
    """The steps without a verdict, numbered as in the prompt."""
    expected = question.expect
    wanted = range(expected.steps) if expected.step is None else (expected.step,)
    judged = {verdict.step for verdict in reading.verdicts}
    return [step + expected.base for step in wanted if step not in judged]


@cache
def _phrases() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("phrases.toml").read_text("utf-8"))


def joined(parts: Sequence[tuple[str, Reply]]) -> Reply:
    """Join replies with the text between them. The finish reason is that of the last reply, token counts are added, and
    log-probabilities keep their positions. Thinking in later replies is blanked out, as a reader does for the first reply."""
    if len(parts) == 1 and not parts[0][0]:
        return parts[0][1]
    texts: list[str] = []
    logprobs: list[TokenLogprob] = []
    for place, (separator, reply) in enumerate(parts):
        text, endless = without_thinking(reply.text) if place else (reply.text, False)
        text = " " * len(text) if endless else text
        texts += [separator, text]
        logprobs += [*_filler(separator), *_spelled(text, reply.logprobs)]
    last, usage = parts[-1][1], sum((reply.usage for _, reply in parts), Usage())
    known = any(reply.logprobs for _, reply in parts)
    return replace(last, text="".join(texts), usage=usage, logprobs=tuple(logprobs) if known else ())


def _spelled(text: str, logprobs: Sequence[TokenLogprob]) -> list[TokenLogprob]:
    """Tokens whose concatenation is exactly `text`. Text that no token covers, or that was blanked out, becomes a token without
    alternatives."""
    spelled = "".join(token.token for token in logprobs)
    covered = text if text in spelled else text.strip()
    start = spelled.find(covered) if covered and logprobs else -1
    if start < 0:
        return _filler(text)
    before, _, after = text.partition(covered)
    kept = _filler(before)
    place = 0
    for token in logprobs:
        left, right = max(place, start), min(place + len(token.token), start + len(covered))
        if left < right:
            whole = right - left == len(token.token)
            kept += [token] if whole else _filler(covered[left - start : right - start])
        place += len(token.token)
    return kept + _filler(after)


def _filler(text: str) -> list[TokenLogprob]:
    return [TokenLogprob(text, 0.0)] if text else []


def matches_schema(text: str, schema: Schema) -> bool:
    """Whether `text` is a JSON value that matches `schema`, with nothing around it. Some servers silently ignore schemas."""
    try:
        return fits(orjson.loads(text), schema)
    except orjson.JSONDecodeError:
        return False


def fits(value: Any, schema: Schema) -> bool:
    """Whether a value matches a schema. Supports the keywords that the schemas of our readers use: type, enum, properties,
    required, additionalProperties and items. Raises KeyError for an unknown type."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    return _TYPES[schema["type"]](value, schema)


def _object(value: Any, schema: Schema) -> bool:
    if not isinstance(value, dict) or not set(schema["required"]) <= value.keys():
        return False
    properties = schema["properties"]
    if not schema.get("additionalProperties", True) and not value.keys() <= properties.keys():
        return False
    return all(fits(item, properties[name]) for name, item in value.items() if name in properties)


_TYPES: Mapping[str, Callable[[Any, Schema], bool]] = {
    "object": _object,
    "array": lambda value, schema: isinstance(value, list) and all(fits(item, schema["items"]) for item in value),
    "string": lambda value, schema: isinstance(value, str),
    "integer": lambda value, schema: isinstance(value, int) and not isinstance(value, bool),
    "boolean": lambda value, schema: isinstance(value, bool),
    "number": lambda value, schema: isinstance(value, int | float) and not isinstance(value, bool),
}
