"""Mr-Ben (dvlab-research): one object keyed by question, with solutions by several models and first errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from critic_prm.data.formats.common import Format, Source, describe
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

_STEPS, _FIRST = "Model_Solution_Steps", "Model_Solution_First_Error_Step"


def score(row: Mapping[str, Any]) -> int:
    """A row is one solution record, or an object whose values are all lists of records."""
    if _STEPS in row:
        return 10
    lists = list(row.values())[:5]
    return 10 if lists and all(isinstance(item, list) and item and _is_record(item[0]) for item in lists) else 0


def _is_record(item: Any) -> bool:
    return isinstance(item, dict) and _STEPS in item


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory per model solution. Code is split into its non-blank lines."""
    groups = [[source.row]] if _STEPS in source.row else source.row.values()
    for group in groups:
        for row in group if isinstance(group, list) else [group]:
            if not _is_record(row):
                raise InputError(source.where, f"a solution is {describe(row)}", f'it must be an object with "{_STEPS}"')
            where = f"{source.where} ({str(row.get('Question_UUID'))[:40]})"
            yield _solution(Source(row, where, source.options))


def _solution(source: Source) -> Trajectory:
    row, text = source.row, source.row.get(_STEPS)
    code = isinstance(text, str)
    steps = tuple(Step(line) for line in text.split("\n") if line.strip()) if isinstance(text, str) else source.steps(_STEPS)
    if not steps:
        raise InputError(source.where, f'"{_STEPS}" is empty', "it must hold the solution")
    problem = source.text("Question")
    if options := source.get("Options"):
        problem += "\n" + str(options).strip()
    gold, modified = source.answer("Ground_Truth_Answer"), source.answer("Ground_Truth_Answer_Modified")
    source.used.discard("Ground_Truth_Answer_Modified")  # stays in `meta`
    source.drop("Question_UUID", _STEPS, _FIRST)
    return source.trajectory(
        problem,
        steps,
        id="-".join(str(row[key]) for key in ("Question_UUID", "Sampled_Model") if row.get(key)),
        gold_answer=modified or gold or None,
        label=_label(source, [step.text for step in steps], code),
        meta={_FIRST: row.get(_FIRST)} if code else {},
    )


def _label(source: Source, steps: Sequence[str], code: bool) -> int | None:
    first = source.row.get(_FIRST)
    if first == "N/A" or source.row.get("Model_Solution_Correctness") == "correct":
        return -1
    if not code:
        return source.first_error(_FIRST, 1, len(steps))
    # The annotators copied the incorrect line, so a blank or repeated line leaves its position unknown.
    lines = [line.strip() for line in str(first).split("\n") if line.strip()]
    places = [index for index, step in enumerate(steps) if lines and step.strip() == lines[0]]
    return places[0] if len(places) == 1 else None


FORMAT = Format(
    sample={"u": [{"Question": "p", _STEPS: ["s"], _FIRST: "1"}]},
    read=read,
    score=score,
    labels=f'`{_FIRST}`: number as text, "N/A" if all correct; for code the text of the incorrect line',
    index_base=1,
)
