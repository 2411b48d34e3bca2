"""Qwen2.5-Math-PRM (Qwen): a chat whose answer has the token <extra_0> after each step, and one label per step.

{"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "s<extra_0>t<extra_0>"}],
 "labels": [1, 0]}
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Convention, Dropped, Options, id_of, judged, known, rest, say, unsaid
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels="`labels`: 1 or 0 for each `<extra_0>`; P(correct) and null are read", after_error="labelled")
TAG = "<extra_0>"


def score(row: Mapping[str, Any]) -> int:
    """A row has messages, and the last one contains the step token."""
    turns = row.get("messages")
    if not isinstance(turns, list) or not turns or not isinstance(turns[-1], dict):
        return 0
    return 5 if isinstance(text := turns[-1].get("content"), str) and TAG in text else 0


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The user turn is the problem; the text before each step token is a step."""
    row, where = record.data, record.where
    turns = {str(turn.get("role")): turn.get("content") for turn in row.get("messages") or () if isinstance(turn, dict)}
    problem, answer = turns.get("user"), turns.get("assistant")
    if not isinstance(problem, str) or not problem.strip() or not isinstance(answer, str) or TAG not in answer:
        raise InputError(where, f'"messages" holds {say(list(turns))}', f"it needs a user's turn and an answer with {TAG}")
    *pieces, behind = answer.split(TAG)
    labels = row.get("labels")
    if behind.strip() or not isinstance(labels, list) or len(labels) != len(pieces):
        size = len(labels) if isinstance(labels, list) else say(labels)
        raise InputError(where, f'"labels" is {size} for {len(pieces)} {TAG}', "each step ends with one and needs a label")
    meta = rest(row, ("id", "messages", "labels"))
    if isinstance(turns.get("system"), str):
        meta["system"] = turns["system"]
    yield Trajectory(
        id=id_of(row),
        problem=problem,
        steps=tuple(Step(piece) for piece in pieces),
        step_labels=tuple(_label(label, index, where) for index, label in enumerate(labels)),
        meta=meta,
    )


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write the chat and labels of the labelled steps, with a system turn if the source had one."""
    labels = judged(trajectory, "qwen-prm", lost)
    texts = trajectory.texts[: len(labels)]
    if any(TAG in text for text in texts):
        raise Dropped(f"a step contains the step token {TAG}")
    system = known(trajectory, "system").get("system")
    turns = [{"role": "system", "content": system}] if isinstance(system, str) else []
    turns.append({"role": "user", "content": trajectory.problem})
    turns.append({"role": "assistant", "content": "".join(text + TAG for text in texts)})
    unsaid(trajectory, {"id", "meta.system", "system"}, lost)
    return {"id": trajectory.id, "messages": turns, "labels": [int(label) for label in labels]}


def _label(value: Any, index: int, where: str) -> StepLabel:
    if value is None:
        return None
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return float(value)
    raise InputError(where, f"label {index} is {say(value)}", "a label is 1, 0, a number between them, or null")
