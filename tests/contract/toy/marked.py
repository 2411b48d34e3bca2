"""Marked lines: a question, the lines of an answer, and the first wrong line from 1, or 0."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from critic_prm.data.formats.common import Format, Source, Target
from critic_prm.data.trajectory import Trajectory


def read(source: Source) -> Iterable[Trajectory]:
    """Yield one trajectory. Fields that are not read here are kept in `meta`."""
    steps = source.steps("lines")
    yield source.trajectory(source.text("question"), steps, label=source.first_error("wrong_line", 1, len(steps), correct=0))


def write(target: Target) -> dict[str, Any]:
    """Return the row of a trajectory."""
    trajectory = target.trajectory
    return {"question": trajectory.problem, "lines": trajectory.texts, "wrong_line": target.first_error(1, 0)}


FORMATS = {
    "marked": Format(
        about="Marked lines: a question, the lines of an answer, and the first wrong line from 1, or 0.",
        sample={"question": "p", "lines": ["s"], "wrong_line": 1},
        read=read,
        write=write,
        fields=("question", "lines", "wrong_line"),
        labels="`wrong_line`: number of the first wrong line, 0 when every line is right",
        index_base=1,
    )
}
