"""Compare and merge the answers of several people: agreement with intervals, and the solutions on which they disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from critic_prm.annotate.solutions import OTHERS
from critic_prm.data.hashing import problem_key
from critic_prm.data.human import BLANK, HUMAN, Annotated, HumanAnswer, answer_to_json, first_error_in
from critic_prm.data.judgement import Verdict
from critic_prm.data.trajectory import trajectory_to_json
from critic_prm.metrics.bootstrap import Clusters, Interval, bootstrap, of_sums, ratio
from critic_prm.metrics.scores import Array, cohen_kappa

Answers = Mapping[str, Annotated]
"""The answers of one person, by trajectory content; see `read_annotations`."""

Pair = tuple[str, Hashable, Hashable]
"""The problem of an item, and what two people say about the item."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often two people say the same about `items` items, with 95% intervals by problem."""

    what: str
    items: int
    alike: float | None
    """Share of the items about which both say the same; None without items."""
    alike_interval: Interval
    kappa: float | None
    """Cohen's kappa: agreement beyond chance. None if both say the same of everything, or without items."""
    kappa_interval: Interval

    def to_json(self) -> dict[str, Any]:
        """The JSON object of the comparison."""
        intervals = {"alike_interval": self.alike_interval, "kappa_interval": self.kappa_interval}
        bounds = {name: None if one.low is None else [one.low, one.high] for name, one in intervals.items()}
        return {"what": self.what, "items": self.items, "alike": self.alike, "kappa": self.kappa, **bounds}


def compare(one: Answers, other: Answers, replicates: int = 2000) -> list[Agreement]:
    """The agreement of two people on verdicts of steps, on the first error, and on whether there is one.

    Only solutions that both decided are compared, and steps on which both gave a verdict. Resampling is by problem, because
    solutions of a problem and steps of a solution are not independent.
    """
    steps: list[Pair] = []
    firsts: list[Pair] = []
    for key, row in one.items():
        a, b = row.answer, other[key].answer if key in other else HumanAnswer(None)
        if a.first_error is None or b.first_error is None:
            continue
        problem, length = problem_key(row.trajectory.problem), len(row.trajectory.steps)
        firsts.append((problem, a.first_error, b.first_error))
        theirs = {verdict.step: verdict.value for verdict in b.said(length)}
        steps += [(problem, v.value, theirs[v.step]) for v in a.said(length) if v.step in theirs]
    erroneous = [(problem, int(a) >= 0, int(b) >= 0) for problem, a, b in firsts]  # type: ignore[call-overload]
    named = {"verdict of a step": steps, "first error": firsts, "any error": erroneous}
    return [_agreement(what, pairs, replicates) for what, pairs in named.items()]


def _agreement(what: str, pairs: Sequence[Pair], replicates: int) -> Agreement:
    import numpy as np

    if not pairs:
        none = Interval(None, None, reason="nothing was decided by both")
        return Agreement(what, 0, None, none, None, none)
    problems, ones, others = zip(*pairs, strict=True)
    place = {value: number for number, value in enumerate(sorted({*ones, *others}, key=repr))}
    # columns: items, agreements, and how often each person said each value; kappa depends on their sums alone
    rows = np.zeros((len(pairs), 2 + 2 * len(place)))
    rows[:, 0] = 1
    for row, a, b in zip(rows, ones, others, strict=True):
        row[1] = a == b
        row[2 + place[a]] = row[2 + len(place) + place[b]] = 1
    clusters = Clusters(problems)
    totals = clusters.sums(rows)

    def kappa(sums: Array) -> Array:
        items, same, said = sums[..., 0], sums[..., 1], sums[..., 2:]
        expected = (said[..., : len(place)] * said[..., len(place) :]).sum(axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((same * items - expected) / (items * items - expected))

    def interval(statistic: Any) -> Interval:
        return bootstrap(of_sums(totals, statistic), clusters.count, replicates)[0]

    return Agreement(what, len(pairs), float(rows[:, 1].mean()), interval(ratio), cohen_kappa(ones, others), interval(kappa))


@dataclass(frozen=True, slots=True)
class Merged:
    """The answers of several people as one file: rows as `annotate` writes them."""

    rows: list[dict[str, Any]]
    """One row per solution; without an answer where they disagree."""
    disagreements: list[dict[str, Any]]
    """The solutions on which they disagree, each with all answers: a file that `annotate` opens."""
    counts: Counter[str]
    """Number of solutions: "agree", "disagree", "adjudicated", "by one" and "undecided"."""


def merge(people: Sequence[tuple[str, Answers]], adjudicated: Answers | None = None) -> Merged:
    """Merge the answers of several people. `people` has the name and the answers of each.

    People agree on a solution if they name the same first error and no two of them gave a step different verdicts. An answer in
    `adjudicated` decides a solution on which they disagree.
    """
    merged = Merged([], [], Counter())
    for key in dict.fromkeys(key for _, answers in people for key in answers):
        given = [(name, answers[key]) for name, answers in people if key in answers]
        row = trajectory_to_json(given[0][1].trajectory)
        row.pop(OTHERS, None)
        decided = [replace(one.answer, by=name) for name, one in given if one.answer.first_error is not None]
        steps = len(given[0][1].trajectory.steps)
        ruling = (adjudicated or {}).get(key)
        if not decided:
            state, answer = "undecided", None
        elif (answer := _common(decided, steps)) is not None:
            state = "agree" if len(decided) > 1 else "by one"
        elif ruling is not None and ruling.answer.first_error is not None:
            state, answer = "adjudicated", ruling.answer
        else:
            state = "disagree"
            answers = [answer_to_json(replace(one, verdicts=one.said(steps))) for one in decided]
            merged.disagreements.append({**row, OTHERS: answers, HUMAN: dict(BLANK)})
        merged.counts[state] += 1
        merged.rows.append({**row, HUMAN: dict(BLANK) if answer is None else answer_to_json(answer)})
    return merged


def _common(answers: Sequence[HumanAnswer], steps: int) -> HumanAnswer | None:
    """The answer that all agree on; None if they do not."""
    if len(answers) == 1:
        return answers[0]
    verdicts: dict[int, Verdict] = {}
    comments: dict[int, list[tuple[str, str]]] = {}
    for answer in answers:
        for verdict in answer.said(steps):
            if verdicts.setdefault(verdict.step, verdict).value != verdict.value:
                return None
            comments.setdefault(verdict.step, []).append((answer.by, verdict.critique))
        for step, text in answer.comments.items():
            comments.setdefault(step, []).append((answer.by, text))
    first = first_error_in({step: verdict.value for step, verdict in verdicts.items()}, steps)
    if any(answer.first_error != first for answer in answers):
        return None
    return HumanAnswer(
        first_error=first,
        by=", ".join(answer.by for answer in answers),
        note=_joined([(answer.by, answer.note) for answer in answers]),
        verdicts=tuple(replace(verdicts[step], critique=_joined(comments[step])) for step in sorted(verdicts)),
        comments={step: _joined(said) for step, said in comments.items() if step not in verdicts},
        seen=tuple(dict.fromkeys(name for answer in answers for name in answer.seen)),
        looked=tuple(dict.fromkeys(name for answer in answers for name in answer.looked)),
    )


def _joined(texts: Sequence[tuple[str, str]]) -> str:
    """The texts of several people, with their names if several wrote one."""
    written = [(name, text) for name, text in texts if text]
    return "\n".join(f"{name}: {text}" for name, text in written) if len(written) > 1 else "".join(text for _, text in written)


def pairs_of(people: Sequence[tuple[str, Answers]]) -> list[tuple[str, list[Agreement]]]:
    """The agreement of every pair of people, with the names of the pair."""
    return [(f"{a} and {b}", compare(one, other)) for (a, one), (b, other) in combinations(people, 2)]
