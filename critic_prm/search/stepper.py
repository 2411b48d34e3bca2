"""Sample the next step, or all remaining steps, of a solution from a policy through the cache."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, get_args

from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.generate.policy.policy import Came, Completion, LLMPolicy, continuation, open_policy, unmarked
from critic_prm.providers.provider import Request, Usage

Cut = Literal["stop", "split"]
"""How to obtain a single step: with a stop string before the next step, or by generating to the end and taking the first."""
CUTS: tuple[Cut, ...] = get_args(Cut)

ENDS = r"\\(?:boxed|fbox)[ \t]*\{|^[ \t]*####|\bfinal answer\b|\bthe answer is\b"
"""Regular expression that matches the last step of a solution."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A step proposed by a policy. If `step` is empty, `came` says what failed. `done` marks the last step of the solution."""

    came: Came
    step: str = ""
    done: bool = False
    key: str = ""
    usage: Usage = Usage()


class Stepper(Protocol):
    """A policy that can be sampled step by step. Equal calls give equal results; `sample` distinguishes repeated samples."""

    @property
    def card(self) -> Mapping[str, Any]: ...

    async def step(self, problem: str, steps: Sequence[str], sample: int = 0, *, greedy: bool = False) -> Proposal:
        """The next step; with `greedy` the most likely one, if the policy supports that."""
        ...

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        """All remaining steps."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class LLMStepper:
    """A stepper for any model behind a provider. If the provider has no stop strings, steps are split off instead; `ends`
    matches the last step."""

    policy: LLMPolicy
    cut: Cut = "stop"
    ends: str = ENDS

    @property
    def card(self) -> Mapping[str, Any]:
        return {**self.policy.card, "cut": self.cut}

    async def step(self, problem: str, steps: Sequence[str], sample: int = 0, *, greedy: bool = False) -> Proposal:
        request = self.policy.request(problem, steps)
        if greedy:
            request = self._if_taken(request, replace(request, sampling=replace(request.sampling, temperature=0.0)))
        if self.cut == "stop":
            # Without the colon, because models that use markup write "**Step 3:**".
            stop = (*request.sampling.stop, f"Step {len(steps) + 2}")
            request = self._if_taken(request, replace(request, sampling=replace(request.sampling, stop=stop)))
        answer = await self.policy.client.ask(request, sample)
        reply = answer.reply
        if reply is None:
            return Proposal("provider_error", key=answer.key)
        new = [tidied(text) for text in continuation(reply.text, len(steps))]
        if reply.finish not in ("stop", "length") or not any(new) or (reply.finish == "length" and len(new) < 2):
            came: Came = "truncated" if reply.finish == "length" else "refused"
            return Proposal(came, key=answer.key, usage=reply.usage)
        done = self.is_last(new[0]) or (self.cut == "split" and len(new) == 1)
        return Proposal("ok", new[0], done, answer.key, reply.usage)

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        found = await self.policy.complete(problem, steps, sample)
        return replace(found, steps=tuple(text for step in found.steps if (text := tidied(step))))

    async def close(self) -> None:
        await self.policy.close()

    def is_last(self, step: str) -> bool:
        return re.search(self.ends, step, re.IGNORECASE | re.MULTILINE) is not None

    def _if_taken(self, request: Request, other: Request) -> Request:
        """`other`, unless the provider lacks the parameter."""
        try:
            self.policy.client.provider.wire(other)
        except UsageError:
            return request
        return other


def tidied(step: str) -> str:
    """A step without its "Step k:" marker and without the markup that precedes the next marker."""
    return re.sub(r"(?:\n\s*(?:\*\*|#+))+\s*$", "", unmarked(step)).strip()


def open_stepper(name: str, judging: JudgeOptions, prompt: str = "solve", cut: str = "stop", ends: str = ENDS) -> LLMStepper:
    """Open the policy "provider/model" for sampling step by step. Raises UsageError and ConfigError.

    No sampling seed is sent: with it, a server could return the same answer for every sample. Samples are distinguished by
    their index, and the cache makes a search reproducible.
    """
    if cut not in CUTS:
        raise UsageError(f"steps are cut by {' or '.join(CUTS)}, not by {cut!r}")
    try:
        re.compile(ends)
    except re.error as error:
        raise UsageError(f"what ends a solution is not a regular expression: {ends!r} ({error})") from None
    policy = open_policy(name, replace(judging, sampling=replace(judging.sampling, seed=None)), prompt)
    return LLMStepper(policy, "stop" if cut == "stop" else "split", ends)
