"""One reply read (a judgement: a verdict per step), and what the judgements of one trajectory add up to (a label)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

VerdictValue = Literal["correct", "incorrect", "neutral"]
Status = Literal["ok", "truncated", "count_mismatch", "unparseable", "refused", "provider_error"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a critic says of one step.

    `step` is 0-based. `p_correct` is P(the step is correct) in [0, 1], None where only the word is known. `span` is the
    part of the reply's text, as (start, end), that the reading rests on.
    """

    step: int
    value: VerdictValue
    critique: str = ""
    p_correct: float | None = None
    span: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """One judgement of one trajectory.

    `verdicts` are in step order; steps after the first error may be missing, never guessed. `first_error` is 0-based, -1 when
    every step is right, None when that cannot be told. `keys` name the stored replies it rests on, none for local critics.
    `notes` say what the reading had to forgive.
    """

    status: Status
    verdicts: tuple[Verdict, ...] = ()
    first_error: int | None = None
    sample: int = 0
    keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Label:
    """What the judgements of one trajectory add up to.

    `p_correct` has one entry per step, None where no judgement reached it. `votes` are (k, n): k of n judgements said correct;
    neutral verdicts are in neither. `first_error` is the most frequent one, None on a tie or when nothing could be read.
    """

    p_correct: tuple[float | None, ...]
    votes: tuple[tuple[int, int], ...]
    first_error: int | None
    status: Status
    judgements: tuple[Judgement, ...]


def first_error_of(verdicts: Sequence[Verdict], steps: int) -> int | None:
    """The first incorrect step; -1 when all `steps` were judged and none is incorrect; None when steps are missing."""
    for verdict in verdicts:
        if verdict.value == "incorrect":
            return verdict.step
    return -1 if len({v.step for v in verdicts}) == steps else None


def combine(judgements: Sequence[Judgement], steps: int) -> Label:
    """Add up the judgements of one trajectory with `steps` steps; only those with status `ok` count.

    A step's P(correct) is the mean of its verdicts, where a verdict without a probability counts as 1 or 0: without any
    probabilities that is the vote fraction k / n.
    """
    ok = [j for j in judgements if j.status == "ok"]
    good, total, mass = [0] * steps, [0] * steps, [0.0] * steps
    for judgement in ok:
        for verdict in judgement.verdicts:
            if verdict.value == "neutral":
                continue
            right = verdict.value == "correct"
            good[verdict.step] += right
            total[verdict.step] += 1
            mass[verdict.step] += float(right) if verdict.p_correct is None else verdict.p_correct
    return Label(
        p_correct=tuple(m / n if n else None for m, n in zip(mass, total, strict=True)),
        votes=tuple(zip(good, total, strict=True)),
        first_error=_mode([j.first_error for j in ok if j.first_error is not None]),
        status="ok" if ok else _worst(judgements),
        judgements=tuple(judgements),
    )


def _mode(values: Sequence[int]) -> int | None:
    ranked = Counter(values).most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


def _worst(judgements: Sequence[Judgement]) -> Status:
    return Counter(j.status for j in judgements).most_common(1)[0][0] if judgements else "provider_error"


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    row: dict[str, Any] = {"step": verdict.step, "verdict": verdict.value, "critique": verdict.critique}
    if verdict.p_correct is not None:
        row["p_correct"] = verdict.p_correct
    if verdict.span is not None:
        row["span"] = list(verdict.span)
    return row


def judgement_to_json(judgement: Judgement) -> dict[str, Any]:
    row: dict[str, Any] = {
        "sample": judgement.sample,
        "status": judgement.status,
        "first_error": judgement.first_error,
        "keys": list(judgement.keys),
        "verdicts": [verdict_to_json(v) for v in judgement.verdicts],
    }
    if judgement.notes:
        row["notes"] = list(judgement.notes)
    return row


def judgement_from_json(row: dict[str, Any]) -> Judgement:
    """The inverse of `judgement_to_json`. Raises KeyError or TypeError for rows it did not write."""
    return Judgement(
        status=row["status"],
        verdicts=tuple(
            Verdict(
                v["step"], v["verdict"], v.get("critique", ""), v.get("p_correct"), tuple(v["span"]) if "span" in v else None
            )
            for v in row["verdicts"]
        ),
        first_error=row.get("first_error"),
        sample=row.get("sample", 0),
        keys=tuple(row.get("keys", ())),
        notes=tuple(row.get("notes", ())),
    )
