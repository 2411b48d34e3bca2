"""Cross-validate a student by problem: for sets so small that a dev split could neither calibrate nor measure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic_prm.data.hashing import problem_key, unit
from critic_prm.errors import InputError
from distill.calibration import Floats
from distill.data import Row, TrainingSet, has_both_classes
from distill.types import Student, Trained, score_rows

FOLDS = 5
FEWEST = 5
"""Fewest erroneous and correct solutions of a dev split that can choose a calibration and a threshold."""
SMALL = 200
"""Sets with at most so many solutions are cross-validated if their dev split is too small."""


def choose_folds(data: TrainingSet, student: Student) -> int:
    """The number of folds if dev is too small and cross-validation is affordable, else 0."""
    if not has_both_classes(data.train):
        return 0
    total, cheap = len(data.train) + len(data.dev) + len(data.test), student.leaves_out_cheaply
    if not has_both_classes(data.dev) and (cheap or total <= SMALL):
        return FOLDS
    return FOLDS if total <= SMALL and _scarce(data.dev) else 0


def pooled(data: TrainingSet) -> TrainingSet:
    """The set with dev, and test if it is as small, in train. A test split of some size stays apart."""
    both = data.train + data.dev
    return replace(data, train=both + data.test, dev=(), test=()) if _scarce(data.test) else replace(data, train=both, dev=())


def problem_folds(rows: Sequence[Row], folds: int, seed: int) -> NDArray[np.int64]:
    """Assign rows to folds by problem, shape (rows,), such that every fold has its share of problems with an error."""
    first: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        first[problem_key(row.problem)].append(-1 if (error := row.first_error()) is None else error)
    wrong = {key for key, errors in first.items() if max(errors) >= 0}
    ranked = sorted(first, key=lambda key: (key in wrong, unit("fold", seed, key)))
    fold = {key: place % folds for place, key in enumerate(ranked)}
    return np.array([fold[problem_key(row.problem)] for row in rows], dtype=np.int64)


def require_folds(rows: Sequence[Row], folds: int, folder: str) -> None:
    """Raise InputError unless every fold can have a problem, and both classes of steps occur in at least two problems.

    Otherwise a model in turn would be scored on nothing, or would see one class only.
    """
    problems: dict[bool, set[str]] = {True: set(), False: set()}
    for row in rows:
        for label in row.labels:
            if label is not None and row.weight > 0:
                problems[label >= 0.5].add(problem_key(row.problem))
    if min(map(len, problems.values())) < 2:
        counts = f"{len(problems[True])} problems have a correct step and {len(problems[False])} an incorrect one"
        fix = "label more solutions, some with errors; cross-validation needs two problems of each"
        raise InputError(folder, f"{counts}, in {len(rows)} solutions", fix)
    if folds > (count := len(problems[True] | problems[False])):
        raise InputError(folder, f"{count} problems cannot be divided into {folds} folds", f"give --folds {count} or less")


def train_in_folds(
    student: Student,
    data: TrainingSet,
    fold: NDArray[np.int64],
    *,
    seed: int,
    say: Callable[[str], None],
    work: Path | None = None,
) -> Trained:
    """Train on all rows, and score each row with a model that has not seen its problem (`Trained.left_out`).

    A student that stops early on dev is trained without two folds at a time: one stops it, the other is scored.
    """
    if student.leaves_out_cheaply:
        return student.train_leaving_out(data, fold, seed=seed, say=say, work=work)
    count = int(fold.max()) + 1
    left_out: list[Floats] = [np.empty(0)] * len(data.train)
    for held in range(count):
        say(f"training without fold {held + 1} of {count}")
        part = _without(data, fold, stop=(held + 1) % count, held=held)
        trained = student.train(part, seed=seed, say=say, work=None if work is None else work / f"without-{held}")
        places = np.flatnonzero(fold == held)
        for place, scores in zip(places, score_rows(trained.scorer, [data.train[at] for at in places]), strict=True):
            left_out[place] = scores
    say("training on all folds but the one that stops it")
    return replace(student.train(_without(data, fold, stop=0), seed=seed, say=say, work=work), left_out=left_out)


def _without(data: TrainingSet, fold: NDArray[np.int64], stop: int, held: int | None = None) -> TrainingSet:
    rows = list(zip(data.train, fold.tolist(), strict=True))
    train = tuple(row for row, own in rows if own not in (stop, held))
    return replace(data, train=train, dev=tuple(row for row, own in rows if own == stop), fingerprint="")


def _scarce(rows: Sequence[Row]) -> bool:
    firsts = [first for row in rows if (first := row.first_error()) is not None]
    return min(sum(first >= 0 for first in firsts), sum(first < 0 for first in firsts)) < FEWEST


def by_others(values: Sequence[Any], fold: NDArray[np.int64], held: int) -> list[Any]:
    """The values of the rows of the other folds."""
    return [value for value, own in zip(values, fold.tolist(), strict=True) if own != held]
