"""Leave kinds of data out of training, to choose a decision that holds on unseen data and to say how good it is there."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from critic_prm.data.hashing import problem_key, unit
from critic_prm.metrics.scores import auroc, first_error_f1
from distill.calibration import Calibration, Floats
from distill.data import Row
from distill.decision import Choice, Decision, Solutions, choose_decision
from distill.profile import ERROR_RATE, best_share

GROUPS = 5
"""Most groups that are left out in turn."""
SHARED = 0.2
"""Sources that share this part of the problems of the smaller one are the same kind of data."""
FEWEST = 30
"""Fewest erroneous and correct solutions of a source whose F1 counts."""


def leave_out_groups(rows: Sequence[Row], most: int = GROUPS) -> NDArray[np.int64]:
    """Assign every row to one of at most `most` groups, shape (rows,): by kind of data, or by problem if there is one kind.

    Sources are of one kind if their names begin with the same word (before the first `_`, `-`, `/` or `:`) or if they share
    problems. Kinds are spread over the groups so that these have similar sizes.
    """
    keys = [problem_key(row.problem) for row in rows]
    problems: dict[str, set[str]] = defaultdict(set)
    for row, key in zip(rows, keys, strict=True):
        problems[row.source].add(key)
    kinds = _kinds(problems)
    if len(set(kinds.values())) == 1:
        return np.array([int(unit("left out", key) * most) for key in keys], dtype=np.int64)
    sizes = Counter(kinds[row.source] for row in rows)
    totals, group = [0] * min(most, len(sizes)), {}
    for kind, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])):
        group[kind] = totals.index(min(totals))
        totals[group[kind]] += size
    return np.array([group[kinds[row.source]] for row in rows], dtype=np.int64)


def _kinds(problems: dict[str, set[str]]) -> dict[str, str]:
    """Return the kind of each source, named by one of its sources."""
    parent = {source: source for source in problems}

    def root(source: str) -> str:
        while parent[source] != source:
            source = parent[source]
        return source

    names = sorted(problems)
    for at, a in enumerate(names):
        for b in names[at + 1 :]:
            shared = len(problems[a] & problems[b]) / min(len(problems[a]), len(problems[b]))
            if shared >= SHARED or _first_word(a) == _first_word(b):
                parent[root(b)] = root(a)
    return {source: root(source) for source in names}


def _first_word(source: str) -> str:
    for separator in "_-/:":
        source = source.partition(separator)[0]
    return source


@dataclass(frozen=True, slots=True)
class Unseen:
    """Scores of the solutions of one source by a model that was trained without data of its kind."""

    source: str
    group: int
    problems: Sequence[str]
    scores: Sequence[Floats]
    """P(correct) per step of each solution."""
    labels: Sequence[Sequence[float | None]]
    gold: Sequence[int | None]
    """First errors, -1 for none, None if unknown."""

    @property
    def solutions(self) -> Solutions:
        return Solutions([p.tolist() for p in self.scores], self.gold)

    @property
    def decides(self) -> bool:
        """Whether it has enough solutions of both kinds for an F1."""
        gold = [first for first in self.gold if first is not None]
        return min(sum(first >= 0 for first in gold), sum(first < 0 for first in gold)) >= FEWEST


def unseen_sources(
    rows: Sequence[Row], groups: NDArray[np.int64], raw: Sequence[Floats], calibration: Calibration
) -> list[Unseen]:
    """Collect the left-out scores of the rows by source, with P(correct) by `calibration`. Rows without a score are dropped."""
    by_source: dict[str, list[int]] = defaultdict(list)
    for at, (row, p) in enumerate(zip(rows, raw, strict=True)):
        if len(p) and not np.isnan(p).any():
            by_source[row.source].append(at)
    return [
        Unseen(
            source,
            int(groups[places[0]]),
            [rows[at].problem for at in places],
            [calibration(raw[at]) for at in places],
            [rows[at].labels for at in places],
            [rows[at].first_error() for at in places],
        )
        for source, places in sorted(by_source.items())
    ]


def parts_of(unseen: Sequence[Unseen]) -> list[Solutions]:
    """The sets of solutions that decide: sources with enough solutions of both kinds, or all sources together."""
    parts = [each.solutions for each in unseen if each.decides]
    return parts or [
        Solutions([p for each in unseen for p in each.solutions.scores], [g for each in unseen for g in each.gold])
    ]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What to expect on a new kind of data: a mean over sources left out, and the 90% prediction interval for one more."""

    mean: float
    low: float
    high: float
    sources: int


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Metrics of one source, by models, decisions and rates that come from other kinds of data; None where undefined."""

    source: str
    solutions: int
    auroc: float | None
    f1: float | None
    """First-error F1 with the decision chosen on other kinds."""
    f1_calibrated: float | None
    """First-error F1 after calibration on its solutions without labels, with the share that is best on other kinds."""


def expectations(unseen: Sequence[Unseen], fallback: Choice) -> tuple[list[LeftOut], dict[str, Expectation]]:
    """Measure every source that decides, with choices made on the other groups only, and summarise per metric."""
    table = []
    for each in (each for each in unseen if each.decides):
        others = [other for other in unseen if other.group != each.group and other.decides]
        choice = choose_decision([other.solutions for other in others]) if others else fallback
        share = best_share([pairs(other) for other in others], choice.decision.rule) or ERROR_RATE
        lowest = [choice.decision.lowest(p) for p in each.solutions.scores]
        calibrated = replace(choice.decision, threshold=float(np.quantile(lowest, share)))
        steps = [(p, y) for scores, labels in zip(each.scores, each.labels, strict=True)
                 for p, y in zip(scores, labels, strict=True) if y is not None]  # fmt: skip
        table.append(
            LeftOut(
                each.source,
                len(each.scores),
                auroc([y >= 0.5 for _, y in steps], [p for p, _ in steps]),
                _f1(each, choice.decision),
                _f1(each, calibrated),
            )
        )
    summary = {}
    for name in ("auroc", "f1", "f1_calibrated"):
        values = [value for row in table if (value := getattr(row, name)) is not None]
        if len(values) >= 3:
            summary[name] = _predict(values)
    return table, summary


def pairs(unseen: Unseen) -> list[tuple[Floats, int]]:
    """The scores and first error of each solution whose first error is known."""
    return [(p, first) for p, first in zip(unseen.scores, unseen.gold, strict=True) if first is not None]


def _f1(unseen: Unseen, decision: Decision) -> float | None:
    known = pairs(unseen)
    return first_error_f1([first for _, first in known], [decision.first_error(p.tolist()) for p, _ in known]).f1


def _predict(values: Sequence[float]) -> Expectation:
    """The prediction interval for one more value from the same normal distribution, cut to [0, 1]."""
    from scipy.stats import t

    mean, sd, n = float(np.mean(values)), float(np.std(values, ddof=1)), len(values)
    reach = float(t.ppf(0.95, n - 1)) * sd * math.sqrt(1 + 1 / n)
    return Expectation(mean, max(mean - reach, 0.0), min(mean + reach, 1.0), n)
