"""Detect scoring biases of judges: position, length, verbosity, style, and own model family."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.data.hashing import problem_key
from critic_prm.data.label_rows import LabelledTrajectory
from critic_prm.data.trajectory import StepLabel
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze._families import AUTHORS, self_preference
from critic_prm.evaluate.analyze._statistics import Effect, correct, correlation, effect, ranks, within
from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Table
from critic_prm.metrics.scores import Array

NUMBERS = {
    "position": "correlation of a step's P(correct) with its place, from first to last",
    "verbosity": "correlation of a step's P(correct) with its number of characters",
    "length": "correlation of a solution's score with its number of steps",
    "style_worst": "the correlation with a mark of style that is furthest from 0",
    "self_preference": "by how much a judge scores solutions of its own family higher than other judges do",
    "biases": "how many of these are larger than chance, than --least, and than 0.01 of P(correct) a standard deviation",
}
LEAST = 0.1
MATTERS = 0.01
"""Minimum change of P(correct) per standard deviation for a bias to be reported. Near 0 and 1, ranks depend on tiny
differences."""
LEVEL = 0.05
SMALL = 30
"""Minimum number of solutions that share their problem with another one for comparing within problems."""

STYLE = {
    "formulas": re.compile(r"\\[a-zA-Z]+|\$[^$]+\$"),
    "markdown": re.compile(r"\*\*|^#+ |^\s*[-*] ", re.MULTILINE),
    "sure of itself": re.compile(
        r"\b(?:clearly|obviously|certainly|of course|trivially|undoubtedly|definitely)\b", re.IGNORECASE
    ),
    "unsure": re.compile(r"\b(?:perhaps|maybe|probably|might|seems?|i think|i guess|likely)\b", re.IGNORECASE),
    "says it checked": re.compile(
        r"\b(?:verif(?:y|ied)|double[- ]check\w*|checked|let me check|confirm(?:s|ed)?)\b", re.IGNORECASE
    ),
    "first person": re.compile(r"\b(?:I|we|let's|us)\b", re.IGNORECASE),
}
"""Stylistic markers, none of which makes a step correct or incorrect."""


@dataclass(frozen=True, slots=True)
class Points:
    """The data for one bias: scores `y`, an attribute `x` they should not depend on, problems, and groups of equal
    correctness."""

    problems: Sequence[Hashable]
    groups: Sequence[Hashable]
    x: Array
    y: Array


@dataclass(frozen=True, slots=True)
class Bias:
    """A rank correlation within groups, and the change of P(correct) per standard deviation of x."""

    name: str
    rho: Effect
    shift: float | None


def bias(
    rows: Iterable[LabelledTrajectory],
    *,
    how: str = "min",
    author: str | None = None,
    least: float = LEAST,
    replicates: int = 2000,
    seed: int = 0,
) -> Analysis:
    """Measure biases in label files of one or several judges.

    Comparisons are between items of equal correctness scored by the same judge: steps of one problem with the same gold label,
    and solutions of one problem (of all problems, if they have one solution each) with the same gold label. Without gold, a
    correlation may reflect quality, and a note says so. `how` is the aggregation of the solution's score, `author` the field
    that names who wrote it. Self-preference needs two judge families on the same solutions, and solutions by two of them.
    Raises InputError for an empty file.
    """
    function = open_aggregation(how)
    judged = [row for row in rows if row.label.status == "ok"]
    if not judged:
        raise InputError("the label file", "it contains no judgement that could be read", "label solutions first")
    steps = [step for row in judged for step in _steps(row)]
    looks: dict[str, Callable[[_Step], float]] = {
        "position": lambda step: step.place,
        "verbosity": lambda step: float(len(step.text)),
        **{f"style: {name}": _counter(pattern) for name, pattern in STYLE.items()},
    }
    found = [_look(name, _points(steps, look), replicates, seed) for name, look in looks.items()]
    found.insert(2, _look("length", _solutions(judged, function), replicates, seed))
    own, matrix = self_preference(judged, function, author, replicates, seed)
    effects = [one.rho for one in found] + [own]
    q = correct([one.p for one in effects])
    named = [one.name for one in found] + ["self-preference"]
    shifts = [one.shift for one in found] + [own.value]
    flagged = [
        place
        for place, one in enumerate(effects)
        if (chance := q[place]) is not None and chance < LEVEL and abs(one.value or 0.0) >= least
        if abs(shifts[place] or 0.0) >= MATTERS
    ]
    styles = [one.rho.value for one in found if one.name.startswith("style") and one.rho.value is not None]
    by_name = {one.name: one.rho.value for one in found}
    numbers = {
        **{name: by_name[name] for name in ("position", "verbosity", "length")},
        "style_worst": max(styles, key=abs, default=None),
        "self_preference": own.value,
        "biases": float(len(flagged)),
    }
    findings = tuple(_sentence(named[place], effects[place], q[place]) for place in flagged)
    table: list[tuple[Cell, ...]] = []
    for place, one in enumerate(effects):
        shift = shifts[place] if place < len(found) else None
        table.append(
            (named[place] + (" (!)" if place in flagged else ""), one.n or None, one.value, _interval(one), q[place], shift)
        )
    tables = [Table("Scores go with", ("", "n", "effect", "[95%]", "q", "per SD"), tuple(table)), *matrix]
    return Analysis("bias", numbers, findings, tuple(_notes(judged, own, author, least)), tuple(tables))


@dataclass(frozen=True, slots=True)
class _Step:
    problem: str
    judge: str
    truth: StepLabel
    place: float
    text: str
    p: float


def _steps(row: LabelledTrajectory) -> Iterator[_Step]:
    """Yield the steps that have a score, and a gold label if the solution has any."""
    trajectory, gold = row.trajectory, row.trajectory.gold()
    known = any(truth is not None for truth in gold)
    last = max(1, len(trajectory.steps) - 1)
    for place, (p, truth, text) in enumerate(zip(row.label.p_correct, gold, trajectory.texts, strict=True)):
        if p is not None and (truth is not None or not known):
            yield _Step(problem_key(trajectory.problem), _judge(row), truth, place / last, text, p)


def _judge(row: LabelledTrajectory) -> str:
    return str(row.critic.get("model", row.critic.get("provider")))


def _counter(pattern: re.Pattern[str]) -> Callable[[_Step], float]:
    return lambda step: float(pattern.search(step.text) is not None)


def _points(steps: Sequence[_Step], look: Callable[[_Step], float]) -> Points:
    return Points(
        problems=[step.problem for step in steps],
        groups=[(step.problem, step.judge, step.truth) for step in steps],
        x=np.array([look(step) for step in steps]),
        y=np.array([step.p for step in steps]),
    )


def _solutions(rows: Sequence[LabelledTrajectory], how: Callable[[Sequence[float]], float]) -> Points:
    scored = [(row, score) for row in rows if (score := aggregate(row.label.p_correct, how)) is not None]
    problems = [problem_key(row.trajectory.problem) for row, _ in scored]
    right = [(_judge(row), None if (first := row.trajectory.first_error()) is None else first == -1) for row, _ in scored]
    together = list(zip(problems, right, strict=True))
    sizes = Counter(together)
    shared = sum(size for size in sizes.values() if size > 1)
    return Points(
        problems=problems,
        groups=together if shared >= SMALL else right,
        x=np.array([float(len(row.trajectory.steps)) for row, _ in scored]),
        y=np.array([score for _, score in scored]),
    )


def _look(name: str, points: Points, replicates: int, seed: int) -> Bias:
    if not len(points.x):
        return Bias(name, Effect(None), None)
    x, y = within(points.groups, ranks(points.x)), within(points.groups, ranks(points.y))
    found = effect(points.problems, np.stack([x * y, x * x, y * y], axis=1), correlation, replicates=replicates, seed=seed)
    spread = float(np.sqrt(np.mean(x * x)))
    shift = float(np.mean(x * within(points.groups, points.y)) / spread) if found.value is not None else None
    return Bias(name, found, shift)


def _sentence(name: str, found: Effect, q: float | None) -> str:
    value = found.value or 0.0
    if name == "self-preference":
        return f"judges score their own family's solutions {value:+.3f} higher than other judges do, q {q:.3f}"
    what = {
        "position": "the later a step",
        "verbosity": "the longer a step",
        "length": "the more steps a solution has",
    }.get(name, f"where a step's style is '{name.removeprefix('style: ')}'")
    return f"{what}, the {'higher' if value > 0 else 'lower'} its score, correctness being equal: {value:+.3f}, q {q:.3f}"


def _interval(found: Effect) -> str | None:
    return None if found.low is None or found.high is None else f"{found.low:+.2f} {found.high:+.2f}"


def _notes(rows: Sequence[LabelledTrajectory], own: Effect, author: str | None, least: float) -> Iterable[str]:
    yield (
        "effect: rank correlation among steps (solutions) of one problem and gold label; for self-preference the difference in"
        " score. per SD: what one standard deviation more does to P(correct)."
    )
    yield (
        f"(!): q < {LEVEL:g} (bootstrap by problem, corrected by Benjamini and Hochberg), an effect of at least {least:g}, and"
        f" per SD at least {MATTERS:g}."
    )
    gold = [any(isinstance(value, float) for value in row.trajectory.gold()) for row in rows]
    if not all(gold):
        without = len(gold) - sum(gold)
        yield f"{without:,} of {len(rows):,} solutions have no gold label: among them a correlation may be merit, not bias"
    if own.value is None:
        fields = author or ", ".join(AUTHORS)
        yield (
            "self-preference was not measured: it takes label files of two judge families on the same solutions, and a field"
            f" that names who wrote them ({fields})"
        )
