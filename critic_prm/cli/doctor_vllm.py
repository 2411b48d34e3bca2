"""Check a vLLM server: what its version supports, and whether it gives the scores of the verifier that it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from critic_prm.cli.doctor_judge import Finding, State
from critic_prm.engine.budget import reply_limit
from critic_prm.errors import ProviderError, UsageError
from critic_prm.providers.addresses import basic_credentials, secrets_in, without_credentials, without_keys
from critic_prm.providers.http import Direct, body_within
from critic_prm.providers.provider import MAX_REPLY_BYTES, Message, Reply, Request, Sampling, Wire
from critic_prm.providers.vllm import VLLMProvider

Ask = Callable[[Wire], Awaitable[Reply]]
"""Sends a request body and returns the parsed reply. Raises ProviderError."""

HELLO = (Message("user", "Say hello."),)
BEGUN = (*HELLO, Message("assistant", "Hello, and a very good morning to"))
WORD = "7391"
"""No model answers a greeting with this number unless the server forces it to."""

NOT_VLLM = (
    "no vLLM (/version does not answer as vLLM's does): what only vLLM knows is ignored or refused there; name the judge as"
    " openai/MODEL with the same --base-url"
)


@dataclass(frozen=True, slots=True)
class Server:
    """What a server reports: its version, the context length of each model in tokens, and the known fields of a request body.

    None for what it does not report.
    """

    version: str | None
    models: Mapping[str, int | None] | None
    fields: frozenset[str] | None


async def look(provider: VLLMProvider, ask: Ask, run: Wire) -> list[Finding]:
    """Send one small request per feature that a version may silently ignore. `run` is a body as a run would send it."""
    findings = []
    if provider.base_url is not None:
        server = await visit(provider.base_url, provider.chat.key)
        findings += _about(provider, server, run)
        if server.version is None:
            return findings
    for what, probe in PROBES.items():
        try:
            state, said = await probe(provider, ask, run)
        except ProviderError as error:
            state, said = "note", f"could not be checked: {error}"
        findings.append(Finding(what, state, said))
    return findings


def _about(provider: VLLMProvider, server: Server, run: Wire) -> list[Finding]:
    if server.version is None:
        return [Finding("server", "bad", NOT_VLLM)]
    findings = [Finding("server", "ok", f"vLLM {server.version}")]
    if server.fields is not None:
        unknown = sorted(set(run) - server.fields)
        legacy = any(name.startswith("guided_") for name in unknown)
        fix = '; structured outputs are asked for as {"structured_outputs": {"json": ...}}' if legacy else ""
        said = f"{', '.join(unknown)}: this version silently ignores that{fix}"
        known = f"this version knows all {len(run)} fields that a run sends"
        findings.append(Finding("fields", "bad", said) if unknown else Finding("fields", "ok", known))
    context, room = (server.models or {}).get(provider.model), reply_limit(run)
    if context is not None and room is not None and room >= context:
        said = f"{context} tokens, prompt included, and a run asks for up to {room} of answer: set --max-tokens well below"
        findings.append(Finding("context", "bad", said))
    elif context is not None:
        findings.append(Finding("context", "ok", f"{context} tokens"))
    return findings


def root(base_url: str) -> str:
    """Return the server's root URL, for paths that do not begin with /v1."""
    return without_credentials(base_url).rstrip("/").removesuffix("/v1")


def headers(base_url: str, key: str) -> dict[str, str]:
    """Return the Authorization header: Basic if the URL holds credentials, else Bearer with the key."""
    return {"Authorization": basic_credentials(base_url) or f"Bearer {key}"}


async def visit(base_url: str, key: str) -> Server:
    """Read the server's version, models and OpenAPI description by GET requests."""
    import aiohttp

    async with aiohttp.ClientSession(headers=headers(base_url, key), timeout=aiohttp.ClientTimeout(total=20)) as session:

        async def get(path: str) -> Any:
            try:
                async with session.get(root(base_url) + path) as answer:
                    return orjson.loads(await body_within(answer, MAX_REPLY_BYTES)) if answer.status == 200 else None
            except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError, ProviderError):
                return None

        version, models, described = await get("/version"), await get("/v1/models"), await get("/openapi.json")
    rows = _at(models, "data")
    fields = _at(described, "components", "schemas", "ChatCompletionRequest", "properties")
    said = _at(version, "version")
    owners = {row.get("owned_by") for row in rows} if isinstance(rows, list) else set()
    return Server(
        said if isinstance(said, str) and (not owners or "vllm" in owners) else None,
        {row["id"]: row.get("max_model_len") for row in rows} if isinstance(rows, list) else None,
        frozenset(fields) if isinstance(fields, dict) else None,
    )


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _plain(provider: VLLMProvider, messages: tuple[Message, ...] = HELLO, **sampling: Any) -> Wire:
    return provider.wire(Request(messages, Sampling(**{"max_tokens": 16, "temperature": 0.0, **sampling})))


Probed = tuple[State, str]


async def _choice(provider: VLLMProvider, ask: Ask, run: Wire) -> Probed:
    reply = await ask(_plain(provider, extra_body={"structured_outputs": {"choice": [WORD]}}))
    if reply.text.strip() == WORD:
        return "ok", "structured_outputs is obeyed"
    return "bad" if "structured_outputs" in run else "note", (
        "structured_outputs is silently ignored (vLLM before 0.12 knows only guided_json): update it, or add --no-schema"
    )


async def _chosen(provider: VLLMProvider, ask: Ask, run: Wire) -> Probed:
    reply = await ask(_plain(provider, max_tokens=1, extra_body={"logprob_token_ids": [5, 6, 7, 8]}))
    given = max((len(token.top) for token in reply.logprobs), default=0)
    if given >= 4:
        return "ok", "logprob_token_ids is obeyed: the tokens asked for are there"
    return "note", "logprob_token_ids is ignored: alternatives are the likeliest tokens (--logprobs), not chosen ones"


async def _begun(provider: VLLMProvider, ask: Ask, run: Wire) -> Probed:
    wire = provider.wire(Request(BEGUN, Sampling(max_tokens=1, temperature=0.0), continues=True))
    on, anew = (await ask(wire)).usage.input, (await ask(_plain(provider, BEGUN, max_tokens=1))).usage.input
    if not on or not anew:
        return "note", "unknown: the server does not count the prompt's tokens"
    if on < anew:
        return "ok", "the server continues a partial reply"
    return "bad", "continue_final_message is ignored: a truncated critique cannot be completed with a verdict; add --no-force"


async def _seed(provider: VLLMProvider, ask: Ask, run: Wire) -> Probed:
    wires = [_plain(provider, temperature=1.0, seed=seed) for seed in (1, 1, 2)]
    one, same, other = [(await ask(wire)).text for wire in wires]
    if one != same:
        return "note", "the same seed gave two answers: runs cannot be repeated, replies that are kept can"
    return (
        ("ok", "the same seed gives the same answer, another seed another")
        if one != other
        else (
            "note",
            "unknown: the answer is the same with another seed",
        )
    )


async def _several(provider: VLLMProvider, ask: Ask, run: Wire) -> Probed:
    choices = (await ask(_plain(provider, max_tokens=2, temperature=1.0, extra_body={"n": 2}))).raw.get("choices") or []
    return ("ok", "n answers come with one request") if len(choices) == 2 else ("note", "n is ignored: one answer came of 2")


async def _prefix(provider: VLLMProvider, ask: Ask, run: Wire) -> Probed:
    wire = {name: run[name] for name in ("model", "messages")} | {"max_tokens": 1}
    await ask(wire)
    reply = await ask(wire)
    if not reply.usage.input or not (reply.raw.get("usage") or {}).get("prompt_tokens_details"):
        return "note", "not reported: start the server with --enable-prompt-tokens-details to see what the prefix cache saves"
    if reply.usage.cached:
        return "ok", f"{reply.usage.cached} of {reply.usage.input} prompt tokens were there the second time"
    return "note", "no prompt tokens were there the second time: the prefix cache is off"


PROBES: Mapping[str, Callable[[VLLMProvider, Ask, Wire], Awaitable[Probed]]] = {
    "grammar": _choice,
    "verdicts": _chosen,
    "continue": _begun,
    "seed": _seed,
    "n": _several,
    "prefix": _prefix,
}


ITEMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("What is 17 + 25?", ("17 + 20 = 37.", "37 + 5 = 42.", "So the answer is 42.")),
    ("What is 17 + 25?", ("17 + 20 = 37.", "37 + 5 = 43.", "So the answer is 43.")),
    ("A train goes 60 km/h. How far in 2.5 hours?", ("Two hours: 120 km.", "Half an hour: 30 km.", "In all 150 km.")),
    ("Solve 3x = 12.", ("Divide by 3.", "x = 12 - 3 = 9.")),
)
NEAR, FAR = 1e-4, 0.05
"""Bounds on differences in P(correct): NEAR holds for float32; bfloat16 stays below FAR with the same weights."""

START = 'start it with: vllm serve {folder} --runner pooling --pooler-config \'{{"tok_pooling_type": "ALL"}}\' --dtype float32'


async def examine_verifier(folder: Path, base_url: str, key: str) -> list[Finding]:
    """Score a few solutions locally and on the server, and compare.

    Raises UsageError if the verifier is not a transformer, and InputError if its folder is damaged.
    """
    from distill.verifier import load_verifier

    verifier = load_verifier(folder)
    scorer: Any = verifier.scorer
    if not hasattr(scorer, "encoder"):
        raise UsageError(
            f"{folder} is a {verifier.info.get('student')} verifier, which vLLM does not serve; score with it here"
        )
    server = await visit(base_url, key)
    if server.version is None:
        return [Finding("server", "bad", NOT_VLLM)]
    findings = [Finding("server", "ok", f"vLLM {server.version}")]
    model = next(iter(server.models or {}), str(folder))
    encoded = scorer.encoder.encode_many(ITEMS)
    body = {"model": model, "input": [one.ids.tolist() for one in encoded], "task": "token_classify"}
    status, answer = await _post(base_url, key, orjson.dumps(body))
    theirs = _scores(answer, encoded) if status == 200 else None
    if theirs is None:
        told = without_keys(orjson.dumps(answer).decode(), (key, *secrets_in(base_url)))
        said = f"HTTP {status}: {told[:200]}" if status != 200 else "the answer has no row per token"
        return [*findings, Finding("pooling", "bad", f"{model}: {said}; {START.format(folder=folder)}")]
    ours = scorer.score(ITEMS)
    gap = max(abs(a - b) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True))
    said = f"{model}: {sum(map(len, theirs))} scores, at most {gap:.1g} from those computed here"
    if gap <= NEAR:
        return [*findings, Finding("golden", "ok", said)]
    if gap <= FAR:
        return [*findings, Finding("golden", "note", f"{said}; --dtype float32 at the server gives equal ones")]
    return [*findings, Finding("golden", "bad", f"{said}: it serves another model, or other classes")]


async def _post(base_url: str, key: str, body: bytes) -> tuple[int, Any]:
    post = Direct(f"{root(base_url)}/pooling", headers(base_url, key))
    try:
        async with asyncio.timeout(120):
            answered = await post(body)
        return answered.status, orjson.loads(answered.content)
    except (TimeoutError, orjson.JSONDecodeError, ProviderError) as error:
        return 0, str(error) or "no answer"
    finally:
        await post.close()


def _scores(answer: Any, encoded: Sequence[Any]) -> list[list[float]] | None:
    """Return P(correct) at the end of each step; None if the answer does not have one pair per token."""
    try:
        rows = [row["data"] for row in answer["data"]]
        whole = all(len(row) == len(one.ids) for row, one in zip(rows, encoded, strict=True))
        return [[float(row[end][1]) for end in one.ends] for row, one in zip(rows, encoded, strict=True)] if whole else None
    except (KeyError, TypeError, ValueError, IndexError):
        return None
