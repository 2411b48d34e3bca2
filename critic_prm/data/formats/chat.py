"""Chat messages (OpenAI, Anthropic, ShareGPT): each assistant turn with its tool calls is a step; no labels.

    {"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "s"}]}

Tool results become the observation of the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Convention, Options, count, id_of, rest, unsaid
from critic_prm.data.formats.messages import conversation, kept_messages, messages_of
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

CONVENTION = Convention(labels="none")
_LISTS = ("messages", "conversations", "conversation")


def score(row: Mapping[str, Any]) -> int:
    """A row has a list of messages."""
    key = _list_of(row)
    return 2 if key and isinstance(row[key], list) and row[key] and isinstance(row[key][0], dict) else 0


def read(record: Record, options: Options) -> Iterable[Trajectory]:
    """Read one trajectory. The system text goes to `meta`. Messages that cannot be rebuilt from the texts are kept as an extra
    field."""
    row, where = record.data, record.where
    key = _list_of(row)
    said = conversation(row.get(key), where)
    if not said.problem.strip():
        raise InputError(where, "nothing is said before the first assistant turn", "the problem comes first, from the user")
    meta = rest(row, (key, "id", "tools"))
    if said.system and said.system != said.problem:
        meta["system"] = said.system
    trajectory = Trajectory(
        id=id_of(row),
        problem=said.problem,
        steps=said.steps,
        images=said.images,
        tools=tuple(tool for tool in row.get("tools") or () if isinstance(tool, dict)),
        meta=meta,
    )
    yield replace(trajectory, extra=kept_messages(row[key], trajectory))


def write(trajectory: Trajectory, options: Options, lost: Counter[str]) -> dict[str, Any]:
    """Write messages and tools. The format cannot represent labels."""
    row: dict[str, Any] = {"id": trajectory.id, "messages": messages_of(trajectory)}
    if trajectory.tools:
        row["tools"] = list(trajectory.tools)
    count("step labels", sum(label is not None for label in trajectory.gold()), lost)
    unsaid(trajectory, {"id", "observation", "tools", "images", "messages", "meta.system"}, lost)
    return row


def _list_of(row: Mapping[str, Any]) -> str:
    return next((key for key in _LISTS if key in row), "")
