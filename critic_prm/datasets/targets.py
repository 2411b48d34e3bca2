"""Compute the per-step training targets of a labelled trajectory, or the reason it has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from critic_prm.data.judgement import Judgement, Label
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError

Neutral = Literal["good", "bad", "drop"]
"""How to treat a neutral step: as good (the usual reading of PRM800K), as bad, or without a label."""

Kind = Literal["erroneous", "correct", "partial"]
"""A trajectory with a known first error; without errors; or with some labelled steps and an unknown first error."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The training targets of one trajectory."""

    labels: tuple[float | None, ...]
    """P(correct) per step, None after the first error and where unknown."""
    votes: tuple[tuple[int, int], ...]
    """(k, n) of each step's judgements, (0, 0) without any."""
    first_error: int | None
    """0-based, -1 without an error, None if unknown."""
    agreement: float | None = None
    """Fraction of the ok judgements with this first error; None if there are no judgements (gold labels)."""

    @property
    def kind(self) -> Kind:
        """The class of the trajectory by its first error."""
        if self.first_error is None:
            return "partial"
        return "erroneous" if self.first_error >= 0 else "correct"


def from_gold(trajectory: Trajectory, *, neutral: Neutral = "drop", soft: bool = True) -> Targets | str:
    """The targets from a trajectory's gold labels, or the reason there are none."""
    gold = [_plain(value, neutral) for value in trajectory.gold()]
    if all(value is None for value in gold):
        return "no gold label"
    first = trajectory.first_error()
    if neutral == "bad":
        first = _earlier(first, [i for i, value in enumerate(trajectory.gold()) if value == "neutral"])
    return Targets(_until(gold, first, soft), ((0, 0),) * len(gold), first)


def from_label(label: Label, *, neutral: Neutral = "drop", soft: bool = True, where: str = "") -> Targets | str:
    """The targets from a label, or the reason there are none: its status, "tie", "nothing judged" or "no first error".

    Only judgements with status `ok` count. A soft target is the judgements' P(correct); a hard target is 1 before the voted
    first error and 0 at it. Raises InputError if neutral verdicts should count but the file has no judgements (a slim file).
    """
    if label.status != "ok":
        return label.status
    ok = [j for j in label.judgements if j.status == "ok"]
    if not ok:
        if neutral != "drop":
            raise InputError(
                where, "the row holds no judgements, so its neutral verdicts cannot be counted", "use --neutral drop"
            )
        if label.first_error is None:
            return "no first error"
        return Targets(_until(list(label.p_correct), label.first_error, soft), label.votes, label.first_error)
    firsts = [_first_error(j, neutral) for j in ok]
    ranked = Counter(f for f in firsts if f is not None).most_common(2)
    if len(ranked) == 2 and ranked[0][1] == ranked[1][1]:
        return "tie"
    p_correct, votes = _count(ok, len(label.p_correct), neutral)
    if all(p is None for p in p_correct):
        return "nothing judged"
    first = ranked[0][0] if ranked else None
    return Targets(_until(p_correct, first, soft), votes, first, firsts.count(first) / len(ok))


def _first_error(judgement: Judgement, neutral: Neutral) -> int | None:
    if neutral != "bad":
        return judgement.first_error
    return _earlier(judgement.first_error, [v.step for v in judgement.verdicts if v.value == "neutral"])


def _earlier(first: int | None, bad: Sequence[int]) -> int | None:
    """The first error if the steps in `bad` also count as errors."""
    if not bad:
        return first
    return min(bad) if first is None or first < 0 else min(first, *bad)


def _count(
    judgements: Sequence[Judgement], steps: int, neutral: Neutral
) -> tuple[list[float | None], tuple[tuple[int, int], ...]]:
    good, total, mass = [0] * steps, [0] * steps, [0.0] * steps
    for judgement in judgements:
        for verdict in judgement.verdicts:
            p = _plain(1.0 if verdict.value == "correct" else 0.0 if verdict.value == "incorrect" else "neutral", neutral)
            if p is None:
                continue
            good[verdict.step] += p == 1.0
            total[verdict.step] += 1
            mass[verdict.step] += p if verdict.value == "neutral" or verdict.p_correct is None else verdict.p_correct
    return [m / n if n else None for m, n in zip(mass, total, strict=True)], tuple(zip(good, total, strict=True))


def _plain(value: StepLabel, neutral: Neutral) -> float | None:
    """A step's label as a number, with neutral mapped as `neutral` says."""
    if isinstance(value, str):
        return {"good": 1.0, "bad": 0.0, "drop": None}[neutral]
    return value


def _until(values: Sequence[float | None], first: int | None, soft: bool) -> tuple[float | None, ...]:
    """The values up to the first error; later values are None, even if a judge continued.

    Hard values follow from the first error. If it is unknown, everything after the first value below 0.5 is None.
    """
    last = next((i for i, v in enumerate(values) if v is not None and v < 0.5), -1) if first is None else first
    end = len(values) if last < 0 else last + 1
    kept = list(values[:end])
    if not soft:
        kept = [None if v is None else float(v >= 0.5 if first is None else i != first) for i, v in enumerate(kept)]
        if first is not None and first >= 0:
            kept[first] = 0.0
    return (*kept, *(None,) * (len(values) - end))
