"""Label files for the tests of reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from critic_prm.data.records.reading import write_records

CARD = {"provider": "openai", "model": "gpt-5.4-mini", "style": "stepwise"}


def judged(
    identity: str,
    steps: Sequence[Any],
    first: int | None,
    *,
    gold: int | None = None,
    status: str = "ok",
    samples: int = 1,
    critique: str = "because",
    card: Mapping[str, Any] = CARD,
    **more: Any,
) -> dict[str, Any]:
    """A label-file row whose `samples` judgements all say that step `first` is the first error (-1: none)."""
    reach = 0 if status != "ok" or first is None else len(steps) if first < 0 else first + 1
    says = [{"step": n, "verdict": "incorrect" if n == first else "correct", "critique": critique} for n in range(reach)]
    known = [float(n != first) for n in range(reach)]
    rest = len(steps) - reach
    usage = {"input": 1000, "output": 100}
    row = {
        "id": identity,
        "problem": f"Problem of {identity}",
        "steps": list(steps),
        "p_correct": [*known, *[None] * rest],
        "p_from": "votes" if reach else None,
        "votes": [*[[int(p) * samples, samples] for p in known], *[[0, 0]] * rest],
        "first_error": first,
        "status": status,
        "judgements": [
            {"sample": n, "status": status, "first_error": first, "keys": ["ab" * 32], "verdicts": says, "usage": usage}
            for n in range(samples)
        ],
        "critic": dict(card),
        **more,
    }
    return row if gold is None else {**row, "label": gold}


def saved(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    write_records(path, rows)
    return path
