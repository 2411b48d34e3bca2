"""AgentProcessBench (RUCBM): tool-using agent runs as chat messages, with a label 1, 0 or -1 per assistant turn.

    {"question": "p", "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "s"}],
     "step_labels": {"1": 1}}

Keys of `step_labels` are message indices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Convention, Dropped, Options, count, has, known, rating, rest, say, unsaid
from critic_prm.data.formats.messages import conversation, kept_messages, messages_of
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(
    labels="`step_labels`: 1, 0 or -1 under the index of each assistant message", neutral="0", after_error="labelled"
)
_VALUES: Mapping[Any, StepLabel] = {1: 1.0, 0: "neutral", -1: 0.0, None: None}
_USED = ("question", "answer_text", "messages", "tools", "step_labels", "id")
_OWN = ("total_index", "query_index", "sample_index", "data_source", "ground_truth", "tool_metrics", "final_label")


def score(row: Mapping[str, Any]) -> int:
    """A row has messages and step labels."""
    return 3 * has(row, "messages", "step_labels")


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. Its id is the record id used by the benchmark's label files."""
    row, where = record.data, record.where
    said = conversation(row.get("messages"), where)
    meta = rest(row, _USED)
    if said.system and said.system != said.problem:
        meta["system"] = said.system
    question, answer, target = row.get("question"), row.get("answer_text"), row.get("ground_truth")
    names = [row.get(key) for key in ("data_source", "query_index", "sample_index")]
    derived = "" if None in names else ":".join(map(str, names))
    golds = target.get("target") if isinstance(target, dict) else None
    trajectory = Trajectory(
        id=str(row["id"]) if row.get("id") is not None else derived,
        problem=question if isinstance(question, str) and question.strip() else said.problem,
        steps=said.steps,
        final_answer=None if answer is None else str(answer),
        gold_answer=golds[0] if isinstance(golds, list) and golds and isinstance(golds[0], str) else None,
        step_labels=_labels(row.get("step_labels"), said.turns, where),
        images=said.images,
        tools=tuple(tool for tool in row.get("tools") or () if isinstance(tool, dict)),
        meta=meta,
    )
    yield replace(trajectory, extra=kept_messages(row["messages"], trajectory))


def _labels(labels: Any, turns: tuple[int, ...], where: str) -> tuple[StepLabel, ...]:
    """One label per assistant turn, None if the file has none. Raises InputError for invalid indices and values."""
    if not isinstance(labels, dict):
        raise InputError(where, f'"step_labels" is {say(labels)}', "it must be an object from message index to 1, 0 or -1")
    for index, value in labels.items():
        if index not in {str(turn) for turn in turns}:
            raise InputError(where, f"step label {index!r} belongs to no assistant message", f"those are {list(turns)}")
        rating(value, _VALUES, where, f"the label of message {index}")
    return tuple(_VALUES[labels.get(str(turn))] for turn in turns)


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write one row; unlabelled steps are omitted from `step_labels`. Raises Dropped if no step has a label."""
    gold = trajectory.gold()
    if all(label is None for label in gold):
        raise Dropped("no step has a label")
    messages = messages_of(trajectory)
    turns = conversation(messages, trajectory.id).turns
    count("soft labels (rounded at 0.5)", sum(label not in (0.0, 1.0, "neutral", None) for label in gold), lost)
    own = known(trajectory, *_OWN)
    if trajectory.gold_answer is not None:
        own.setdefault("ground_truth", {"target": [trajectory.gold_answer]})
    said = {"id", "observation", "tools", "images", "messages", "final_answer", "gold_answer", "meta.system", *own}
    unsaid(trajectory, said | {f"meta.{key}" for key in own}, lost)
    return {
        "id": trajectory.id,
        **own,
        "question": trajectory.problem,
        "answer_text": trajectory.final_answer,
        "messages": messages,
        "tools": list(trajectory.tools),
        "step_labels": {str(turn): _value(label) for turn, label in zip(turns, gold, strict=True) if label is not None},
    }


def _value(label: StepLabel) -> int:
    if label == "neutral":
        return 0
    return 1 if isinstance(label, float) and label >= 0.5 else -1
