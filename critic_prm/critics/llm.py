"""The LLM critic: trajectory -> prompt -> reply, paid for once -> reader -> judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from critic_prm.addresses import is_near
from critic_prm.cache import Cache
from critic_prm.critic import Judging
from critic_prm.engine.client import Answer, Client, Settings
from critic_prm.engine.gate import START, Gate
from critic_prm.engine.money import Money
from critic_prm.errors import UsageError
from critic_prm.judgement import Judgement, Verdict, first_error_of
from critic_prm.models import abilities
from critic_prm.prompt import Style, expect, open_style, render, schema
from critic_prm.provider import Provider, Request, Sampling, open_provider
from critic_prm.reader import Expect, Reading, read_reply
from critic_prm.trajectory import Trajectory

SENT = ("temperature", "top_p", "max_tokens", "seed", "effort", "logprobs")
"""The sampling parameters that a label's card names."""


def connect(name: str, judging: Judging) -> LLMCritic:
    """Open the judge called "provider/model". Raises UsageError and ConfigError before anything is sent."""
    return with_provider(open_provider(name, judging.base_url), judging)


def with_provider(provider: Provider, judging: Judging) -> LLMCritic:
    """A critic over a provider that is already there: a scripted one in a test, one of the caller's own."""
    style = open_style(judging.style)
    prices = judging.prices or abilities(provider.name, provider.model).prices
    if judging.budget_usd is not None and prices is None:
        raise UsageError(
            f"--budget-usd needs a price, and that of {provider.name}/{provider.model} is unknown;"
            " name it with --prices IN,OUT (USD per million tokens), or use --max-requests"
        )
    # A server of one's own has no limits to find out about: it may be filled at once.
    start = judging.connections if is_near(provider.base_url) else START
    client = Client(
        provider,
        lambda: Cache(judging.db, durable=judging.durable),
        Gate(judging.connections, rpm=judging.rpm, tpm=judging.tpm, start=start),
        Money(prices, judging.budget_usd, judging.max_requests),
        Settings(
            retries=judging.retries,
            reasks=judging.reasks,
            timeout=judging.timeout,
            salt=judging.salt,
            offline=judging.offline,
        ),
    )
    sampling = judging.sampling
    sampling = replace(sampling, stop=sampling.stop or style.stop, max_tokens=sampling.max_tokens or style.max_tokens)
    return LLMCritic(client, style, sampling, judging.reference)


@dataclass(frozen=True)
class LLMCritic:
    """Judges with a style's prompt: one request per trajectory or, for a per-step style, one per step until the first error."""

    client: Client
    style: Style
    sampling: Sampling = Sampling()
    reference: bool = False
    batch: int = 1
    repeats: bool = True

    @property
    def card(self) -> Mapping[str, Any]:
        provider, sampling = self.client.provider, self.sampling
        return {
            "provider": provider.name,
            "model": provider.model,
            "style": self.style.name,
            "fingerprint": self.style.fingerprint,
            "sampling": {name: getattr(sampling, name) for name in SENT if getattr(sampling, name) is not None},
        }

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        judge_one = self._steps if self.style.per == "step" else self._whole
        return [await judge_one(trajectory, sample) for trajectory in trajectories]

    async def close(self) -> None:
        await self.client.close()

    async def _whole(self, trajectory: Trajectory, sample: int) -> Judgement:
        reading, answer = await self._ask(trajectory, sample, None)
        first = first_error_of(reading.verdicts, len(trajectory.steps)) if reading.status == "ok" else None
        return Judgement(reading.status, reading.verdicts, first, sample, (answer.key,), reading.notes)

    async def _steps(self, trajectory: Trajectory, sample: int) -> Judgement:
        """Step by step, so that nothing is paid for after the first error, and each prompt finds the last one's prefix
        cached."""
        verdicts: list[Verdict] = []
        keys: list[str] = []
        notes: list[str] = []
        for step in range(len(trajectory.steps)):
            reading, answer = await self._ask(trajectory, sample, step)
            keys.append(answer.key)
            notes += [f"step {step}: {note}" for note in reading.notes]
            if reading.status != "ok":
                return Judgement(reading.status, tuple(verdicts), None, sample, tuple(keys), tuple(notes))
            verdicts += reading.verdicts
            if self.style.stops and verdicts[-1].value == "incorrect":
                break
        first = first_error_of(verdicts, len(trajectory.steps))
        return Judgement("ok", tuple(verdicts), first, sample, tuple(keys), tuple(notes))

    async def _ask(self, trajectory: Trajectory, sample: int, step: int | None) -> tuple[Reading, Answer]:
        """Ask and read; a whole answer of the wrong shape is kept, and asked for anew as another turn."""
        expected = expect(self.style, trajectory, step)
        request = self._request(trajectory, step, expected)
        # Asked the same without any chance in it, a model says the same.
        turns = 1 if self.sampling.temperature == 0 else 1 + self.client.settings.reasks
        first: tuple[Reading, Answer] | None = None
        for turn in range(turns):
            answer = await self.client.ask(request, sample, turn)
            if answer.reply is None:
                return first or (Reading("provider_error", notes=(str(answer.failure),)), answer)
            reading = read_reply(self.style, expected, answer.reply)
            first = first or (reading, answer)
            if reading.status not in ("unparseable", "count_mismatch"):
                return reading, answer
        assert first is not None
        return first

    def _request(self, trajectory: Trajectory, step: int | None, expected: Expect) -> Request:
        messages = render(self.style, trajectory, step, reference=self.reference)
        return Request(messages, self.sampling, schema(self.style, expected))

    def requests(self, trajectory: Trajectory) -> list[Request]:
        """Every request that judging `trajectory` once may need; a style per step stops at the first error it finds."""
        steps = range(len(trajectory.steps)) if self.style.per == "step" else (None,)
        return [self._request(trajectory, step, expect(self.style, trajectory, step)) for step in steps]
