"""Who&When (mingyin1): failed multi-agent runs with the 0-based index of the message with the decisive mistake.

{"question": "p", "history": [{"role": "user", "content": "s"}], "mistake_step": "0"}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Options, answer_of, first_error_from, has, id_of, rest, say, text_of
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels="`mistake_step`: the decisive wrong step, as text; every run failed", index_base=0)
_USED = ("question", "history", "mistake_step", "ground_truth", "question_ID")


def score(row: Mapping[str, Any]) -> int:
    """A row has a question, a history and a mistake step."""
    return 3 * has(row, "question", "history", "mistake_step")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. Each message of the history is a step, prefixed with the name of its agent."""
    row, where = record.data, record.where
    history = row.get("history")
    if not isinstance(history, list) or not history or not all(isinstance(turn, dict) for turn in history):
        raise InputError(where, f'"history" is {say(history)}', "it must be a list of messages")
    steps = tuple(Step(f"{turn.get('name') or turn.get('role')}: {turn.get('content')}") for turn in history)
    yield Trajectory(
        id=id_of(row, "question_ID"),
        problem=text_of(row, "question", where),
        steps=steps,
        gold_answer=answer_of(row, "ground_truth"),
        label=first_error_from(row["mistake_step"], options.base(0), len(steps), where, "mistake_step"),
        meta=rest(row, _USED),
    )
