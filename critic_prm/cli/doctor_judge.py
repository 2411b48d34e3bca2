"""Check a judge with one small request: what works, what a run would send, and why it was refused."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import orjson

from critic_prm.critics.conversation import matches_schema
from critic_prm.critics.llm import LLMCritic
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.entries import fresh_reply
from critic_prm.errors import InputError, ProviderError, UsageError
from critic_prm.option import options_help
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.anthropic import CHARACTERS_PER_TOKEN
from critic_prm.providers.models import ANY_TIER, Prices, abilities, did_you_mean, unlisted
from critic_prm.providers.provider import Message, Provider, RateLimits, Reply, Request, Sampling, Wire, asks_for_schema
from critic_prm.providers.vllm import VLLMProvider
from critic_prm.registry import load
from critic_prm.styles.reader import Expect
from critic_prm.styles.readers.json_verdicts import schema

State = Literal["ok", "note", "bad"]

SCHEMA = schema(Expect(steps=1, step=0))
# Without a schema the answer would be prose, so JSON of this shape proves that the server enforces the schema.
QUESTION = (Message("user", "Is 2 + 2 = 5? Answer in a few words."),)
PLAIN = "the same without schema, log-probabilities and sampling parameters"
ROOM = 2048
"""Maximum tokens of the probe's answer; enough for a model that thinks first."""

EXAMPLE = Trajectory("example", "What is 2 + 2?", (Step("2 + 2 = 5."),))


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. "bad" means that a run would fail; "note" is for information."""

    what: str
    state: State
    said: str


async def examine(critic: LLMCritic, patience: float, golden: Path | None = None) -> list[Finding]:
    """Send one request with every feature that a run may use, and wait at most `patience` seconds for the reply.

    If the server rejects it as a bad request, a second, plain request shows whether the model works without these features. A
    vLLM server gets further probes. `golden` is a file of scores to compare with, or to write.
    """
    provider, sampling, notes = critic.client.provider, critic.sampling, []
    findings = [Finding("address", "ok", without_secrets(provider.base_url) or "the provider's own")]
    asked = replace(sampling, max_tokens=max(sampling.max_tokens or 0, ROOM), stop=(), logprobs=sampling.logprobs or 2)
    wire, left_out = _wire(provider, Request(QUESTION, asked, SCHEMA))
    if left_out:
        notes.append(Finding("logprobs", "note", f"not asked for: {left_out}"))
    answer = await _send(provider, wire, patience)
    if isinstance(answer, ProviderError) and answer.failure in ("row", "run") and answer.status in (400, 422):
        findings.append(Finding("request", "bad", f"refused: {answer}"))
        findings.append(_sent(wire))
        plain = provider.wire(Request(QUESTION, Sampling(max_tokens=ROOM)))
        if (fix := _fix(answer, wire)) is not None:
            findings.append(Finding("fix", "note", f"add --extra-body '{orjson.dumps(fix).decode()}'"))
            plain |= {name: value for name, value in fix.items() if value is not None}
            plain = {name: value for name, value in plain.items() if name not in fix or fix[name] is not None}
        answer = await _send(provider, plain, patience)
        state: State = "bad" if isinstance(answer, ProviderError) else "note"
        findings.append(Finding("plainly", state, f"{PLAIN}: {answer if state == 'bad' else 'works'}"))
        wire = plain
    if isinstance(answer, ProviderError):
        return [*findings, *([] if findings[-1].what == "plainly" else [_failed(answer)]), *_table(provider, critic)]
    reply, seconds, allowance = answer
    findings += [
        Finding("model", "ok", f"{provider.name}/{provider.model}" + (f", answers as {reply.model}" if reply.model else "")),
        _ended(reply, seconds, wire, provider.token_limits),
        _usage(reply),
    ]
    if asks_for_schema(wire):
        findings.append(_obeyed(reply))
    if wire.get("logprobs"):
        given = len(reply.logprobs)
        most = max((len(token.top) for token in reply.logprobs), default=0)
        said = f"given for {given} tokens, {most} alternatives each" if given else "asked for, but the answer has none"
        findings.append(Finding("logprobs", "ok" if given else "note", said))
    findings += [*notes, _limits(allowance), *_table(provider, critic)]
    if isinstance(provider, VLLMProvider):
        from critic_prm.cli.doctor_vllm import look

        run = provider.wire(critic.requests(EXAMPLE)[0])
        findings += await look(provider, lambda wire: _asked(provider, wire, patience), run)
    if golden is not None:
        reply = await _asked(provider, question(provider), patience)
        findings.append(compare(golden, f"{provider.name}/{provider.model}", reply))
    return findings


async def _asked(provider: Provider, wire: Wire, patience: float) -> Reply:
    answer = await _send(provider, wire, patience)
    if isinstance(answer, ProviderError):
        raise answer
    return answer[0]


async def _send(provider: Provider, wire: Wire, patience: float) -> tuple[Reply, float, RateLimits] | ProviderError:
    started = time.monotonic()
    try:
        async with asyncio.timeout(patience):
            arrival = await provider.complete(wire)
        return fresh_reply(provider, arrival.raw), time.monotonic() - started, arrival.allowance
    except TimeoutError:
        return ProviderError(f"no answer within {patience:g} s", "transient")
    except ProviderError as error:
        return error


def _wire(provider: Provider, request: Request) -> tuple[Wire, str]:
    """Return the request body, and why log-probabilities were left out, if the model is known not to support them."""
    try:
        return provider.wire(request), ""
    except UsageError as error:
        return provider.wire(replace(request, sampling=replace(request.sampling, logprobs=None))), str(error)


def _fix(error: ProviderError, wire: Wire) -> dict[str, Any] | None:
    """Return what to merge into the body if the server's error names an unsupported parameter, and perhaps a replacement."""
    if (named := _UNSUPPORTED.search(error.detail)) is None or named[1] not in wire:
        return None
    return {named[1]: None} | ({named[2]: wire[named[1]]} if named[2] else {})


_UNSUPPORTED = re.compile(r"Unsupported parameter: '(\w+)' is not supported with this model\.(?: Use '(\w+)' instead)?")


def _failed(error: ProviderError) -> Finding:
    what = {"run": "key or model", "quota": "account", "throttle": "rate limit", "transient": "server", "row": "request"}
    return Finding(what[error.failure], "bad", str(error))


def _ended(reply: Reply, seconds: float, wire: Wire, limits: Sequence[str]) -> Finding:
    name = next((name for name in limits if name in wire), "no limit of tokens")
    said = f"came after {seconds:.1f} s, ended by {reply.finish!r}; {name} was accepted"
    if reply.finish == "length":
        return Finding("answer", "bad", f"cut at {wire.get(name)} tokens: {said}; raise --max-tokens or lower --effort")
    if reply.finish != "stop" or not reply.text.strip():
        return Finding("answer", "bad", f"{said}, and it holds {len(reply.text.strip())} characters {reply.note}".rstrip())
    return Finding("answer", "ok", said)


def _usage(reply: Reply) -> Finding:
    usage = reply.usage
    if not usage.input or not usage.output:
        return Finding("tokens", "note", "the server reports no usage: costs and budgets in dollars cannot be kept")
    parts = [f"{usage.input} in", f"{usage.output} out"]
    parts += [f"{count} {name}" for name, count in (("cached", usage.cached), ("reasoning", usage.reasoning)) if count]
    return Finding("tokens", "ok", f"reported: {', '.join(parts)}")


def _obeyed(reply: Reply) -> Finding:
    if matches_schema(reply.text, SCHEMA):
        return Finding("schema", "ok", "structured outputs are obeyed")
    return Finding(
        "schema", "note", "structured outputs are ignored: for the style `json` add --no-schema, or use another style"
    )


def _limits(allowance: RateLimits) -> Finding:
    if allowance.requests is None and allowance.tokens is None:
        return Finding("rate limit", "note", "no rate-limit headers; the run adapts to refusals")
    left = [
        f"{count:,} {what}"
        for what, count in (("requests", allowance.requests), ("tokens", allowance.tokens))
        if count is not None
    ]
    return Finding("rate limit", "ok", f"{' and '.join(left)} left in this window")


def _table(provider: Provider, critic: LLMCritic) -> list[Finding]:
    """Return findings that need no request: the price, the model table's note, and what a run would send."""
    able, prices = abilities(provider.name, provider.model), critic.client.money.prices
    findings = [_price(prices, did_you_mean(provider.name, provider.model))]
    if note := able.note or unlisted(provider.name, provider.model):
        findings.append(Finding("table", "note", note))
    request = critic.requests(EXAMPLE)[0]
    if "cache-markers" in provider.capabilities:
        findings.append(_prompt_cache(request, able.cached_from, critic.style.per == "step"))
    return [*findings, replace(_sent(provider.wire(request)), what="a run sends")]


def own_options(judge: str) -> list[Finding]:
    """Return the options that the judge's provider declares, for --option."""
    provider = judge.partition("/")[0]
    plugin = import_module(provider.partition(":")[0]) if ":" in provider else load("provider", provider)
    return [Finding("option", "note", f"--option {setting}: {text}") for setting, text in options_help(plugin)]


def _prompt_cache(request: Request, minimum: int | None, per_step: bool) -> Finding:
    """Check whether the shared prefix of a run's requests is long enough for the model's prompt cache."""
    what = "prompt cache"
    if minimum is None:
        return Finding(what, "note", "the model is not in the table: from how many tokens it caches prompts is unknown")
    shared = sum(len(message.content) for message in request.messages if message.role == "system")
    tokens = int(shared / CHARACTERS_PER_TOKEN)
    least = f"this model caches a prompt's beginning from {minimum:,} tokens"
    if tokens >= minimum:
        return Finding(what, "ok", f"{least}; the instructions, at least {tokens:,}, are cached")
    rest = f"the instructions have at least {tokens:,}"
    more = minimum - tokens
    if per_step:
        said = f"{rest}: the steps of a solution share a cached prompt once its text has {more:,} more"
        return Finding(what, "ok", f"{least}; {said}")
    return Finding(what, "note", f"{least}; {rest}: only several samples of a solution with {more:,} more are cached")


def _price(prices: Prices | None, hint: str) -> Finding:
    if prices is None:
        return Finding("price", "note", f"unknown: give it with --prices IN,OUT for costs and budgets in dollars{hint}")
    where = ", ".join(part for part in (prices.source, prices.as_of) if part)
    said = f"${prices.input:g} in, ${prices.output:g} out per million tokens ({where})"
    tiers = ", ".join(f"{name} {factor:g} times that" for name, factor in prices.tiers.items() if name != ANY_TIER)
    return Finding("price", "ok", f"{said}; {tiers} ({prices.tiers_source})" if tiers else said)


def _sent(wire: Wire) -> Finding:
    parameters = {name: _shortened(value) for name, value in wire.items() if name not in ("messages", "system")}
    return Finding("sent", "ok", orjson.dumps(parameters).decode())


def _shortened(value: Any) -> Any:
    """Shorten a long text, such as a prompt that is not in `messages`."""
    return f"{value[:40]}..." if isinstance(value, str) and len(value) > 200 else value


GOLDEN_QUESTION = (
    Message("system", "You examine solutions. Answer with one word."),
    Message("user", "Problem: What is 17 + 25?\nStep 1: 17 + 25 = 42.\nIs step 1 correct?"),
)
ALTERNATIVES = 5
FAR = 0.02
"""Maximum difference in probability that other kernels and batch sizes cause with the same weights."""


def question(provider: Provider) -> Wire:
    """Return the body of the golden request. Raises UsageError if the model gives no log-probabilities."""
    return provider.wire(Request(GOLDEN_QUESTION, Sampling(temperature=0.0, max_tokens=1, logprobs=ALTERNATIVES)))


def compare(path: Path, name: str, reply: Reply) -> Finding:
    """Store the scores if the file does not exist yet; otherwise compare the reply with the stored scores.

    Raises InputError if the file does not contain golden scores.
    """
    if not reply.logprobs or not reply.logprobs[0].top:
        return Finding("golden", "bad", "the answer has no log-probabilities to compare")
    now: dict[str, float] = {}
    for token, chance in reply.logprobs[0].top:  # tokens that are parts of a character may share one spelling
        now[token] = now.get(token, 0.0) + math.exp(chance)
    if not path.exists():
        path.write_bytes(orjson.dumps({"judge": name, "p": now}, option=orjson.OPT_INDENT_2))
        return Finding("golden", "ok", f"{_shown(now)}: kept in {path}, to be compared with from now on")
    before = _read(path)
    least = min(now.values())
    gap = max(abs(p - now.get(token, min(p, least))) for token, p in before.items())
    if gap <= FAR:
        return Finding("golden", "ok", f"{_shown(now)}: as in {path}, {gap:.1g} away at most")
    return Finding(
        "golden",
        "bad",
        f"{_shown(now)}; in {path} it was {_shown(before)}: another model, chat template, quantization or"
        " --logprobs-mode answers under this name. If that is meant, delete the file; replies in the cache came from the one"
        " before",
    )


def _read(path: Path) -> dict[str, float]:
    try:
        found: Any = orjson.loads(path.read_bytes())["p"]
        return {str(token): float(p) for token, p in found.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        fix = "name a file that `doctor --golden` wrote, or one that does not exist yet"
        raise InputError(str(path), "this file has no golden scores", fix) from error


def _shown(p: dict[str, float]) -> str:
    first = sorted(p.items(), key=lambda item: -item[1])[:2]
    return ", ".join(f"P({token!r}) = {chance:.4f}" for token, chance in first)
