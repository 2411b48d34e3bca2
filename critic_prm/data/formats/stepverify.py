"""StepVerify (eth-lre/verify-then-generate): incorrect student solutions with the teacher's 0-based first error."""

from __future__ import annotations

from collections.abc import Iterable

from critic_prm.data.formats.common import Format, Source
from critic_prm.data.trajectory import Trajectory


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The teacher's dialogue and explanation go to `meta`."""
    steps = source.steps("student_incorrect_solution")
    yield source.trajectory(source.text("problem"), steps, label=source.first_error("incorrect_index", 0, len(steps)))


FORMAT = Format(
    sample={"problem": "p", "student_incorrect_solution": ["s"], "incorrect_index": 0},
    read=read,
    fields=("problem", "student_incorrect_solution", "incorrect_index"),
    certainty=3,
    labels="`incorrect_index`: first incorrect step, null if every step is correct",
    index_base=0,
)
