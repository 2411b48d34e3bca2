"""LLM judge: render a trajectory with a style, obtain replies through the client, and parse them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from critic_prm.critics.conversation import Conversation, FollowUps, matches_schema, next_follow_up
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement, all_ways, first_error_of
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Answer, Client, open_client
from critic_prm.engine.options import SENT, JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.providers.images import ImageError, data_url
from critic_prm.providers.models import abilities, check
from critic_prm.providers.provider import Message, Provider, Reply, Request, Sampling, Usage, open_provider
from critic_prm.styles.prompt import Question, Style, open_style, question, questions
from critic_prm.styles.reader import LONGEST, Reading, Schema, read_reply

FOR_CHANCES = ("yes-no",)
"""Readers whose styles use log-probabilities."""

ALTERNATIVES = 5
"""Default number of alternatives per token: enough for two verdicts in several spellings. All of them are stored for every
token of a critique, so a larger number would multiply the size of the cache."""

LONG = 1 << 16
"""Replies with at least this many characters are parsed in a thread: that may take seconds and would block the event loop."""


def connect(name: str, options: JudgeOptions) -> LLMCritic:
    """Open the judge "provider/model". Raises UsageError and ConfigError before any request is sent."""
    provider = open_provider(name, options.base_url, options.option, options.header, options.api_key_env)
    return with_provider(provider, options)


def with_provider(provider: Provider, options: JudgeOptions) -> LLMCritic:
    """Build a critic on an existing provider, such as a scripted one in a test."""
    style, sampling = open_style(options.style), options.sampling
    sampling = replace(
        sampling,
        stop=sampling.stop or style.stop,
        max_tokens=style.max_tokens if sampling.max_tokens is None else sampling.max_tokens,
        logprobs=_alternatives(provider, style, sampling),
    )
    check(provider.name, provider.model, sampling)
    follow_ups = FollowUps(options.follow_ups, options.force, options.think_rounds)
    client = open_client(provider, options)
    return LLMCritic(client, style, sampling, follow_ups)


def _alternatives(provider: Provider, style: Style, sampling: Sampling) -> int | None:
    """The number of alternatives per token to request. By default, styles that use log-probabilities request them if the model
    is known to support them."""
    if sampling.logprobs is not None or style.reader not in FOR_CHANCES:
        return sampling.logprobs or None
    if "logprobs" not in provider.capabilities and abilities(provider.name, provider.model).match == "*":
        return None
    try:
        provider.wire(Request((Message("user", "?"),), replace(sampling, logprobs=ALTERNATIVES)))
    except UsageError:
        return None
    return ALTERNATIVES


@dataclass(frozen=True, slots=True)
class LLMCritic(Critic):
    """Judges trajectories with the prompt of a style: one question per trajectory or, for a per-step style, one question per
    step until the first error."""

    client: Client = field()
    style: Style
    sampling: Sampling = Sampling()
    follow_ups: FollowUps = field(default_factory=FollowUps)

    @property
    def options(self) -> JudgeOptions:
        return self.client.options

    @property
    def asks_per_step(self) -> bool:
        return self.style.per == "step"

    @property
    def card(self) -> Mapping[str, Any]:
        provider, sampling = self.client.provider, self.sampling
        card: dict[str, Any] = {
            "provider": provider.name,
            "model": provider.model,
            "style": self.style.name,
            "fingerprint": self.style.fingerprint,
            "sampling": {name: getattr(sampling, name) for name in SENT if getattr(sampling, name) is not None},
        }
        if self.options.with_reference:
            card["reference"] = True
        if self.follow_ups.think_rounds:
            card["think_rounds"] = self.follow_ups.think_rounds
        return card

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return [await self._judge(trajectory, self._questions(trajectory), sample) for trajectory in trajectories]

    async def judge_step(self, trajectory: Trajectory, step: int, sample: int = 0) -> Judgement:
        """Judge a single step: with one question if the style asks per step, else by judging the solution up to it."""
        if not self.asks_per_step:
            return await Critic.judge_step(self, trajectory, step, sample)
        asked = question(self.style, trajectory, step, reference=self.options.with_reference)
        judgement = await self._judge(trajectory, [asked], sample)
        return replace(judgement, notes=tuple(note.removeprefix("step 0: ") for note in judgement.notes))

    def requests(self, trajectory: Trajectory) -> list[Request]:
        """The initial requests for judging `trajectory` once. This is an upper bound: a per-step style stops at the first
        error, and follow-ups depend on the replies and are not included."""
        return [self._first_request(question) for question in self._questions(trajectory)]

    async def close(self) -> None:
        await self.client.close()

    def _questions(self, trajectory: Trajectory) -> Iterator[Question]:
        shared = "cache-markers" in self.client.provider.capabilities
        return questions(self.style, trajectory, reference=self.options.with_reference, shared=shared)

    async def _judge(self, trajectory: Trajectory, questions: Iterable[Question], sample: int) -> Judgement:
        """Ask the questions in sequence, so that none is paid for after the first error and each prompt reuses the cached
        prefix of the previous one. An image that cannot be sent fails this trajectory only."""
        results: list[QuestionResult] = []
        try:
            for each in questions:
                results.append(await self._ask(each, sample))
                if is_enough(results, self.style):
                    break
        except ImageError as error:
            return Judgement("provider_error", sample=sample, notes=(str(error),))
        return as_judgement(results, self.style, len(trajectory.steps), sample)

    def _first_request(self, question: Question) -> Request:
        """The initial request for a question. Raises ImageError for an image that cannot be sent."""
        messages = question.messages
        if any(message.images for message in messages):
            root = self.options.image_root
            messages = tuple(replace(m, images=tuple(data_url(image, root) for image in m.images)) for m in messages)
        return Request(messages, self.sampling, question.schema if self.options.schema else None)

    async def _ask(self, question: Question, sample: int) -> QuestionResult:
        """Ask a question, with follow-ups until there is a usable verdict."""
        request = self._first_request(question)
        conversation = Conversation(request.messages)
        answer = await self._send(conversation, request.schema, sample)
        if answer.reply is None:
            return QuestionResult(Reading("provider_error", notes=(str(answer.failure),)), (answer.key,), (), Usage())
        conversation = conversation.with_reply(answer.reply)
        reading = await _read(question, conversation.reply)
        keys, kinds, left = [answer.key], list[str](), self.follow_ups
        can_continue = "continue" in self.client.provider.capabilities
        while len(conversation.reply.text) <= LONGEST:  # a follow-up to a longer reply would send all of it back
            follow_up = next_follow_up(conversation, reading, question, left, can_continue)
            if follow_up is None:
                break
            answer = await self._send(follow_up.conversation, request.schema, sample)
            if answer.reply is None or answer.reply.finish in ("refusal", "filter"):
                why = str(answer.failure) if answer.reply is None else f"finish reason: {answer.reply.finish}"
                reading = _with_note(reading, f"{follow_up.kind} failed: {why}")
                break
            further = follow_up.conversation.with_reply(answer.reply)
            new_reading = await _read(question, further.reply)
            if reading.status == "ok" != new_reading.status:
                note = f"the reply when {follow_up.kind} could not be read ({new_reading.status})"
                reading = _with_note(reading, note)
                break
            conversation, reading, left = further, new_reading, follow_up.left
            keys.append(answer.key)
            if follow_up.kind not in kinds:
                kinds.append(follow_up.kind)
        methods = (_schema_use(conversation, request.schema), *kinds, *used_chances(reading))
        return QuestionResult(reading, tuple(keys), methods, conversation.reply.usage)

    async def _send(self, conversation: Conversation, schema: Schema | None, sample: int) -> Answer:
        # A truncated reply in the cache is good enough if its verdicts can be forced.
        request = conversation.request(self.sampling, schema)
        return await self.client.ask(request, sample, cut_will_do=self.follow_ups.force)


async def _read(question: Question, reply: Reply) -> Reading:
    if len(reply.text) <= LONG:
        return read_reply(question.style, question.expect, reply)
    return await asyncio.to_thread(read_reply, question.style, question.expect, reply)


def _schema_use(conversation: Conversation, schema: Schema | None) -> str:
    """Whether a schema was asked for and the last reply follows it."""
    return (
        "plain" if schema is None else "schema" if matches_schema(conversation.parts[-1][1].text, schema) else "schema ignored"
    )


def _with_note(reading: Reading, note: str) -> Reading:
    return replace(reading, notes=(*reading.notes, note))


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """The result of one question."""

    reading: Reading
    keys: tuple[str, ...]
    """Keys of the replies that the reading is based on, in order."""
    methods: tuple[str, ...]
    """How the verdicts were obtained."""
    usage: Usage


def used_chances(reading: Reading) -> tuple[str, ...]:
    """("logprobs",) if a verdict has a probability."""
    return ("logprobs",) if any(verdict.p_correct is not None for verdict in reading.verdicts) else ()


def is_enough(results: Sequence[QuestionResult], style: Style) -> bool:
    """Whether no further question is needed after the last result."""
    reading = results[-1].reading
    return reading.status != "ok" or (style.stops and reading.verdicts[-1].value == "incorrect")


def as_judgement(results: Sequence[QuestionResult], style: Style, steps: int, sample: int) -> Judgement:
    """Assemble the judgement of one sample from its questions: a single question about all steps, or one question per step, up
    to the first one that could not be read or, if the style stops there, the first error."""
    status = results[-1].reading.status
    prefixes = [f"step {step}: " if style.per == "step" else "" for step in range(len(results))]
    verdicts = tuple(verdict for result in results for verdict in result.reading.verdicts)
    replies = tuple(len(result.keys) for result in results)
    return Judgement(
        status=status,
        verdicts=verdicts,
        first_error=first_error_of(verdicts, steps) if status == "ok" else None,
        sample=sample,
        keys=tuple(key for result in results for key in result.keys),
        notes=tuple(prefix + note for prefix, result in zip(prefixes, results, strict=True) for note in result.reading.notes),
        how=all_ways(result.methods for result in results),
        turns=replies if max(replies) > 1 else (),
        usage=sum((result.usage for result in results), Usage()),
    )
