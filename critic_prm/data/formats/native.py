"""The native format of critic-prm: one JSON object per trajectory, a superset of ProcessBench; also label files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target, about, has
from critic_prm.data.trajectory import Trajectory, trajectory_from_json, trajectory_to_json

# one of these in addition to problem and steps makes a row native rather than plain ProcessBench
_OURS = ("step_labels", "gold_answer", "meta", "p_correct", "judgements", "tools", "images", "final_answer")


def score(row: Mapping[str, Any]) -> int:
    """A row has a problem and steps; fields that only native rows have raise the score."""
    return has(row, "problem", "steps") and 2 + 3 * any(key in row for key in _OURS)


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory with all its fields."""
    row = source.row
    if source.options.index_base == 1 and isinstance(row.get("label"), int) and isinstance(row.get("steps"), list):
        row = {**row, "label": source.first_error("label", 1, len(row["steps"]))}
    trajectory = trajectory_from_json(row, source.where)
    yield trajectory if row.get("id") is not None else replace(trajectory, id="")


def write(target: Target) -> dict[str, Any]:
    """Write the native row, which can represent everything."""
    trajectory = target.trajectory
    target.kept.update(f"meta.{key}" for key in trajectory.meta)
    target.kept.update(trajectory.extra)
    row = trajectory_to_json(trajectory)
    if target.options.index_base == 1 and row.get("label", -1) >= 0:
        row["label"] += 1
    return row


FORMATS = {
    "native": Format(read=read, write=write, score=score, **about("native")),
}
