"""LLM judge: render a trajectory with a style, obtain replies through the client, and parse them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from critic_prm.critics.follow_ups import FollowUps
from critic_prm.critics.question import QuestionResult, QuestionRunner, as_judgement, is_enough
from critic_prm.data.critic import Critic
from critic_prm.data.judgement import Judgement
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client
from critic_prm.engine.open import SENT, open_client
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.providers.images import ImageError
from critic_prm.providers.models import abilities, check
from critic_prm.providers.provider import Message, Provider, Request, Sampling, open_provider
from critic_prm.styles.prompt import Style, open_style

FOR_CHANCES = ("yes-no",)
"""Readers whose styles use log-probabilities."""

ALTERNATIVES = 5
"""Default number of alternatives per token: enough for two verdicts in several spellings. All of them are stored for every
token of a critique, so a larger number would multiply the size of the cache."""


def connect(name: str, judging: JudgeOptions) -> LLMCritic:
    """Open the judge "provider/model". Raises UsageError and ConfigError before any request is sent."""
    return with_provider(open_provider(name, judging.base_url), judging)


def with_provider(provider: Provider, judging: JudgeOptions) -> LLMCritic:
    """Build a critic on an existing provider, such as a scripted one in a test."""
    style = open_style(judging.style)
    manner = FollowUps(judging.follow_ups, judging.force, judging.think_rounds, judging.schema)
    manner.check()
    sampling = judging.sampling
    sampling = replace(
        sampling,
        stop=sampling.stop or style.stop,
        max_tokens=style.max_tokens if sampling.max_tokens is None else sampling.max_tokens,
        logprobs=_alternatives(provider, style, sampling),
    )
    check(provider.name, provider.model, sampling)
    client = open_client(provider, judging)
    return LLMCritic(client, style, sampling, judging.with_reference, manner, judging.image_root)


def _alternatives(provider: Provider, style: Style, sampling: Sampling) -> int | None:
    """The number of alternatives per token to request. By default, styles that use log-probabilities request them if the model
    is known to support them."""
    if sampling.logprobs is not None or style.reader not in FOR_CHANCES:
        return sampling.logprobs or None
    if "logprobs" not in getattr(provider, "gives", ()) and abilities(provider.name, provider.model).match == "*":
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
    reference: bool = False
    manner: FollowUps = field(default_factory=FollowUps)
    image_root: Path | None = None

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
        if self.reference:
            card["reference"] = True
        if self.manner.rounds:
            card["think_rounds"] = self.manner.rounds
        return card

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        return [await self._judge(trajectory, sample) for trajectory in trajectories]

    async def judge_step(self, trajectory: Trajectory, step: int, sample: int = 0) -> Judgement:
        """Judge a single step: with one question if the style asks per step, else by judging the solution up to it."""
        if not self.asks_per_step:
            return await Critic.judge_step(self, trajectory, step, sample)
        asker = self._asker
        try:
            asked = await asker.ask(asker.question(trajectory, step), sample)
        except ImageError as error:
            return _unsent(error, sample)
        found = as_judgement([asked], self.style, len(trajectory.steps), sample)
        return replace(found, notes=asked.reading.notes)

    async def close(self) -> None:
        await self.client.close()

    def requests(self, trajectory: Trajectory) -> list[Request]:
        """The initial requests for judging `trajectory` once. This is an upper bound: a per-step style stops at the first
        error, and follow-ups depend on the replies and are not included."""
        asker = self._asker
        return [asker.request(question) for question in asker.questions(trajectory)]

    @property
    def _asker(self) -> QuestionRunner:
        return QuestionRunner(self.client, self.style, self.sampling, self.manner, self.reference, self.image_root)

    async def _judge(self, trajectory: Trajectory, sample: int) -> Judgement:
        """Ask the questions in sequence, so that none is paid for after the first error and each prompt reuses the cached
        prefix of the previous one."""
        asker, asked = self._asker, list[QuestionResult]()
        for question in asker.questions(trajectory):
            try:
                asked.append(await asker.ask(question, sample))
            except ImageError as error:
                return _unsent(error, sample)
            if is_enough(asked, self.style):
                break
        return as_judgement(asked, self.style, len(trajectory.steps), sample)


def _unsent(error: ImageError, sample: int) -> Judgement:
    """The judgement for a trajectory with an image that cannot be sent; only this row fails."""
    return Judgement("provider_error", sample=sample, notes=(str(error),))
