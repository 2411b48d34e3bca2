"""Check that a vLLM server gives the same scores as the verifier folder that it serves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from critic_prm.cli.doctor_checks.run import Finding
from critic_prm.cli.doctor_checks.vllm import NOT_VLLM, headers, root, visit
from critic_prm.errors import ProviderError, UsageError
from critic_prm.providers.addresses import secrets_in
from critic_prm.providers.post import MAX_REPLY_BYTES, body_within
from critic_prm.safe_text import without_keys

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
    import aiohttp

    address = f"{root(base_url)}/pooling"
    async with aiohttp.ClientSession(headers=headers(base_url, key), timeout=aiohttp.ClientTimeout(total=120)) as session:
        try:
            async with session.post(address, data=body, headers={"Content-Type": "application/json"}) as answer:
                return answer.status, orjson.loads(await body_within(answer, MAX_REPLY_BYTES))
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError, ProviderError) as error:
            return 0, f"no answer: {error}"


def _scores(answer: Any, encoded: Sequence[Any]) -> list[list[float]] | None:
    """Return P(correct) at the end of each step; None if the answer does not have one pair per token."""
    try:
        rows = [row["data"] for row in answer["data"]]
        whole = all(len(row) == len(one.ids) for row, one in zip(rows, encoded, strict=True))
        return [[float(row[end][1]) for end in one.ends] for row, one in zip(rows, encoded, strict=True)] if whole else None
    except (KeyError, TypeError, ValueError, IndexError):
        return None
