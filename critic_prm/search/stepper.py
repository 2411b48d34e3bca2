"""A problem and steps -> one more step of a policy, or all that are left; each asked for through the cache."""

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
"""How one step is had: by a stop string before the next, or by writing to the end and taking the first."""
CUTS: tuple[Cut, ...] = get_args(Cut)

ENDS = r"\\(?:boxed|fbox)[ \t]*\{|^[ \t]*####|\bfinal answer\b|\bthe answer is\b"
"""What a step says that ends a solution."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One step that a policy would take; without `step`, `came` says what failed. `done`: the solution ends with it."""

    came: Came
    step: str = ""
    done: bool = False
    key: str = ""
    usage: Usage = Usage()


class Stepper(Protocol):
    """A policy that can be led step by step. Equal askings give equal answers; `sample` tells repeated ones apart."""

    @property
    def card(self) -> Mapping[str, Any]: ...

    async def step(self, problem: str, steps: Sequence[str], sample: int = 0, *, greedy: bool = False) -> Proposal:
        """The next step; with `greedy` the likeliest one, where the policy can be asked for that."""
        ...

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        """All steps that are left."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class LLMStepper:
    """Any model behind a provider. Where it takes no stop strings, steps are split off; `ends` is what a last step matches."""

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
            # Without the colon: models that like markup write "**Step 3:**".
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
        """`other`, unless the provider has no such parameter."""
        try:
            self.policy.client.provider.wire(other)
        except UsageError:
            return request
        return other


def tidied(step: str) -> str:
    """A step without its mark, and without the markup that stood before the next one's."""
    return re.sub(r"(?:\n\s*(?:\*\*|#+))+\s*$", "", unmarked(step)).strip()


def open_stepper(name: str, judging: JudgeOptions, prompt: str = "solve", cut: str = "stop", ends: str = ENDS) -> LLMStepper:
    """Open the policy called "provider/model" to be led step by step. Raises UsageError and ConfigError.

    A sampling seed is not sent: with it a server could give every sample the same answer. What tells samples apart is their
    index, and what makes a search repeatable is the cache.
    """
    if cut not in CUTS:
        raise UsageError(f"steps are cut by {' or '.join(CUTS)}, not by {cut!r}")
    try:
        re.compile(ends)
    except re.error as error:
        raise UsageError(f"what ends a solution is no regular expression: {ends!r} ({error})") from None
    policy = open_policy(name, replace(judging, sampling=replace(judging.sampling, seed=None)), prompt)
    return LLMStepper(policy, "stop" if cut == "stop" else "split", ends)
