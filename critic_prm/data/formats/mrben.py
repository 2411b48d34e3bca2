"""Mr-Ben (dvlab-research): one object keyed by question, with solutions by several models and first errors.

{"u": [{"Question": "p", "Model_Solution_Steps": ["s"], "Model_Solution_First_Error_Step": "1"}]}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Options, answer_of, first_error_from, rest, say, text_of, texts_of
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(
    labels='`Model_Solution_First_Error_Step`: number as text, "N/A" when right; for code the text of the wrong line',
    index_base=1,
)
_STEPS, _FIRST = "Model_Solution_Steps", "Model_Solution_First_Error_Step"
_USED = ("Question_UUID", "Question", "Options", "Ground_Truth_Answer", _STEPS, _FIRST)


def score(row: Mapping[str, Any]) -> int:
    """A row is one solution record, or an object whose values are all lists of records."""
    if _STEPS in row:
        return 10
    lists = list(row.values())[:5]
    return 10 if lists and all(isinstance(item, list) and item and _is_record(item[0]) for item in lists) else 0


def _is_record(item: Any) -> bool:
    return isinstance(item, dict) and _STEPS in item


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory per model solution. Code is split into its non-blank lines."""
    groups = [[record.data]] if _STEPS in record.data else record.data.values()
    for group in groups:
        for row in group if isinstance(group, list) else [group]:
            if not _is_record(row):
                raise InputError(record.where, f"a solution is {say(row)}", f'it must be an object with "{_STEPS}"')
            yield _one(row, f"{record.where} ({str(row.get('Question_UUID'))[:40]})", options)


def _one(row: Mapping[str, Any], where: str, options: Options) -> Trajectory:
    code = isinstance(row.get(_STEPS), str)
    steps = tuple(Step(line) for line in row[_STEPS].split("\n") if line.strip()) if code else texts_of(row, _STEPS, where)
    if not steps:
        raise InputError(where, f'"{_STEPS}" is empty', "it must hold the solution")
    problem = text_of(row, "Question", where)
    if row.get("Options"):
        problem += "\n" + str(row["Options"]).strip()
    return Trajectory(
        id="-".join(str(row[key]) for key in ("Question_UUID", "Sampled_Model") if row.get(key)),
        problem=problem,
        steps=steps,
        gold_answer=answer_of(row, "Ground_Truth_Answer_Modified") or answer_of(row, "Ground_Truth_Answer") or None,
        label=_label(row, [step.text for step in steps], code, options.base(1), where),
        meta=rest(row, _USED) if not code else {**rest(row, _USED), _FIRST: row.get(_FIRST)},
    )


def _label(row: Mapping[str, Any], steps: list[str], code: bool, base: int, where: str) -> int | None:
    first = row.get(_FIRST)
    if first == "N/A" or row.get("Model_Solution_Correctness") == "correct":
        return -1
    if not code:
        return first_error_from(first, base, len(steps), where, _FIRST)
    # The annotators copied the incorrect line, so a blank or repeated line leaves its position unknown.
    lines = [line.strip() for line in str(first).split("\n") if line.strip()]
    places = [index for index, step in enumerate(steps) if lines and step.strip() == lines[0]]
    return places[0] if len(places) == 1 else None
