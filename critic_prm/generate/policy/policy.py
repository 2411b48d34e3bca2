"""Complete solutions from a prefix of steps with a policy model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol

from critic_prm.data.trajectory import split_steps
from critic_prm.engine.cache import Cache
from critic_prm.engine.client import Client, open_client
from critic_prm.engine.options import SENT, JudgeOptions
from critic_prm.errors import UsageError
from critic_prm.providers.models import check
from critic_prm.providers.provider import Message, Provider, Request, Sampling, Usage, open_provider, request_key
from critic_prm.registry import resource
from critic_prm.styles.template import Shown, compile_template, render_block

Came = Literal["ok", "truncated", "refused", "provider_error"]
SOLVE = "solve"


@dataclass(frozen=True, slots=True)
class Completion:
    """What a policy wrote after a prefix.

    `steps` are the new steps. `text` and `steps` are empty unless `came`, the completion status, is "ok".
    """

    sample: int
    came: Came
    text: str = ""
    steps: tuple[str, ...] = ()
    key: str = ""
    """Cache key of the stored reply."""
    usage: Usage = Usage()
    """Tokens of the reply, also when it came from the cache."""
    note: str = ""


class Policy(Protocol):
    """Completes solutions. `card` describes it: provider, model, prompt and sampling."""

    @property
    def card(self) -> Mapping[str, Any]: ...

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        """Complete the solution that starts with `steps`. `sample` distinguishes repeated requests; equal arguments give equal
        results.
        """
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class LLMPolicy:
    """A policy on a provider. Completions are cached by prompt and sample number, so none is paid for twice.

    If the provider can continue an assistant message, the steps are sent as the beginning of one and the policy continues them
    as its own text. Otherwise the prompt shows them.
    """

    client: Client
    prompt: PolicyPrompt
    sampling: Sampling = Sampling()

    @property
    def card(self) -> Mapping[str, Any]:
        """Provider, model, prompt and sampling of the policy, for output files."""
        provider, sampling = self.client.provider, self.sampling
        return {
            "provider": provider.name,
            "model": provider.model,
            "prompt": self.prompt.name,
            "fingerprint": self.prompt.fingerprint,
            "sampling": {name: getattr(sampling, name) for name in SENT if getattr(sampling, name) is not None},
        }

    async def complete(self, problem: str, steps: Sequence[str] = (), sample: int = 0) -> Completion:
        """Complete the solution that starts with `steps`; see `Policy.complete`. Failures are reported in `came`."""
        answer = await self.client.ask(self.request(problem, steps), sample, cut_will_do=True)
        if answer.reply is None:
            return Completion(sample, "provider_error", key=answer.key, note=str(answer.failure))
        reply = answer.reply
        if reply.finish != "stop" or not reply.text.strip():
            came: Came = "truncated" if reply.finish == "length" else "refused"
            return Completion(sample, came, key=answer.key, usage=reply.usage, note=f"finish reason: {reply.finish}")
        new = continuation(reply.text, len(steps))
        return Completion(sample, "ok", reply.text, new, answer.key, reply.usage)

    async def close(self) -> None:
        """Close the client."""
        await self.client.close()

    def request(self, problem: str, steps: Sequence[str] = ()) -> Request:
        """Build the request for a completion after `steps`."""
        shown = marked(steps)
        if steps and "continue" in self.client.provider.capabilities:
            begun = Message("assistant", "\n\n".join(shown) + "\n\n")
            return Request((*self.prompt.messages(problem), begun), self.sampling, continues=True)
        return Request(self.prompt.messages(problem, shown), self.sampling)

    def stored(self, db: Path, requests: Sequence[tuple[Request, int]]) -> int:
        """Count how many of these (request, sample) pairs are already in the cache at `db`."""
        if not db.exists():
            return 0
        keys = [request_key(self.client.provider.wire(r), sample, self.client.options.salt) for r, sample in requests]
        cache = Cache(db, readonly=True)
        try:
            return len(cache.known(keys))
        finally:
            cache.close()


def open_policy(name: str, judging: JudgeOptions, prompt: str = SOLVE) -> LLMPolicy:
    """Open the policy "provider/model" with the request options in `judging`. Raises UsageError and ConfigError."""
    provider = open_provider(name, judging.base_url, judging.option, judging.header, judging.api_key_env)
    return with_provider(provider, judging, prompt)


def with_provider(provider: Provider, judging: JudgeOptions, prompt: str = SOLVE) -> LLMPolicy:
    """Build a policy on an existing provider, such as a scripted one in tests."""
    opened = open_prompt(prompt)
    check(provider.name, provider.model, judging.sampling)
    return LLMPolicy(open_client(provider, judging), opened, judging.sampling)


@dataclass(frozen=True, slots=True)
class PolicyPrompt:
    """A prompt template with the blocks `system` and `user`; see prompts/policy."""

    name: str
    source: str = field(repr=False)
    where: str

    @property
    def fingerprint(self) -> str:
        """First 12 hex digits of the SHA-256 of the template source."""
        from hashlib import sha256

        return sha256(self.source.encode()).hexdigest()[:12]

    def messages(self, problem: str, steps: Sequence[str] = (), asked: int | Shown | None = None) -> tuple[Message, ...]:
        """Render the messages for a problem and steps. `asked` is the step to change or its index (0-based), for prompts that
        change one.
        """
        template = compile_template(self.source, self.where)
        shown = [Shown(number, text, "") for number, text in enumerate(steps, 1)]
        variables = {
            "problem": problem,
            "steps": shown,
            "asked": shown[asked] if isinstance(asked, int) else asked,
            "count": len(shown),
            "first": 1,
            "last": len(shown),
            "nonce": "",
            "tools": "",
            "images": 0,
            "reference": "",
        }
        texts = [(role, render_block(template, role, variables, self.where).strip()) for role in ("system", "user")]
        return tuple(Message(role, text) for role, text in texts if text)


@lru_cache(maxsize=64)
def open_prompt(name: str, folder: str = "policy") -> PolicyPrompt:
    """Open a packaged prompt from prompts/`folder` by name, or a .jinja file by path. Raises UsageError with file and line."""
    own = "/" in name or name.endswith(".jinja")
    path = Path(name) if own else resource("prompts") / folder / f"{name}.jinja"
    if not own and not path.is_file():
        there = ", ".join(prompt_names(folder))
        raise UsageError(f"there is no prompt {name!r}; available: {there}, or give the path of a .jinja file")
    try:
        source = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the prompt {name}: {error}") from None
    compile_template(source, str(path) if own else path.name)
    return PolicyPrompt(path.stem, source, str(path) if own else path.name)


def prompt_names(folder: str) -> list[str]:
    """Return the names of the packaged prompts in prompts/`folder`."""
    return sorted(path.stem for path in (resource("prompts") / folder).glob("*.jinja"))


_MARKED = re.compile(r"[ \t]*(?:\*\*|#+[ \t]*)?(?:step[ \t]+\d+[ \t]*[:.)]|\d+[.)][ \t])", re.IGNORECASE)


def marked(steps: Sequence[str]) -> list[str]:
    """Prefix "Step k:" to steps that have no such marker."""
    return [text if _MARKED.match(text) else f"Step {k}: {text}" for k, text in enumerate(steps, 1)]


def unmarked(text: str) -> str:
    """Return the step without its "Step k:" marker."""
    return text[match.end() :].strip() if (match := _MARKED.match(text)) else text.strip()


def continuation(text: str, before: int) -> tuple[str, ...]:
    """Split the completion of a prefix of `before` steps into its new steps.

    If the policy restarted at Step 1, its copy of the prefix is dropped.
    """
    if before and re.match(r"\W*step[ \t]+1\W", text, re.IGNORECASE):
        whole = split_steps(text)
        return tuple(whole[before:]) or tuple(whole[-1:])
    return tuple(split_steps(text, before + 1))
