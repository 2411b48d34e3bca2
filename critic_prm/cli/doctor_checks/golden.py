"""Compare a judge's top tokens for one fixed question with those stored by an earlier run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import orjson

from critic_prm.cli.doctor_checks.run import Finding
from critic_prm.errors import InputError
from critic_prm.providers.provider import Message, Provider, Reply, Request, Sampling, Wire

QUESTION = (
    Message("system", "You examine solutions. Answer with one word."),
    Message("user", "Problem: What is 17 + 25?\nStep 1: 17 + 25 = 42.\nIs step 1 correct?"),
)
ALTERNATIVES = 5
FAR = 0.02
"""Maximum difference in probability that other kernels and batch sizes cause with the same weights."""


def question(provider: Provider) -> Wire:
    """Return the body of the golden request. Raises UsageError if the model gives no log-probabilities."""
    return provider.wire(Request(QUESTION, Sampling(temperature=0.0, max_tokens=1, logprobs=ALTERNATIVES)))


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
        mend = "name a file that `doctor --golden` wrote, or none yet"
        raise InputError(str(path), "these are no golden scores", mend) from error


def _shown(p: dict[str, float]) -> str:
    first = sorted(p.items(), key=lambda item: -item[1])[:2]
    return ", ".join(f"P({token!r}) = {chance:.4f}" for token, chance in first)
