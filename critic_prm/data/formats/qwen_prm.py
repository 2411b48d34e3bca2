"""Qwen2.5-Math-PRM (Qwen): a chat whose answer has the token <extra_0> after each step, and one label per step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Source, Target, describe
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError

TAG = "<extra_0>"


def score(row: Mapping[str, Any]) -> int:
    """A row has messages, and the last one contains the step token."""
    turns = row.get("messages")
    if not isinstance(turns, list) or not turns or not isinstance(turns[-1], dict):
        return 0
    return 5 if isinstance(text := turns[-1].get("content"), str) and TAG in text else 0


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. The user turn is the problem; the text before each step token is a step."""
    turns = {str(turn.get("role")): turn.get("content") for turn in source.get("messages") or () if isinstance(turn, dict)}
    problem, answer, system = turns.get("user"), turns.get("assistant"), turns.get("system")
    if not isinstance(problem, str) or not problem.strip() or not isinstance(answer, str) or TAG not in answer:
        fix = f"it needs a user's turn and an answer with {TAG}"
        raise InputError(source.where, f'"messages" contains {describe(list(turns))}', fix)
    *pieces, behind = answer.split(TAG)
    if behind.strip():
        raise InputError(
            source.where, f"the answer goes on behind its last {TAG}: {describe(behind)}", "each step ends with one"
        )
    labels = source.labels("labels", len(pieces), {None: None}, numbers=True)
    meta = {"system": system} if isinstance(system, str) else {}
    yield source.trajectory(problem, map(Step, pieces), step_labels=labels, meta=meta)


def write(target: Target) -> dict[str, Any]:
    """Write the chat and labels of the labelled steps, with a system turn if the source had one."""
    trajectory, labels = target.trajectory, target.hard_labels()
    texts = trajectory.texts[: len(labels)]
    if any(TAG in text for text in texts):
        raise Dropped(f"a step contains the step token {TAG}")
    system = target.own.get("system")
    turns = [{"role": "system", "content": system}] if isinstance(system, str) else []
    turns.append({"role": "user", "content": trajectory.problem})
    turns.append({"role": "assistant", "content": "".join(text + TAG for text in texts)})
    return {"id": trajectory.id, "messages": turns, "labels": [int(label) for label in labels]}


FORMAT = Format(
    sample={
        "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "s<extra_0>t<extra_0>"}],
        "labels": [1, 0],
    },
    read=read,
    write=write,
    score=score,
    labels="`labels`: 1 or 0 for each `<extra_0>`; P(correct) and null are read",
    after_error="labelled",
    step_labels=(1.0, 0.0),
    keeps=("id",),
    own=("system",),
)
