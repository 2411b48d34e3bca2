"""Choose a critic's threshold on a subset of a benchmark, as ProcessBench's authors do for process reward models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError, UsageError
from critic_prm.evaluate.benchmarks import open_benchmark, read_benchmarks
from critic_prm.metrics.scorecard import Case

Key: TypeAlias = tuple[str, str, tuple[Step, ...]]


@dataclass(frozen=True, slots=True)
class ThresholdSource:
    """Solutions with gold labels on which a threshold is chosen, by subset."""

    name: str
    """What to call them in the output."""
    subsets: Mapping[str, Sequence[Trajectory]]

    @property
    def solutions(self) -> list[tuple[str, Trajectory]]:
        return [(subset, trajectory) for subset, rows in self.subsets.items() for trajectory in rows]


@dataclass(frozen=True, slots=True)
class ChosenThreshold:
    """A threshold, what it was chosen on, and its first-error F1 there, averaged over subsets."""

    value: float
    source: str
    solutions: int
    f1: float


def key_of(trajectory: Trajectory) -> Key:
    """What identifies a solution among those of several files."""
    return trajectory.id, trajectory.problem, trajectory.steps


def open_threshold_source(spec: str, limit: int | None = None) -> ThresholdSource:
    """Read the solutions of "BENCH#SUBSET", or of all subsets of "BENCH"; BENCH is as in `open_benchmark`.

    `limit` is as in `read_benchmarks`. Raises UsageError for an unknown subset, and InputError if no subset has both erroneous
    and correct solutions.
    """
    bench, mark, wanted = spec.rpartition("#")
    if not mark or Path(spec).exists():
        bench, wanted = spec, ""
    subsets: dict[str, list[Trajectory]] = {}
    for subset, trajectory in read_benchmarks(open_benchmark(bench), limit):
        rows = subsets.setdefault(subset, [])
        if trajectory.first_error() is not None:
            rows.append(trajectory)
    if wanted and wanted not in subsets:
        raise UsageError(f"{bench} has no subset {wanted!r:.80}; available: {', '.join(subsets)}")
    chosen = {name: rows for name, rows in subsets.items() if name == wanted or not wanted}
    if not any(_both_kinds(rows) for rows in chosen.values()):
        raise InputError(
            spec, "a threshold is chosen on erroneous and correct solutions, and it has one kind only", "name another subset"
        )
    return ThresholdSource(wanted or ", ".join(chosen), chosen)


def choose(source: ThresholdSource, cases: Mapping[str, Sequence[Case]]) -> ChosenThreshold:
    """Choose the threshold with the best official first-error F1 of the rule "first step below", averaged over subsets.

    `cases` are the predictions for the solutions of `source`, by subset. Solutions without scores are left out. Raises
    UsageError if the critic gives no probabilities, and InputError if no subset has scores of both kinds of solutions.
    """
    from distill.decision import Solutions, choose_decision

    parts, count, seen = [], 0, set[float]()
    for rows in cases.values():
        scored = [case for case in rows if case.scored]
        seen.update(p for case in scored for p in case.p_correct if p is not None)
        # A step without a score is never the first below, and 1 is above every candidate.
        parts.append(Solutions([[1.0 if p is None else p for p in c.p_correct] for c in scored], [c.gold for c in scored]))
        count += len(scored)
    if seen <= {0.0, 1.0}:
        raise UsageError(
            "--threshold-from needs P(correct), and the critic gives verdicts only; ask a judge for several --samples or for"
            " --logprobs, or leave out --threshold-from"
        )
    choice = choose_decision(parts, rules=("first-below",))
    if choice.f1 is None:
        raise InputError(source.name, "no subset has both erroneous and correct solutions with scores", "name another one")
    return ChosenThreshold(choice.decision.threshold, source.name, count, choice.f1)


def _both_kinds(rows: Sequence[Trajectory]) -> bool:
    return {(first := trajectory.first_error()) is not None and first >= 0 for trajectory in rows} == {True, False}
