"""FoVer (psunlpgroup/FoVer): solutions with a true/false label per step, and a chat that asks for each label."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target, is_good
from critic_prm.data.trajectory import Trajectory


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The chats are derived from the other fields, so they are not kept."""
    source.drop("messages", "messages_for_prediction")
    steps = source.steps("solution_steps")
    labels = source.labels("error_labels", len(steps), {True: 1.0, False: 0.0, None: None})
    yield source.trajectory(source.text("problem"), steps, step_labels=labels)


def write(target: Target) -> dict[str, Any]:
    """Write one row. `messages` holds the chat for the longest labelled prefix, one user turn per step answered
    by its label."""
    trajectory = target.trajectory
    labels = [None if label is None else is_good(label) for label in target.labels(neutral=False)]
    turns = []
    for index, (text, label) in enumerate(zip(trajectory.texts, labels, strict=True)):
        if label is None:
            break
        shown = text if index else f"{trajectory.problem}\n\n{text}"
        turns += [{"role": "user", "content": shown}, {"role": "assistant", "content": "correct" if label else "incorrect"}]
    return {
        "id": trajectory.id,
        "problem": trajectory.problem,
        "solution_steps": trajectory.texts,
        "error_labels": labels,
        "messages": turns,
        **target.own,
    }


FORMAT = Format(
    sample={
        "problem": "p",
        "solution_steps": ["s"],
        "error_labels": [True],
        "messages": [{"role": "user", "content": "p\n\ns"}, {"role": "assistant", "content": "correct"}],
    },
    read=read,
    write=write,
    fields=("problem", "solution_steps", "error_labels"),
    certainty=2,
    labels="`error_labels`: true if the step is correct (sic), null if unknown",
    after_error="labelled",
    step_labels=(1.0, 0.0, None),
    keeps=("id",),
    own=("base_dataset", "hypothesis_formula", "facts_formula", "problem_witout_definition"),
)
