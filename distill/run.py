"""Distill a training set into a verifier: train, calibrate, choose the threshold, measure and write the folder."""

from __future__ import annotations

import platform
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from critic_prm import signals
from critic_prm.errors import UsageError
from distill.calibration import Calibration, choose
from distill.card import licence_of, model_card
from distill.crossvalidate import by_others, choose_folds, pooled, problem_folds, require_folds, train_in_folds
from distill.curve import measure_curve
from distill.data import Row, TrainingSet, read_training_set, require_classes
from distill.decision import Choice, choose_decision, choose_threshold
from distill.measure import known_firsts, measure, scored_steps, useless
from distill.profile import best_share, quantiles_of
from distill.store import FORMAT, VERSION, check_target, new_verifier_folder, work_folder, write_json
from distill.training.progress import draw
from distill.transfer import GROUPS, Unseen, expectations, leave_out_groups, pairs, parts_of, unseen_sources
from distill.types import Student, Trained, choose_student, score_rows
from distill.verifier import fingerprint

FEW = 50
"""Warn when fewer solutions than this chose the threshold: at 50, a rate of 0.5 has a standard error of 0.07."""

PACKAGES = ("critic-prm", "numpy", "scikit-learn", "safetensors", "torch", "transformers", "peft", "accelerate")


LOG, PICTURE = "training.jsonl", "training.png"
"""Files copied from the work folder into the verifier: losses per step with dev evaluations, and a plot of both."""


@dataclass(frozen=True, slots=True)
class Distilled:
    """The verifier folder, its `verifier.json`, and the metrics per split (see `measure`)."""

    folder: Path
    info: Mapping[str, Any]
    metrics: Mapping[str, Mapping[str, Any]]


def distill(
    data: str | Path | TrainingSet,
    out: str | Path,
    *,
    student: str | Student = "linear",
    seed: int = 0,
    leave_out: int | None = None,
    folds: int | None = None,
    learning_curve: bool | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Distilled:
    """Distill a training set (a folder, or a `TrainingSet` already in memory) into the verifier folder `out`.

    `student` is a text for `choose_student`, or a student object such as `Transformer(base, settings)`. `leave_out` is the
    number of groups of data that are left out of training in turn, to choose a decision that holds on unseen data; 0: choose it
    on dev; None: 5 for students for which that is cheap, else 0. `folds` is the number of folds of problems to cross-validate
    in, with dev and a small test split added to train; 0: use dev; None: 5 if dev is too small (`choose_folds`), else 0.
    `learning_curve` measures students trained on parts of the data; None: if cross-validated. `say` receives progress lines.
    The state needed to resume an interrupted run is kept in a hidden folder beside `out` until the verifier is complete.

    Raises UsageError for an unknown student and for options that exclude each other, and InputError for a training set that
    cannot be learned from; `out` is then left unchanged.
    """
    student = choose_student(student) if isinstance(student, str) else student
    target = Path(out)
    check_target(target)
    signals.note(str(target), "was not written")
    rows = data if isinstance(data, TrainingSet) else read_training_set(data, check=False)
    if folds == 1:
        raise UsageError("--folds 1 leaves nothing to train on; give 2 or more, or 0 to calibrate on dev")
    if leave_out and folds:
        raise UsageError("--leave-out and --folds exclude each other: both choose what is left out of training; give one")
    count = (choose_folds(rows, student) if leave_out is None else 0) if folds is None else folds
    if not count and not isinstance(data, TrainingSet):
        require_classes(rows, data)
    work = work_folder(target)
    if count:
        made = _cross_validated(student, rows, count, seed, say, work)
    else:
        made = _held_out(student, rows, leave_out, seed, say, work)
    trained, calibration, briers, choice, metrics = made.trained, made.calibration, made.briers, made.choice, made.metrics
    if not briers:
        say(f"{made.calibrated_on} has no labelled steps of both classes: the scores are not calibrated")
    table, expected = expectations(made.unseen, choice)
    share = best_share([pairs(each) for each in made.unseen if each.decides], choice.decision.rule)
    lowest = [choice.decision.lowest(p) for p in made.lowest]
    curve = None
    if bool(count) if learning_curve is None else learning_curve:
        evaluated = made.rows.train if count else (*made.rows.dev, *made.rows.test)
        full = made.raw if count else score_rows(trained.scorer, evaluated)
        size = round(len(evaluated) * (1 - 1 / count)) if count else len(made.rows.train)
        curve = measure_curve(student, made.rows, evaluated, full, size, seed=seed, say=say)
    info: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "student": trained.student,
        "base": trained.base,
        "decision": {
            **asdict(choice.decision),
            "data": made.chosen_on,
            "by": "official first-error F1",
            **{name: getattr(choice, name) for name in ("f1", "erroneous", "correct", "solutions")},
        },
        "error_rate": share,
        "quantiles": list(quantiles_of(lowest)) if lowest else [],
        "unseen": {
            "sources": [asdict(row) for row in table],
            "expected": {name: asdict(value) for name, value in expected.items()},
        },
        "profiles": {},
        "profile": None,
        "calibration": {**calibration.to_json(), "data": made.calibrated_on, "brier": briers},
        "useless": useless(metrics),
        "learning_curve": None if curve is None else curve.to_json(),
        "separator": None,
        "licences": {"base": licence_of(trained.base), "data": "" if isinstance(data, TrainingSet) else licence_of(str(data))},
        "causal": trained.scorer.causal,
        "training": {
            "data": rows.folder,
            "data_sha256": rows.fingerprint,
            "sources": dict(Counter(row.source for row in made.rows.train).most_common()),
            "seed": seed,
            "solutions": trained.solutions,
            "steps": trained.steps,
            **trained.summary,
        },
        "versions": versions(),
    }

    if trained.leads:
        with new_verifier_folder(target) as folder:
            trained.scorer.save(folder)
            if (work / LOG).is_file():
                draw(work / LOG, work / PICTURE)
            for name in (LOG, PICTURE):
                if (work / name).is_file():
                    shutil.copyfile(work / name, folder / name)
            info["fingerprint"] = fingerprint(folder)
            write_json(folder / "verifier.json", info)
            write_json(folder / "metrics.json", metrics)
            (folder / "README.md").write_text(model_card(target.absolute().name, info, metrics), encoding="utf-8")
        shutil.rmtree(work, ignore_errors=True)
    return Distilled(target, info, metrics)


@dataclass(frozen=True, slots=True)
class _Made:
    """A trained student, with the calibration and the decision, and what they were chosen and measured on."""

    trained: Trained
    rows: TrainingSet
    calibration: Calibration
    calibrated_on: str
    briers: Mapping[str, float]
    choice: Choice
    chosen_on: str
    metrics: dict[str, Mapping[str, Any]]
    unseen: Sequence[Unseen]
    """Scores of kinds of data by models that had not seen them."""
    lowest: Sequence[list[float]]
    """The scores of the solutions that the distribution of scores is taken from."""
    raw: Sequence[Any] = ()
    """If cross-validated: the raw scores of each row of train by a model that had not seen its problem."""


def _held_out(
    student: Student, rows: TrainingSet, leave_out: int | None, seed: int, say: Callable[[str], None], work: Path
) -> _Made:
    """Train, calibrate on dev, choose the decision on groups left out of training (or on dev), and measure on dev and test."""
    groups = _groups(student, rows, leave_out)
    if groups is None:
        trained = student.train(rows, seed=seed, say=say, work=work)
    else:
        trained = student.train_leaving_out(rows, groups, seed=seed, say=say, work=work)
    say("calibration and decision")
    raw = score_rows(trained.scorer, rows.dev)
    calibration, briers = calibrate(raw, rows.dev)
    dev = [calibration(p) for p in raw]
    unseen = [] if groups is None else unseen_sources(rows.train, groups, trained.left_out, calibration)
    chosen_on = f"{rows.folder}/train, {len(set(groups.tolist()))} groups left out in turn" if groups is not None else ""
    choice = choose_decision(parts_of(unseen)) if unseen else None
    if choice is None or choice.f1 is None:
        chosen_on = f"{rows.folder}/dev"
        choice = _choose_on(dev, rows.dev)
    metrics: dict[str, Mapping[str, Any]] = {"dev": measure(dev, rows.dev, choice.decision)}
    if rows.test:
        scores = [calibration(p) for p in score_rows(trained.scorer, rows.test)]
        metrics["test"] = measure(scores, rows.test, choice.decision)
    lowest = [list(p) for each in unseen for p in each.solutions.scores] or [p[~np.isnan(p)].tolist() for p in dev]
    return _Made(trained, rows, calibration, f"{rows.folder}/dev", briers, choice, chosen_on, metrics, unseen, lowest)


def _cross_validated(
    student: Student, given: TrainingSet, folds: int, seed: int, say: Callable[[str], None], work: Path
) -> _Made:
    """Train on all rows; calibrate, choose and measure on scores by models that had not seen the problem.

    The metrics of a fold come from a calibration and a decision that were chosen on the other folds.
    """
    rows = pooled(given)
    require_folds(rows.train, folds, given.folder)
    fold = problem_folds(rows.train, folds, seed)
    say(f"cross-validation of {len(rows.train)} solutions, by problem in {folds} folds")
    trained = train_in_folds(student, rows, fold, seed=seed, say=say, work=work)
    say("calibration and decision")
    raw = trained.left_out
    calibration, briers = calibrate(raw, rows.train)
    choice = _choose_on([calibration(p) for p in raw], rows.train)
    p: list[Any] = [None] * len(raw)
    decisions = [choice.decision] * len(raw)
    for held in range(folds):
        others, theirs = by_others(raw, fold, held), by_others(rows.train, fold, held)
        own, _ = calibrate(others, theirs)
        decision = _choose_on([own(scores) for scores in others], theirs).decision
        for at in np.flatnonzero(fold == held).tolist():
            p[at], decisions[at] = own(raw[at]), decision
    metrics: dict[str, Mapping[str, Any]] = {
        "cross-validated": measure(p, rows.train, choice.decision, decisions=decisions, raw=raw)
    }
    if rows.test:
        scores = [calibration(each) for each in score_rows(trained.scorer, rows.test)]
        metrics["test"] = measure(scores, rows.test, choice.decision)
    on = f"{rows.folder}, cross-validated in {folds} folds"
    lowest = [calibration(each[~np.isnan(each)]).tolist() for each in raw]
    return _Made(trained, rows, calibration, on, briers, choice, on, metrics, [], lowest, raw)


def _choose_on(scores: Sequence[Any], rows: Sequence[Row]) -> Choice:
    seen, gold = known_firsts(scores, rows)
    return choose_threshold(seen, gold, [row.weight for row in rows])


def _groups(student: Student, rows: TrainingSet, leave_out: int | None) -> NDArray[np.int64] | None:
    """Return the group of each training row; None if none is left out, or if the rows are of too few groups."""
    most = (GROUPS if student.leaves_out_cheaply else 0) if leave_out is None else leave_out
    groups = leave_out_groups(rows.train, most) if most > 1 and rows.train else None
    return groups if groups is not None and len(np.unique(groups)) > 1 else None


def calibrate(raw: Sequence[Any], rows: Sequence[Row]) -> tuple[Calibration, dict[str, float]]:
    """Choose and fit a calibration on the labelled steps, cross-fitted by problem.

    Returns the identity and no Brier scores if the steps are not of both classes.
    """
    steps = scored_steps(raw, rows)
    if len({label >= 0.5 for _, _, label, _ in steps}) < 2:
        return Calibration("identity"), {}
    p = np.array([raw[r][s] for r, s, _, _ in steps])
    y, w = np.array([f[2] for f in steps]), np.array([f[3] for f in steps])
    return choose(p, y, w, [rows[r].problem for r, *_ in steps])


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a student depends on."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "unknown"
    return installed
