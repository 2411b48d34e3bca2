"""Detect scoring biases of judges: position, length, verbosity, style, and own model family."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from critic_prm.data import LabelledTrajectory, problem_key
from critic_prm.data.aggregate import aggregate, open_aggregation
from critic_prm.data.trajectory import StepLabel
from critic_prm.errors import InputError
from critic_prm.evaluate.analyze.analysis import Analysis, Cell, Effect, Table, correct, effect, first_field, mean
from critic_prm.evaluate.settings import BiasSettings
from critic_prm.metrics.bootstrap import Clusters, ratio
from critic_prm.metrics.scores import Array, midranks

NUMBERS = {
    "position": "correlation of a step's P(correct) with its position",
    "verbosity": "correlation of a step's P(correct) with its number of characters",
    "length": "correlation of a solution's score with its number of steps",
    "style_worst": "correlation with a style feature that is furthest from 0",
    "self_preference": "how much higher a judge scores solutions of its own family than other judges do",
    "biases": "number of significant biases of at least --min-effect and of 0.01 of P(correct) per standard deviation",
}
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

AUTHORS = ("generator", "model", "policy", "author")
"""Fields of the row or its meta that name the author of a solution."""

_OTHER_NAMES = {"o": "gpt", "chatgpt": "gpt", "davinci": "gpt", "meta": "llama", "codellama": "llama", "qwq": "qwen"}

_WHAT = {"position": "the later a step", "verbosity": "the longer a step", "length": "the more steps a solution has"}
DEFAULTS = BiasSettings()


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
    """A rank correlation within groups, and the change of P(correct) per standard deviation of x. For self-preference: the
    difference in score, as effect and as change."""

    name: str
    effect: Effect
    shift: float | None


def bias(rows: Iterable[LabelledTrajectory], settings: BiasSettings = DEFAULTS) -> Analysis:
    """Measure biases in label files of one or several judges.

    Comparisons are between items of equal correctness scored by the same judge: steps of one problem with the same gold label,
    and solutions of one problem (of all problems, if they have one solution each) with the same gold label. Without gold, a
    correlation may reflect quality, and a note says so. Self-preference needs two judge families on the same solutions, and
    solutions by two of them. Raises InputError for an empty file.
    """
    judged = [row for row in rows if row.label.status == "ok"]
    if not judged:
        raise InputError("the label file", "it has no usable judgement", "label solutions first")
    steps = [step for row in judged for step in _steps(row)]
    attributes: dict[str, Callable[[_Step], float]] = {
        "position": lambda step: step.place,
        "verbosity": lambda step: float(len(step.text)),
        **{f"style: {name}": _matches(pattern) for name, pattern in STYLE.items()},
    }
    points = {name: _step_points(steps, attribute) for name, attribute in attributes.items()}
    points["length"] = _solution_points(judged, settings.aggregation)
    order = ["position", "verbosity", "length", *(name for name in points if name.startswith("style"))]
    own, matrix = self_preference(judged, settings)
    biases = [*(_bias(name, points[name], settings) for name in order), Bias("self-preference", own, own.value)]
    q = correct([one.effect.p for one in biases])
    flagged = [
        (chance := q[place]) is not None
        and chance < LEVEL
        and abs(one.effect.value or 0.0) >= settings.min_effect
        and abs(one.shift or 0.0) >= MATTERS
        for place, one in enumerate(biases)
    ]
    values = {one.name: one.effect.value for one in biases}
    styles = [value for name, value in values.items() if name.startswith("style") and value is not None]
    numbers = {
        **{name: values[name] for name in ("position", "verbosity", "length")},
        "style_worst": max(styles, key=abs, default=None),
        "self_preference": own.value,
        "biases": float(sum(flagged)),
    }
    findings = tuple(_sentence(one, chance) for one, chance, flag in zip(biases, q, flagged, strict=True) if flag)
    table: list[tuple[Cell, ...]] = []
    for one, chance, flag in zip(biases, q, flagged, strict=True):
        low, high, shift = one.effect.low, one.effect.high, None if one.effect is own else one.shift
        interval = None if low is None or high is None else f"{low:+.2f} {high:+.2f}"
        table.append((one.name + (" (!)" if flag else ""), one.effect.n or None, one.effect.value, interval, chance, shift))
    tables = (Table("Correlation of scores with", ("", "n", "effect", "[95%]", "q", "per SD"), tuple(table)), *matrix)
    return Analysis("bias", numbers, findings, tuple(_notes(judged, own, settings)), tables)


def family_of(model: str) -> str:
    """The family of a model from its name: "gpt" for openai/gpt-5.4-mini, "qwen" for Qwen/Qwen3-8B."""
    name = re.match(r"[a-z]*", model.lower().rstrip("/").rpartition("/")[2])
    word = name.group() if name else ""
    return _OTHER_NAMES.get(word, word) or model


def self_preference(rows: Sequence[LabelledTrajectory], settings: BiasSettings) -> tuple[Effect, list[Table]]:
    """Estimate how much higher a judge scores its own family than others, and return the effect with a table of mean scores.

    The effect is the difference of mean residuals, after removing what all judges think of a solution and how lenient each
    judge is. It is undefined without two judge families on the same solutions, and solutions by two families, one of them a
    judge's. `settings.author` is the field that names who wrote a solution, None for the first of AUTHORS.
    """
    fields = (settings.author,) if settings.author else AUTHORS
    aggregation = open_aggregation(settings.aggregation)
    scores: dict[str, dict[str, tuple[str, str, float]]] = defaultdict(dict)
    for row in rows:
        trajectory, judge = row.trajectory, row.critic.get("model")
        writer, score = first_field(trajectory, *fields), aggregate(row.label.p_correct, aggregation)
        if writer is not None and judge is not None and score is not None:
            entry = (family_of(writer), problem_key(trajectory.problem), score)
            scores[trajectory.id][family_of(str(judge))] = entry
    table = [
        (name, judge, *entry) for name, by_judge in scores.items() if len(by_judge) > 1 for judge, entry in by_judge.items()
    ]
    judges, writers = sorted({row[1] for row in table}), sorted({row[2] for row in table})
    if not set(judges) & set(writers) or len(writers) < 2 or len(judges) < 2:
        return Effect(None), []
    lenience_removed = within([row[1] for row in table], [row[4] for row in table])
    residuals = within([row[0] for row in table], lenience_removed)
    own = [row[1] == row[2] for row in table]
    sums = [(mine, mine * residual, not mine, (not mine) * residual) for mine, residual in zip(own, residuals, strict=True)]
    preference = effect(
        [row[3] for row in table],
        sums,
        lambda sums: ratio(sums[..., :2]) - ratio(sums[..., 2:]),
        replicates=settings.resamples,
        seed=settings.seed,
    )
    cells = [(judge, *(mean(row[4] for row in table if row[1:3] == (judge, w)) for w in writers)) for judge in judges]
    return preference, [Table("Mean score, judges down, writers across", ("judge", *writers), tuple(cells))]


def ranks(values: ArrayLike) -> Array:
    """Mid-ranks scaled to [0, 1], for rank correlations."""
    own = midranks(values)
    return np.asarray((own - 1) / max(1, len(own) - 1))


def within(groups: Sequence[Hashable], values: ArrayLike) -> Array:
    """Values minus the mean of their group."""
    clusters = Clusters(groups)
    flat = np.asarray(values, dtype=np.float64)
    totals = clusters.sums(np.stack([np.ones_like(flat), flat], axis=1))
    return np.asarray(flat - (totals[:, 1] / totals[:, 0])[clusters.index])


def correlation(sums: Array) -> Array:
    """Sum of xy over the square root of the sums of xx and yy; NaN if one of them does not vary."""
    with np.errstate(invalid="ignore", divide="ignore"):
        varies = (sums[..., 1] > 1e-12) & (sums[..., 2] > 1e-12)
        return np.where(varies, sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2]), np.nan)


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
    has_gold = any(truth is not None for truth in gold)
    last = max(1, len(trajectory.steps) - 1)
    for place, (p, truth, text) in enumerate(zip(row.label.p_correct, gold, trajectory.texts, strict=True)):
        if p is not None and (truth is not None or not has_gold):
            yield _Step(problem_key(trajectory.problem), _judge(row), truth, place / last, text, p)


def _judge(row: LabelledTrajectory) -> str:
    return str(row.critic.get("model", row.critic.get("provider")))


def _matches(pattern: re.Pattern[str]) -> Callable[[_Step], float]:
    return lambda step: float(pattern.search(step.text) is not None)


def _step_points(steps: Sequence[_Step], attribute: Callable[[_Step], float]) -> Points:
    return Points(
        problems=[step.problem for step in steps],
        groups=[(step.problem, step.judge, step.truth) for step in steps],
        x=np.array([attribute(step) for step in steps]),
        y=np.array([step.p for step in steps]),
    )


def _solution_points(rows: Sequence[LabelledTrajectory], aggregation: str) -> Points:
    function = open_aggregation(aggregation)
    scored = [(row, score) for row in rows if (score := aggregate(row.label.p_correct, function)) is not None]
    problems = [problem_key(row.trajectory.problem) for row, _ in scored]
    right = [(_judge(row), None if (first := row.trajectory.first_error()) is None else first == -1) for row, _ in scored]
    both = list(zip(problems, right, strict=True))
    shared = sum(size for size in Counter(both).values() if size > 1)
    return Points(
        problems=problems,
        groups=both if shared >= SMALL else right,
        x=np.array([float(len(row.trajectory.steps)) for row, _ in scored]),
        y=np.array([score for _, score in scored]),
    )


def _bias(name: str, points: Points, settings: BiasSettings) -> Bias:
    if not len(points.x):
        return Bias(name, Effect(None), None)
    x, y = within(points.groups, ranks(points.x)), within(points.groups, ranks(points.y))
    sums = np.stack([x * y, x * x, y * y], axis=1)
    rho = effect(points.problems, sums, correlation, replicates=settings.resamples, seed=settings.seed)
    spread = float(np.sqrt(np.mean(x * x)))
    shift = float(np.mean(x * within(points.groups, points.y)) / spread) if rho.value is not None else None
    return Bias(name, rho, shift)


def _sentence(one: Bias, q: float | None) -> str:
    value = one.effect.value or 0.0
    if one.name == "self-preference":
        return f"judges score their own family's solutions {value:+.3f} higher than other judges do, q {q:.3f}"
    attribute = _WHAT.get(one.name, f"where a step's style is '{one.name.removeprefix('style: ')}'")
    return f"{attribute}, the {'higher' if value > 0 else 'lower'} its score, correctness being equal: {value:+.3f}, q {q:.3f}"


def _notes(rows: Sequence[LabelledTrajectory], own: Effect, settings: BiasSettings) -> Iterator[str]:
    yield (
        "effect: rank correlation among steps (solutions) of one problem and gold label; for self-preference the difference in"
        " score. per SD: change of P(correct) per standard deviation."
    )
    yield (
        f"(!): q < {LEVEL:g} (bootstrap by problem, corrected by Benjamini and Hochberg), an effect of at least"
        f" {settings.min_effect:g}, and per SD at least {MATTERS:g}."
    )
    without = sum(not any(isinstance(value, float) for value in row.trajectory.gold()) for row in rows)
    if without:
        yield f"{without:,} of {len(rows):,} solutions have no gold label: among them a correlation may be merit, not bias"
    if own.value is None:
        fields = settings.author or ", ".join(AUTHORS)
        yield (
            "self-preference was not measured: it needs label files of two judge families on the same solutions, and a field"
            f" that names who wrote them ({fields})"
        )
