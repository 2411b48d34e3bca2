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

from critic_prm import signals
from critic_prm.metrics.scores import auroc, brier, ece, first_below, first_error_f1
from distill.card import licence_of, model_card
from distill.data import Row, TrainingSet, labelled, read_training_set
from distill.decision import Calibration, auroc_interval, brier_interval, choose, choose_threshold, f1_interval
from distill.store import FORMAT, VERSION, check_target, new_verifier_folder, work_folder, write_json
from distill.training.progress import draw
from distill.types import Scorer, Student, choose_student
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
    say: Callable[[str], None] = lambda line: None,
) -> Distilled:
    """Distill a training set (a folder, or a `TrainingSet` already in memory) into the verifier folder `out`.

    `student` is a text for `choose_student`, or a student object such as `Transformer(base, settings)`. `say`
    receives progress lines. The state needed to resume an interrupted run is kept in a hidden folder beside `out` until the
    verifier is complete.

    Raises UsageError for an unknown student and InputError for a training set that cannot be learned from; `out` is then left
    unchanged.
    """
    student = choose_student(student) if isinstance(student, str) else student
    target = Path(out)
    check_target(target)
    signals.note(str(target), "was not written")
    rows = data if isinstance(data, TrainingSet) else read_training_set(data)
    work = work_folder(target)
    trained = student.train(rows, seed=seed, say=say, work=work)
    say("calibration and threshold on dev")
    raw = score_rows(trained.scorer, rows.dev)
    calibration, briers = calibrate(raw, rows.dev)
    if not briers:
        say("dev has no labelled steps of both classes: the scores are not calibrated, and the threshold is 0.5")
    dev = [calibration(p) for p in raw]
    seen, gold = known_firsts(dev, rows.dev)
    choice = choose_threshold(seen, gold, [row.weight for row in rows.dev])
    metrics = {"dev": measure(dev, rows.dev, choice.threshold)}
    if rows.test:
        scores = [calibration(p) for p in score_rows(trained.scorer, rows.test)]
        metrics["test"] = measure(scores, rows.test, choice.threshold)
    info: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "student": trained.student,
        "base": trained.base,
        "threshold": choice.threshold,
        "threshold_from": {"data": f"{rows.folder}/dev", "by": "official first-error F1", **asdict(choice)},
        "calibration": {**calibration.to_json(), "data": f"{rows.folder}/dev", "brier": briers},
        "separator": None,
        "licences": {"base": licence_of(trained.base), "data": "" if isinstance(data, TrainingSet) else licence_of(str(data))},
        "causal": trained.scorer.causal,
        "training": {
            "data": rows.folder,
            "data_sha256": rows.fingerprint,
            "sources": dict(Counter(row.source for row in rows.train).most_common()),
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


def score_rows(scorer: Scorer, rows: Sequence[Row]) -> list[Any]:
    """Return the raw scores of every row, computed in batches of the scorer's preferred size."""
    out: list[Any] = []
    for start in range(0, len(rows), scorer.batch):
        out.extend(scorer.score([(row.problem, row.steps) for row in rows[start : start + scorer.batch]]))
    return out


def calibrate(raw: Sequence[Any], rows: Sequence[Row]) -> tuple[Calibration, dict[str, float]]:
    """Choose and fit a calibration on the labelled steps, cross-fitted by problem.

    Returns the identity and no Brier scores if the steps are not of both classes.
    """
    steps = _scored(raw, rows)
    if len({label >= 0.5 for _, _, label, _ in steps}) < 2:
        return Calibration("identity"), {}
    p = np.array([raw[r][s] for r, s, _, _ in steps])
    y, w = np.array([f[2] for f in steps]), np.array([f[3] for f in steps])
    return choose(p, y, w, [rows[r].problem for r, *_ in steps])


def measure(scores: Sequence[Any], rows: Sequence[Row], threshold: float) -> dict[str, Any]:
    """Compute step AUROC (hard labels), Brier score, ECE (10 bins) and the official first-error F1 at `threshold`.

    AUROC, Brier and F1 come with 95% intervals, bootstrapped over problems. A metric that is undefined on these rows (one class
    only) is None.
    """
    steps = _scored(scores, rows)
    p = np.array([scores[r][s] for r, s, _, _ in steps])
    y, w = np.array([f[2] for f in steps]), np.array([f[3] for f in steps])
    hard = y >= 0.5
    step_auroc = auroc(hard, p)
    seen, firsts = known_firsts(scores, rows)
    with_gold = [
        (row.problem, g, first_below(s, threshold)) for row, s, g in zip(rows, seen, firsts, strict=True) if g is not None
    ]
    gold, predicted = [g for _, g, _ in with_gold], [first for _, _, first in with_gold]
    first_errors = first_error_f1(gold, predicted)
    owners = [rows[r].problem for r, *_ in steps]
    return {
        "solutions": len(rows),
        "steps": len(steps),
        "auroc": step_auroc,
        "brier": brier(y, p, w),
        "ece": ece(y, p),
        "f1": first_errors.f1,
        "erroneous": first_errors.erroneous,
        "correct": first_errors.correct,
        "threshold": threshold,
        "intervals": {
            "auroc": None if step_auroc is None else auroc_interval(owners, hard, p),
            "brier": brier_interval(owners, p, y, w) if len(p) else None,
            "f1": f1_interval([problem for problem, _, _ in with_gold], gold, predicted),
        },
    }


def known_firsts(scores: Sequence[Any], rows: Sequence[Row]) -> tuple[list[list[float]], list[int | None]]:
    """Return the available scores of each row and its first error, None if that is unknown or lies beyond the scored steps.

    Steps beyond a student's context have no score (nan).
    """
    seen = [[float(p) for p in each if not np.isnan(p)] for each in scores]
    firsts = [row.first_error() for row in rows]
    hidden = (
        len(s) < len(row.steps) and (g is None or g < 0 or g >= len(s)) for s, row, g in zip(seen, rows, firsts, strict=True)
    )
    return seen, [None if away else g for away, g in zip(hidden, firsts, strict=True)]


def _scored(scores: Sequence[Any], rows: Sequence[Row]) -> list[tuple[int, int, float, float]]:
    """Return the labelled steps that have a score; steps beyond a student's context have none (nan)."""
    return [step for step in labelled(rows) if not np.isnan(scores[step[0]][step[1]])]


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that a student depends on."""
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            installed[package] = version(package)
        except PackageNotFoundError:
            installed[package] = "unknown"
    return installed
