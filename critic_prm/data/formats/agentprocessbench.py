"""AgentProcessBench (RUCBM): tool-using agent runs as chat messages, with a label 1, 0 or -1 per assistant turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from critic_prm.data.formats.chat import conversation, messages_of
from critic_prm.data.formats.common import Format, Source, Target, is_good
from critic_prm.data.trajectory import StepLabel, Trajectory
from critic_prm.errors import InputError

_VALUES: Mapping[Any, StepLabel] = {1: 1.0, 0: "neutral", -1: 0.0, None: None}


def read(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Its id is the record id used by the benchmark's label files."""
    row = source.row
    messages = source.get("messages")
    chat = conversation(messages, source.where)
    question, answer, target = source.get("question"), source.get("answer_text"), row.get("ground_truth")
    own, names = source.id(), [row.get(key) for key in ("data_source", "query_index", "sample_index")]
    golds = target.get("target") if isinstance(target, dict) else None
    yield chat.trajectory(
        source,
        messages,
        id=own or ("" if None in names else ":".join(map(str, names))),
        problem=question if isinstance(question, str) and question.strip() else chat.problem,
        final_answer=None if answer is None else str(answer),
        gold_answer=golds[0] if isinstance(golds, list) and golds and isinstance(golds[0], str) else None,
        step_labels=_labels(source, chat.turns),
    )


def _labels(source: Source, turns: tuple[int, ...]) -> tuple[StepLabel, ...]:
    """One label per assistant turn, None if the file has none. Raises InputError for invalid indices and values."""
    labels = source.get("step_labels")
    if not isinstance(labels, dict):
        raise source.error("step_labels", "it must be an object from message index to 1, 0 or -1")
    if unknown := labels.keys() - {str(turn) for turn in turns}:
        raise InputError(
            source.where, f"step label {min(unknown)!r} belongs to no assistant message", f"those are {list(turns)}"
        )
    return tuple(source.label(labels.get(str(turn)), _VALUES, f"the label of message {turn}") for turn in turns)


def write(target: Target) -> dict[str, Any]:
    """Write one row; unlabelled steps are omitted from `step_labels`. Raises Dropped if no step has a label."""
    trajectory, gold, own = target.trajectory, target.labels(), target.own
    messages = messages_of(trajectory)
    turns = conversation(messages, trajectory.id).turns
    if trajectory.gold_answer is not None:
        own.setdefault("ground_truth", {"target": [trajectory.gold_answer]})
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
    return 0 if label == "neutral" else 1 if is_good(label) else -1


FORMAT = Format(
    sample={
        "question": "p",
        "messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "s"}],
        "step_labels": {"1": 1},
    },
    read=read,
    write=write,
    fields=("messages", "step_labels"),
    certainty=3,
    labels="`step_labels`: 1, 0 or -1 under the index of each assistant message",
    neutral="0",
    after_error="labelled",
    step_labels=(1.0, 0.0, "neutral", None),
    keeps=("id", "observation", "tools", "images", "messages", "final_answer", "gold_answer", "meta.system"),
    own=("total_index", "query_index", "sample_index", "data_source", "ground_truth", "tool_metrics", "final_label"),
)
