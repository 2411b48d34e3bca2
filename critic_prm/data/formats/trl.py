"""TRL stepwise supervision, and critic-prm training rows: a prompt, completions, and one label per completion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target
from critic_prm.data.trajectory import Trajectory


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Votes, weight and source of a training row become extra fields."""
    steps = source.steps("completions")
    labels = source.labels("labels", len(steps), {None: None}, numbers=True)
    trajectory = source.trajectory(source.text("prompt"), steps, step_labels=labels)
    yield replace(trajectory, extra=trajectory.meta, meta={})


def write(target: Target) -> dict[str, Any]:
    """Write the row with boolean labels, because TRL truncates fractions, for the labelled steps."""
    trajectory, labels = target.trajectory, target.hard_labels()
    return {
        "prompt": trajectory.problem,
        "completions": trajectory.texts[: len(labels)],
        "labels": labels,
        "id": trajectory.id,
        **target.own,
    }


FORMAT = Format(
    sample={"prompt": "p", "completions": ["s", "t"], "labels": [True, False]},
    read=read,
    write=write,
    fields=("prompt", "completions", "labels"),
    labels="`labels`: true or false per step; P(correct) and null are read",
    after_error="labelled",
    step_labels=(1.0, 0.0),
    keeps=("id",),
    own=("source",),
)
