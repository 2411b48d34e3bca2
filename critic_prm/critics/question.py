"""Ask a judge one question with its follow-ups, parse the reply, and assemble judgements."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from critic_prm.critics.conversation import Conversation
from critic_prm.critics.follow_ups import FollowUps, Kind, next_turn
from critic_prm.critics.schema_check import matches_schema
from critic_prm.data.judgement import Judgement, all_ways, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Answer, Client
from critic_prm.providers.images import data_url
from critic_prm.providers.provider import Reply, Request, Sampling, Usage
from critic_prm.styles.prompt import Question, Style, question, questions
from critic_prm.styles.reader import LONGEST, Expect, Reading, Schema, read_reply

LONG = 1 << 16
"""Replies with at least this many characters are parsed in a thread."""


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of one question: the reading, the keys of the replies it is based on in order, how the verdicts were obtained,
    and the tokens used."""

    reading: Reading
    keys: tuple[str, ...]
    how: tuple[str, ...]
    usage: Usage


def as_judgement(asked: Sequence[QuestionResult], style: Style, steps: int, sample: int) -> Judgement:
    """Assemble the judgement of one sample from its questions: a single question about all steps, or one question per step, up
    to the first one that could not be read or, if the style stops there, the first error."""
    status, notes = asked[-1].reading.status, [note for one in asked for note in one.reading.notes]
    if style.per == "step":
        notes = [f"step {step}: {note}" for step, one in enumerate(asked) for note in one.reading.notes]
    verdicts = tuple(verdict for one in asked for verdict in one.reading.verdicts)
    turns = tuple(len(one.keys) for one in asked)
    return Judgement(
        status=status,
        verdicts=verdicts,
        first_error=first_error_of(verdicts, steps) if status == "ok" else None,
        sample=sample,
        keys=tuple(key for one in asked for key in one.keys),
        notes=tuple(notes),
        how=all_ways(one.how for one in asked),
        turns=turns if max(turns) > 1 else (),
        usage=sum((one.usage for one in asked), Usage()),
    )


def is_enough(asked: Sequence[QuestionResult], style: Style) -> bool:
    """Whether no further question is needed after the last result."""
    reading = asked[-1].reading
    return reading.status != "ok" or (style.stops and reading.verdicts[-1].value == "incorrect")


@dataclass(frozen=True, slots=True)
class QuestionRunner:
    """Puts questions to one judge."""

    client: Client
    style: Style
    sampling: Sampling
    manner: FollowUps
    reference: bool = False
    image_root: Path | None = None

    def questions(self, trajectory: Trajectory) -> Iterator[Question]:
        """Yield the questions about `trajectory`, in order."""
        shared = hasattr(self.client.provider, "marked")
        return questions(self.style, trajectory, reference=self.reference, shared=shared)

    def question(self, trajectory: Trajectory, step: int) -> Question:
        """The question about one step."""
        return question(self.style, trajectory, step, reference=self.reference)

    def request(self, question: Question) -> Request:
        """The initial request for a question. Raises ImageError for an image that cannot be sent."""
        messages = question.messages
        if any(message.images for message in messages):
            messages = tuple(replace(m, images=tuple(data_url(i, self.image_root) for i in m.images)) for m in messages)
        return Request(messages, self.sampling, question.schema if self.manner.schema else None)

    async def ask(self, question: Question, sample: int) -> QuestionResult:
        """Ask a question, with follow-ups as configured in `manner` until there is a usable verdict."""
        style, expected = self.style, question.expect
        begin = self.request(question)
        talk, obey = Conversation(begin.messages), begin.schema
        answer = await self._send(talk, obey, sample)
        keys, left = [answer.key], self.manner
        kinds: list[Kind] = []
        if answer.reply is None:
            return QuestionResult(Reading("provider_error", notes=(str(answer.failure),)), tuple(keys), (), Usage())
        talk = talk.heard(answer.reply)
        reading = await self._read(expected, talk.reply)
        can_continue = "continue" in getattr(self.client.provider, "gives", ())
        while (
            len(talk.reply.text) <= LONGEST  # a follow-up to a longer reply would send all of it back
            and (turn := next_turn(talk, reading, style, expected, left, can_continue)) is not None
        ):
            answer = await self._send(turn.talk, obey, sample)
            if answer.reply is None or answer.reply.finish in ("refusal", "filter"):
                why = str(answer.failure) if answer.reply is None else f"finish reason: {answer.reply.finish}"
                reading = _noted(reading, f"{turn.kind} in vain: {why}")
                break
            further = turn.talk.heard(answer.reply)
            found = await self._read(expected, further.reply)
            if reading.status == "ok" != found.status:
                reading = _noted(reading, f"what it said when it {turn.kind} could not be read ({found.status})")
                break
            talk, reading, left = further, found, turn.left
            keys.append(answer.key)
            if turn.kind not in kinds:
                kinds.append(turn.kind)
        return QuestionResult(reading, tuple(keys), _how(talk, reading, obey, kinds), talk.reply.usage)

    async def _read(self, expected: Expect, reply: Reply) -> Reading:
        """Parse a reply, in a thread if it is long: that may take seconds and would block the event loop."""
        if len(reply.text) <= LONG:
            return read_reply(self.style, expected, reply)
        return await asyncio.to_thread(read_reply, self.style, expected, reply)

    async def _send(self, talk: Conversation, obey: Schema | None, sample: int) -> Answer:
        # A truncated reply in the cache is good enough if its verdicts can be forced.
        return await self.client.ask(talk.request(self.sampling, obey), sample, cut_will_do=self.manner.force)


def _how(talk: Conversation, reading: Reading, obey: Schema | None, kinds: Sequence[str]) -> tuple[str, ...]:
    last = talk.parts[-1][1]
    first = "plain" if obey is None else "schema" if matches_schema(last.text, obey) else "schema ignored"
    chances = ["logprobs"] if any(verdict.p_correct is not None for verdict in reading.verdicts) else []
    return (first, *kinds, *chances)


def _noted(reading: Reading, note: str) -> Reading:
    return replace(reading, notes=(*reading.notes, note))
