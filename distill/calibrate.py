"""Calibrate a verifier on a new kind of data and store the result in its folder as a profile."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from critic_prm.data.label_rows import is_labelled, label_from_json
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from distill.calibration import calibration_from_json
from distill.decision import decision_from_json
from distill.profile import DEFAULTS, ERROR_RATE, NONE, Profile, adapt, check_name
from distill.settings import DEFAULT, CalibrationSettings, LoadOptions
from distill.store import add_profile, check_target, new_verifier_folder, read_verifier


def calibrate(
    folder: str | Path,
    target: Iterable[Trajectory],
    name: str,
    *,
    data: str = "",
    out: str | Path | None = None,
    settings: CalibrationSettings = DEFAULTS,
    loading: LoadOptions = DEFAULT,
) -> Profile:
    """Adapt the decision of a verifier to the solutions of `target`, add it as the profile `name` and make it the one in use.

    `target` may have labels: gold labels, or those of a label file, unless a verifier made them; see `labels_of`. `data` says
    in the profile where the solutions come from. With `out`, the verifier is copied there and `folder` is left as it is. Raises
    InputError for a damaged verifier and for too few solutions, UsageError for an invalid name.
    """
    source, check = Path(folder), check_name(name)
    if out is not None:
        check_target(Path(out))
        if Path(out).resolve() == source.resolve():
            raise UsageError(f"-o {out} is the verifier itself; leave it out to add the profile there")
    verifier = read_verifier(source, loading, NONE)
    solutions = [trajectory for trajectory in target if trajectory.steps]
    raw = []
    for start in range(0, len(solutions), verifier.batch):
        raw += verifier.scorer.score([(t.problem, t.texts) for t in solutions[start : start + verifier.batch]])
    info = verifier.info
    profile = adapt(
        [np.asarray(p, dtype=np.float64) for p in raw],
        [labels_of(trajectory) for trajectory in solutions],
        [trajectory.problem for trajectory in solutions],
        calibration_from_json(info["calibration"]),
        decision_from_json(info["decision"]).rule,
        float(info.get("error_rate") or ERROR_RATE),
        settings,
        facts={"data": data, "sha256": _digest(solutions), "created": datetime.now(UTC).isoformat(timespec="seconds")},
    )
    if out is None:
        add_profile(source, check, profile)
    else:
        with new_verifier_folder(Path(out)) as copy:
            shutil.copytree(source, copy, dirs_exist_ok=True)
            add_profile(copy, check, profile)
    return profile


def labels_of(trajectory: Trajectory) -> tuple[float | None, ...]:
    """P(correct) per step: the gold labels, or those of a label file up to the first error. None where unknown.

    The scores of a verifier are not labels.
    """
    gold = trajectory.gold()
    if any(isinstance(y, float) for y in gold) or not is_labelled(trajectory.extra):
        return tuple(y if isinstance(y, float) else None for y in gold)
    card: Any = trajectory.extra.get("critic")
    label = label_from_json(trajectory.extra, len(trajectory.steps), trajectory.id)
    if label.status != "ok" or label.first_error is None or (isinstance(card, dict) and card.get("provider") == "verifier"):
        return (None,) * len(trajectory.steps)
    first = len(trajectory.steps) if label.first_error < 0 else label.first_error
    return tuple(1.0 if step < first else 0.0 if step == first else None for step in range(len(trajectory.steps)))


def _digest(solutions: Iterable[Trajectory]) -> str:
    """SHA-256 of the ids of the solutions, in any order."""
    return hashlib.sha256("\n".join(sorted(trajectory.id for trajectory in solutions)).encode()).hexdigest()
