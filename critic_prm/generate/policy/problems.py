"""Read problems and gold answers from files in common layouts, removing duplicates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from critic_prm.data.records.reading import Complain, read_records
from critic_prm.data.trajectory import content_id
from critic_prm.errors import InputError
from critic_prm.generate.policy.answers import final_answer

TEXTS = ("problem", "question", "input", "prompt", "query")
GOLDS = ("gold_answer", "ground_truth_answer", "ground_truth", "reference_answer", "expected_answer", "target", "answer")
WORKED = ("solution", "answer", "reference_solution")
IDS = ("id", "problem_id", "unique_id", "idx")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its gold answer. `meta` holds short fields of its row, such as subject and level."""

    id: str
    text: str
    gold: str
    meta: Mapping[str, Any] = field(default_factory=dict)


def read_problems(
    path: str, *, skip_bad: bool = False, complain: Complain = lambda error: None, gold_needed: bool = True
) -> Iterator[Problem]:
    """Stream the distinct problems of a file.

    The text is read from one of the fields TEXTS. The answer is read from one of GOLDS, or from a worked solution that ends in
    "#### 18" or \\boxed{18}. Several solutions of one problem, as in a file of trajectories, give one problem.

    Raises InputError for a row without a text or an answer; with `skip_bad` the error is passed to `complain` instead. With
    `gold_needed` False a missing answer becomes "".
    """
    seen: set[int] = set()  # hashes, because a file may hold millions of problems
    for record in read_records(path, on_error="skip" if skip_bad else "stop", complain=complain):
        try:
            problem = _problem(record.data, record.where, gold_needed)
        except InputError as error:
            if not skip_bad:
                raise
            complain(error)
            continue
        plain = hash(re.sub(r"\s+", " ", problem.text).strip())
        if plain not in seen:
            seen.add(plain)
            yield problem


def _problem(row: Any, where: str, gold_needed: bool) -> Problem:
    if not isinstance(row, Mapping):
        raise InputError(where, f"a problem is a JSON object, this row is {row!r:.60}")
    text = next((row[name] for name in TEXTS if isinstance(row.get(name), str) and row[name].strip()), None)
    if text is None:
        raise InputError(where, "there is no problem in this row", f"put its text under one of: {', '.join(TEXTS)}")
    gold = _gold(row)
    if gold is None and gold_needed:
        raise InputError(where, "there is no answer in this row", f"put the right answer under one of: {', '.join(GOLDS)}")
    identity = next((str(row[name]) for name in IDS if row.get(name) not in (None, "")), content_id(text, ()))
    kept = ("subject", "level", "difficulty", "type", "source", "family", "data_source")
    named = row.get("meta") if isinstance(row.get("meta"), Mapping) else {}
    meta = {name: value for name in kept if isinstance(value := row.get(name, (named or {}).get(name)), str | int | float)}
    return Problem(identity, text, gold or "", meta)


def _gold(row: Mapping[str, Any]) -> str | None:
    for name in GOLDS:
        value = row.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value.strip():
            # GSM8K stores the worked solution under "answer", with the final answer after ####
            return final_answer(value) if "####" in value or "\\boxed" in value else value.strip()
    worked = next((row[name] for name in WORKED if isinstance(row.get(name), str)), None)
    return final_answer(worked) if worked else None
