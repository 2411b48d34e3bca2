"""StepVerify (eth-lre/verify-then-generate): incorrect student solutions with the teacher's 0-based first error.

{"problem": "p", "student_incorrect_solution": ["s"], "incorrect_index": 0}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Options, first_error_from, has, id_of, rest, text_of, texts_of
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory

CONVENTION = Convention(labels="`incorrect_index`: first wrong step, null when every step is right", index_base=0)
_STEPS, _FIRST = "student_incorrect_solution", "incorrect_index"


def score(row: Mapping[str, Any]) -> int:
    """A row has a problem, a student's steps and the index of the first error."""
    return 3 * has(row, "problem", _STEPS, _FIRST)


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The teacher's dialogue and explanation go to `meta`."""
    row, where = record.data, record.where
    steps = texts_of(row, _STEPS, where)
    yield Trajectory(
        id=id_of(row),
        problem=text_of(row, "problem", where),
        steps=steps,
        label=first_error_from(row[_FIRST], options.base(0), len(steps), where, _FIRST),
        meta=rest(row, ("problem", _STEPS, _FIRST, "id")),
    )
