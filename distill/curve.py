"""Measure how the AUROC grows with the number of labelled solutions, and estimate how many more would raise it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from critic_prm.data.hashing import problem_key
from critic_prm.metrics.scores import weighted_auroc
from distill.calibration import Floats
from distill.crossvalidate import problem_folds
from distill.data import Row, TrainingSet, has_both_classes
from distill.measure import scored_steps
from distill.types import Student, score_rows

PARTS = (8, 4, 3, 2)
"""Into how many parts the training solutions are divided; a student is trained on each part."""
SMALLEST = 8
"""Fewest solutions of a part."""
GAIN = 0.02
REPLICATES = 300
FARTHEST = 20
"""The curve is not followed beyond so many times the solutions there are."""
VAGUEST = 8
"""No estimate is given if the ends of its 90% interval differ by more than this factor."""
_EXPONENTS = np.linspace(0.1, 1.5, 29)


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean AUROC by the number of solutions trained on, and what the fitted power law says about more of them."""

    solutions: list[int]
    auroc: list[float]
    more: list[int] | None
    """About how many more labelled solutions raise the AUROC by 0.02: median and both ends of the 90% interval. None if the
    data cannot tell."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The curve as text, with the estimate if there is one."""
        points = ", ".join(f"{n}: {value:.2f}" for n, value in zip(self.solutions, self.auroc, strict=True))
        lines = [f"learning curve, AUROC by solutions trained on: {points}"] if points else []
        if self.more:
            lines.append(
                f"about {self.more[0]:,} more labelled solutions for +{GAIN} AUROC (90% interval {self.more[1]:,} to"
                f" {self.more[2]:,}, by a power law fitted to the curve)"
            )
        return lines


def measure_curve(
    student: Student,
    data: TrainingSet,
    evaluated: Sequence[Row],
    full: Sequence[Any],
    size: int,
    *,
    seed: int,
    say: Callable[[str], None],
) -> Curve:
    """Train on parts of `data.train` of several sizes, and compare them with the student trained on `size` solutions.

    `full` are the raw scores of that student for the rows `evaluated`. Those are the rows of train themselves if `data` has no
    dev split (cross-validation); a part is then measured on the other parts.
    """
    train, own = data.train, not data.dev
    sizes: list[int] = []
    scores: list[list[list[Floats]]] = []
    for parts in PARTS:
        if len(train) // parts < SMALLEST:
            continue
        part = problem_folds(train, parts, seed)
        made = []
        for number in range(parts):
            rows = tuple(row for row, its in zip(train, part.tolist(), strict=True) if its == number)
            stop = (number + 1) % parts if own and not student.leaves_out_cheaply else None
            dev = tuple(row for row, its in zip(train, part.tolist(), strict=True) if its == stop) if own else data.dev
            if not has_both_classes(rows) or (stop is not None and not has_both_classes(dev)):
                continue
            trained = student.train(replace(data, train=rows, dev=dev, fingerprint=""), seed=seed, say=lambda line: None)
            seen = [own and its in (number, stop) for its in part.tolist()] if own else [False] * len(evaluated)
            rest = iter(score_rows(trained.scorer, [row for row, known in zip(evaluated, seen, strict=True) if not known]))
            unscored = (np.full(len(row.steps), np.nan) if known else None for row, known in zip(evaluated, seen, strict=True))
            made.append([next(rest) if nothing is None else nothing for nothing in unscored])
        if made:
            say(f"learning curve: trained {len(made)} times on {len(train) // parts} solutions")
            sizes.append(len(train) // parts)
            scores.append(made)
    if len(sizes) < 2:
        return Curve([], [], None)
    scores.append([list(full)])
    sizes.append(size)
    means, replicates = _aurocs(scores, evaluated, seed)
    return Curve(sizes, [round(float(value), 4) for value in means], estimate(sizes, means, replicates, len(train)))


def _aurocs(scores: Sequence[Sequence[Sequence[Floats]]], rows: Sequence[Row], seed: int) -> tuple[Floats, Floats]:
    """The mean AUROC of each size, shape (sizes,), and on resamples of problems and parts, shape (replicates, sizes)."""
    rng = np.random.default_rng(seed)
    numbers = {key: place for place, key in enumerate(sorted({problem_key(row.problem) for row in rows}))}
    owner = np.array([numbers[problem_key(row.problem)] for row in rows])
    draws = rng.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), size=REPLICATES).astype(np.float64)
    means, resampled = [], []
    for parts in scores:
        values = []
        for own in parts:
            steps = scored_steps(own, rows)
            auroc = weighted_auroc([y >= 0.5 for _, _, y, _ in steps], [own[r][s] for r, s, _, _ in steps])
            index = owner[[r for r, *_ in steps]]
            values.append(auroc(np.concatenate([np.ones((1, len(steps))), draws[:, index]])))
        table = np.stack(values)  # (parts, 1 + replicates)
        means.append(np.nanmean(table[:, 0]))
        chosen = rng.integers(0, len(parts), (len(parts), REPLICATES))
        resampled.append(table[chosen, 1 + np.arange(REPLICATES)].mean(axis=0))
    return np.array(means), np.stack(resampled, axis=1)


def estimate(sizes: Sequence[int], means: Floats, replicates: Floats, now: int) -> list[int] | None:
    """How many more solutions than `now` raise the AUROC by `GAIN`: [median, low, high] over the replicates, shape
    (replicates, sizes), of the AUROC at `sizes` solutions. None if that cannot be told: if the curve does not clearly rise, if
    it levels off, or if the interval is too wide or too far away."""
    known = replicates[~np.isnan(replicates).any(axis=1)]
    if len(known) < REPLICATES // 2 or np.mean(known[:, -1] > known[:, 0]) < 0.95:
        return None
    n, weights = np.asarray(sizes, dtype=np.float64), 1 / np.maximum(known.var(axis=0), 1e-6)
    needed = power_law(n, 1 - known, weights, float(now)) - now
    low, middle, high = np.quantile(needed, [0.05, 0.5, 0.95], method="nearest")
    if low <= 0 or high > min(FARTHEST * now, VAGUEST * low):
        return None
    return [_rounded(value) for value in (middle, low, high)]


def power_law(n: Floats, errors: Floats, weights: Floats, now: float) -> Floats:
    """Fit error = floor + scale * n^-exponent with floor, scale >= 0 to each row of `errors`, shape (replicates, sizes), and
    return the number of solutions at which it is `GAIN` below its value at `now`; inf if the floor is above that."""
    best = np.full(len(errors), np.inf)
    needed = np.full(len(errors), np.inf)
    for exponent in _EXPONENTS:
        x = n**-exponent
        mx, me = np.average(x, weights=weights), np.average(errors, axis=1, weights=weights)
        scale = np.maximum(((errors - me[:, None]) * (x - mx) * weights).sum(axis=1) / ((x - mx) ** 2 * weights).sum(), 0)
        floor = me - scale * mx
        through = (errors * x * weights).sum(axis=1) / (x * x * weights).sum()
        scale, floor = np.where(floor < 0, through, scale), np.maximum(floor, 0)
        misfit = (((floor[:, None] + scale[:, None] * x) - errors) ** 2 * weights).sum(axis=1)
        left = scale * now**-exponent - GAIN
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.where(left > 0, (scale / left) ** (1 / exponent), np.inf)
        better = misfit < best
        best, needed = np.where(better, misfit, best), np.where(better, size, needed)
    return needed


def _rounded(value: float) -> int:
    """Two significant digits."""
    return int(float(f"{value:.2g}"))
