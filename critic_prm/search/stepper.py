"""Sample steps, completions and rewrites of a solution from a policy, through the cache."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.generate.policy.policy import (
    Came,
    Completion,
    LLMPolicy,
    continuation,
    marked,
    open_policy,
    open_prompt,
    unmarked,
)
from critic_prm.providers.provider import Request, Usage
from critic_prm.search.settings import StepperOptions
from critic_prm.styles.template import Shown

SAMPLES_PER_SEED = 1_000_000
"""Size of the range of sample indices of one seed; different seeds use different samples."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A step proposed by a policy. If `step` is empty, `came` says what failed. `done` marks the last step of the solution."""

    came: Came
    step: str = ""
    done: bool = False
    key: str = ""
    usage: Usage = Usage()


class Stepper(Protocol):
    """A policy that writes solutions step by step. Equal calls give equal results; `sample` distinguishes repeated samples."""

    async def step(self, problem: str, steps: Sequence[str], sample: int = 0, *, greedy: bool = False) -> Proposal:
        """The next step; with `greedy` the most likely one, if the policy supports that."""
        ...

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        """All remaining steps."""
        ...

    async def rewrite(self, problem: str, steps: Sequence[str], rejected: str, critique: str, sample: int = 0) -> Completion:
        """All remaining steps, given that `rejected` was the next step before and what a critic said about it."""
        ...

    async def close(self) -> None: ...


DEFAULT_OPTIONS = StepperOptions()


@dataclass(frozen=True)
class LLMStepper:
    """A stepper for any model behind a provider. If the provider has no stop strings, steps are split off instead."""

    policy: LLMPolicy
    options: StepperOptions = DEFAULT_OPTIONS

    async def step(self, problem: str, steps: Sequence[str], sample: int = 0, *, greedy: bool = False) -> Proposal:
        request = self.policy.request(problem, steps)
        if greedy:
            request = self._if_supported(request, replace(request, sampling=replace(request.sampling, temperature=0.0)))
        if self.options.cut == "stop":
            # Without the colon, because models that use markup write "**Step 3:**".
            stop = (*request.sampling.stop, f"Step {len(steps) + 2}")
            request = self._if_supported(request, replace(request, sampling=replace(request.sampling, stop=stop)))
        answer = await self.policy.client.ask(request, sample)
        reply = answer.reply
        if reply is None:
            return Proposal("provider_error", key=answer.key)
        new = _without_markers(continuation(reply.text, len(steps)))
        if reply.finish not in ("stop", "length") or not new or (reply.finish == "length" and len(new) < 2):
            return Proposal("truncated" if reply.finish == "length" else "refused", key=answer.key, usage=reply.usage)
        last = re.search(self.options.ends, new[0], re.IGNORECASE | re.MULTILINE) is not None
        return Proposal("ok", new[0], last or (self.options.cut == "split" and len(new) == 1), answer.key, reply.usage)

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        completion = await self.policy.complete(problem, steps, sample)
        return replace(completion, steps=_without_markers(completion.steps))

    async def rewrite(self, problem: str, steps: Sequence[str], rejected: str, critique: str, sample: int = 0) -> Completion:
        prompt = open_prompt(self.options.feedback_prompt, folder="refine")
        asked = Shown(len(steps) + 1, rejected, critique)
        request = Request(prompt.messages(problem, marked(steps), asked), self.policy.sampling)
        answer = await self.policy.client.ask(request, sample)
        reply = answer.reply
        if reply is None:
            return Completion(sample, "provider_error", key=answer.key, note=str(answer.failure))
        if reply.finish != "stop" or not reply.text.strip():
            return Completion(sample, "truncated" if reply.finish == "length" else "refused", key=answer.key, usage=reply.usage)
        new = _without_markers(continuation(reply.text, len(steps)))
        return Completion(sample, "ok", reply.text, new, answer.key, reply.usage)

    async def close(self) -> None:
        await self.policy.close()

    def _if_supported(self, request: Request, other: Request) -> Request:
        """`other`, unless the provider lacks the parameter."""
        try:
            self.policy.client.provider.wire(other)
        except UsageError:
            return request
        return other


def _without_markers(steps: Sequence[str]) -> tuple[str, ...]:
    return tuple(text for step in steps if (text := without_marker(step)))


def without_marker(step: str) -> str:
    """A step without its "Step k:" marker and without the markup that precedes the next marker."""
    return re.sub(r"(?:\n\s*(?:\*\*|#+))+\s*$", "", unmarked(step)).strip()


def open_stepper(name: str, judging: JudgeOptions, options: StepperOptions = DEFAULT_OPTIONS) -> LLMStepper:
    """Open the policy "provider/model" for sampling step by step. Its sampling parameters are those in `options`; `judging`
    says how requests are sent. Raises UsageError and ConfigError.

    No sampling seed is sent: with it, a server could return the same answer for every sample. Samples are distinguished by
    their index, and the cache makes a run reproducible.
    """
    open_prompt(options.feedback_prompt, folder="refine")  # raises if there is none
    sampling = replace(
        judging.sampling,
        temperature=options.policy_temperature,
        top_p=options.policy_top_p,
        max_tokens=options.policy_max_tokens,
        seed=None,
        logprobs=None,
        effort=None,
    )
    judging = replace(judging, sampling=sampling, base_url=options.policy_base_url or judging.base_url)
    if options.policy_has_own_server:
        judging = replace(judging, header=options.policy_header, api_key_env=options.policy_api_key_env)
    return LLMStepper(open_policy(name, judging, options.prompt), options)
