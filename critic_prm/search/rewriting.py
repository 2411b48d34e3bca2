"""Regenerate the rest of a solution with a policy, given the kept steps, the rejected step and its critique."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from critic_prm.engine.options import JudgeOptions
from critic_prm.generate.policy.policy import Completion, LLMPolicy, continuation, marked, open_policy, open_prompt, unmarked
from critic_prm.providers.provider import Message, Request
from critic_prm.styles.template import Shown, compile_template, render_block


class Mender(Protocol):
    """A policy that can complete a solution, and regenerate its end given what was wrong."""

    @property
    def card(self) -> Mapping[str, Any]: ...

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion: ...

    async def rewrite(self, problem: str, steps: Sequence[str], rejected: str, critique: str, sample: int = 0) -> Completion:
        """Continue from `steps`, given that `rejected` was the next step before and what a critic said about it."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class LLMMender:
    """Any model behind a provider, called through the cache. `prompt` is the name of one in prompts/refine, or a .jinja
    file."""

    policy: LLMPolicy
    prompt: str = "feedback"

    @property
    def card(self) -> Mapping[str, Any]:
        return {**self.policy.card, "refine": self.prompt}

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        found = await self.policy.complete(problem, steps, sample)
        return replace(found, steps=_plain(found.steps))

    async def rewrite(self, problem: str, steps: Sequence[str], rejected: str, critique: str, sample: int = 0) -> Completion:
        answer = await self.policy.client.ask(self.request(problem, steps, rejected, critique), sample)
        reply = answer.reply
        if reply is None:
            return Completion(sample, "provider_error", key=answer.key, note=str(answer.failure))
        if reply.finish != "stop" or not reply.text.strip():
            return Completion(sample, "truncated" if reply.finish == "length" else "refused", key=answer.key, usage=reply.usage)
        return Completion(sample, "ok", reply.text, _plain(continuation(reply.text, len(steps))), answer.key, reply.usage)

    def request(self, problem: str, steps: Sequence[str], rejected: str, critique: str) -> Request:
        """The request for another continuation of `steps`."""
        opened = open_prompt(self.prompt, folder="refine")
        template = compile_template(opened.source, opened.where)
        shown = [Shown(number, text, "") for number, text in enumerate(marked(steps), 1)]
        variables = {
            "problem": problem,
            "steps": shown,
            "asked": Shown(len(steps) + 1, rejected, critique),
            "count": len(shown),
            "first": 1,
            "last": len(shown),
            "nonce": "",
            "tools": "",
            "images": 0,
            "reference": "",
        }
        texts = [(role, render_block(template, role, variables, opened.where).strip()) for role in ("system", "user")]
        return Request(tuple(Message(role, text) for role, text in texts if text), self.policy.sampling)

    async def close(self) -> None:
        await self.policy.close()


def _plain(steps: Sequence[str]) -> tuple[str, ...]:
    """Steps without their "Step k:" markers, which the kept steps may lack or number differently."""
    return tuple(text for step in steps if (text := unmarked(step)))


def open_mender(name: str, judging: JudgeOptions, prompt: str = "solve", feedback: str = "feedback") -> LLMMender:
    """Open the policy "provider/model". Raises UsageError, also for an unknown prompt, and ConfigError."""
    open_prompt(feedback, folder="refine")
    return LLMMender(open_policy(name, judging, prompt), feedback)
