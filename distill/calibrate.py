"""Calibrate a verifier on a new kind of data and store the result in its folder as a profile."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from critic_prm.data.label_rows import is_labelled, label_from_json
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import UsageError
from distill.profile import DEFAULTS, ERROR_RATE, NONE, Profile, adapt, check_name
from distill.settings import DEFAULT, CalibrationSettings, LoadOptions
from distill.store import add_profile, check_target, new_verifier_folder, read_verifier
from distill.types import score_items


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
    source = Path(folder)
    check_name(name)
    if out is not None:
        check_target(Path(out))
        if Path(out).resolve() == source.resolve():
            raise UsageError(f"-o {out} is the verifier itself; leave it out to add the profile there")
    verifier = read_verifier(source, loading, NONE)
    solutions = [trajectory for trajectory in target if trajectory.steps]
    raw = score_items(verifier.scorer, [(t.problem, t.texts) for t in solutions])
    profile = adapt(
        raw,
        [labels_of(trajectory) for trajectory in solutions],
        [trajectory.problem for trajectory in solutions],
        verifier.calibration,
        verifier.decision.rule,
        float(verifier.info.get("error_rate") or ERROR_RATE),
        settings,
        facts={"data": data, "sha256": _digest(solutions), "created": datetime.now(UTC).isoformat(timespec="seconds")},
    )
    if out is None:
        add_profile(source, name, profile)
    else:
        with new_verifier_folder(Path(out)) as copy:
            shutil.copytree(source, copy, dirs_exist_ok=True)
            add_profile(copy, name, profile)
    return profile


def labels_of(trajectory: Trajectory) -> tuple[float | None, ...]:
    """P(correct) per step: the gold labels, or those of a label file up to the first error. None where unknown.

    The scores of a verifier are not labels.
    """
    if is_labelled(trajectory.extra) and not any(isinstance(y, float) for y in trajectory.gold()):
        card: Any = trajectory.extra.get("critic")
        label = label_from_json(trajectory.extra, len(trajectory.steps), trajectory.id)
        if label.status != "ok" or label.first_error is None or (isinstance(card, dict) and card.get("provider") == "verifier"):
            return (None,) * len(trajectory.steps)
        trajectory = replace(trajectory, label=label.first_error, step_labels=None)
    return tuple(y if isinstance(y, float) else None for y in trajectory.gold())


def _digest(solutions: Iterable[Trajectory]) -> str:
    """SHA-256 of the ids of the solutions, in any order."""
    return hashlib.sha256("\n".join(sorted(trajectory.id for trajectory in solutions)).encode()).hexdigest()
