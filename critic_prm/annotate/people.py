"""Read the answers of people from any file that has them, one set of answers per person."""

from __future__ import annotations

from pathlib import Path

from critic_prm.annotate.label_studio import answers, is_task
from critic_prm.data.human import Annotated, HumanAnswers, answered, read_annotations
from critic_prm.data.records.reading import read_records
from critic_prm.errors import InputError


def read_people(path: str | Path) -> list[tuple[str, dict[str, Annotated]]]:
    """The name and the answers of each person in a file. Raises InputError.

    The file is what `annotate` or `labels merge` writes, an escalation file, or a JSON export of Label Studio, which may have
    several annotators.
    """
    first = next(read_records(path), None)
    if first is None or not isinstance(first.data, dict) or not is_task(first.data):
        rows = read_annotations(path)
        names = dict.fromkeys(row.answer.by for row in rows.values() if row.answer.by)
        return [(", ".join(names), rows)]
    people: dict[str, dict[str, Annotated]] = {}
    for record in read_records(path):
        if not isinstance(record.data, dict) or not is_task(record.data):
            raise InputError(record.where, "this is not a task that `labels export` wrote", "export one project only")
        for name, key, answer in answers(record.data, record.where):
            people.setdefault(name, {})[key] = answer
    return list(people.items())


def read_human_answers(path: str | Path) -> HumanAnswers:
    """The answers in a file, to be applied to labels. If several people answered, they must be merged first.

    Raises InputError if they were not.
    """
    people = read_people(path)
    if len(people) > 1:
        names = ", ".join(name for name, _ in people)
        raise InputError(
            str(path), f"this has the answers of {names}", "merge them first: critic-prm labels merge FILE -o MERGED"
        )
    return answered(people[0][1] if people else {})
