"""Chat messages, in which each assistant turn with its tool calls is a step; also with the labels of AgentProcessBench."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from critic_prm.data.formats.common import RATINGS, Format, Source, Target, about, describe, rating
from critic_prm.data.trajectory import Step, StepLabel, Trajectory
from critic_prm.errors import InputError

_LISTS = ("messages", "conversations", "conversation")


def _score_chat(row: Mapping[str, Any]) -> int:
    """A row has a list of messages."""
    messages = row.get(_list_of(row))
    return 2 if isinstance(messages, list) and messages and isinstance(messages[0], dict) else 0


def _read_chat(source: Source) -> Iterable[Trajectory]:
    """Read one trajectory. Tool results become the observation of the step that called the tool. Messages that cannot be
    rebuilt from the texts are kept as an extra field."""
    messages = source.get(_list_of(source.row))
    chat = conversation(messages, source.where)
    if not chat.problem.strip():
        fix = "the problem comes first, from the user"
        raise InputError(source.where, "nothing is said before the first assistant turn", fix)
    yield chat.trajectory(source, messages)


def _write_chat(target: Target) -> dict[str, Any]:
    """Write messages and tools. The format cannot represent labels."""
    trajectory = target.trajectory
    row: dict[str, Any] = {"id": trajectory.id, "messages": messages_of(trajectory)}
    if trajectory.tools:
        row["tools"] = list(trajectory.tools)
    target.count("step labels", sum(label is not None for label in trajectory.gold()))
    return row


def _list_of(row: Mapping[str, Any]) -> str:
    return next((key for key in _LISTS if key in row), "")


_ROLE_NAMES = {
    "system": ("system", "developer"),
    "user": ("user", "human"),
    "assistant": ("assistant", "gpt", "model"),
    "tool": ("tool", "function", "observation", "ipython"),
}
_ROLES = {name: role for role, names in _ROLE_NAMES.items() for name in names}


@dataclass(frozen=True, slots=True)
class Conversation:
    """A parsed list of messages. `turns` are the message indices of the steps."""

    system: str
    problem: str
    steps: tuple[Step, ...]
    turns: tuple[int, ...]
    images: tuple[str, ...]

    def trajectory(self, source: Source, messages: Sequence[Mapping[str, Any]], **fields: Any) -> Trajectory:
        """The trajectory of a row with these messages. The system text goes to `meta`; `fields` are passed on."""
        tools = tuple(tool for tool in source.get("tools") or () if isinstance(tool, dict))
        meta = {"system": self.system} if self.system and self.system != self.problem else {}
        made = source.trajectory(**{"problem": self.problem, "steps": self.steps, "meta": meta, **fields})
        made = replace(made, images=self.images, tools=tools)
        return made if list(messages) == list(_made(made)) else replace(made, extra={"messages": list(messages)})


def conversation(messages: Any, where: str) -> Conversation:
    """Parse OpenAI, Anthropic or ShareGPT messages. Raises InputError for invalid messages or a chat without an assistant
    turn.

    The problem is the user text before the first assistant turn, or the system text if there is none.
    """
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InputError(where, f"the messages are {describe(messages)}", 'they must be a list of {"role", "content"}')
    before: dict[str, list[str]] = {"system": [], "user": []}
    texts: list[str] = []
    observed: list[list[str]] = []
    turns: list[int] = []
    images: list[str] = []
    for index, message in enumerate(messages):
        role = _ROLES.get(str(message.get("role", message.get("from"))))
        content = message.get("content", message.get("value"))
        if role is None:
            shown = describe(message.get("role", message.get("from")))
            raise InputError(where, f"message {index} has the role {shown}", f"known roles: {', '.join(_ROLES)}")
        if role == "assistant":
            texts.append("\n".join([*filter(None, [_text(content)]), *_calls(message, content)]))
            observed.append([])
            turns.append(index)
        elif not turns:
            before["user" if role == "tool" else role].append(_text(content))
            images += _images(content)
        else:
            observed[-1].append(
                _text(content) if role == "tool" or _is_result(content) else f"{role.title()}: {_text(content)}"
            )
    if not turns:
        raise InputError(where, "the conversation has no assistant turn", "each assistant turn is a step")
    system = "\n\n".join(before["system"])
    problem = "\n\n".join(before["user"])
    steps = tuple(Step(text, "\n".join(seen) if seen else None) for text, seen in zip(texts, observed, strict=True))
    return Conversation(system, problem if problem.strip() else system, steps, tuple(turns), tuple(images))


def messages_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """The messages of a trajectory: the original ones if its steps are unchanged, else messages built from its texts."""
    kept = trajectory.extra.get("messages")
    if kept is not None and conversation(kept, trajectory.id).steps == trajectory.steps:
        return list(kept)
    return list(_made(trajectory))


def _made(trajectory: Trajectory) -> Iterator[dict[str, Any]]:
    if system := trajectory.meta.get("system"):
        yield {"role": "system", "content": system}
    parts = [{"type": "image_url", "image_url": {"url": image}} for image in trajectory.images]
    yield {"role": "user", "content": [{"type": "text", "text": trajectory.problem}, *parts] if parts else trajectory.problem}
    for step in trajectory.steps:
        yield {"role": "assistant", "content": step.text}
        if step.observation is not None:
            yield {"role": "tool", "content": step.observation}


def _text(content: Any) -> str:
    """The text of a message's content: a string, or the text parts of a list; images and thinking are left out."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    return "\n".join(filter(None, map(_part, content)))


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return json.dumps(part, ensure_ascii=False)
    kind = part.get("type")
    if kind == "tool_result":
        return _text(part.get("content"))
    return str(part["text"]) if isinstance(part.get("text"), str) else ""


def _is_result(content: Any) -> bool:
    """Whether a user message only carries a tool result, as in Anthropic's messages."""
    return isinstance(content, list) and any(isinstance(part, dict) and part.get("type") == "tool_result" for part in content)


def _calls(message: Mapping[str, Any], content: Any) -> Iterator[str]:
    """Tool calls, one per line: the tool's name, then its arguments as JSON."""
    calls = list(message.get("tool_calls") or [])
    if message.get("function_call"):
        calls.append({"function": message["function_call"]})
    for call in calls:
        function = call.get("function", call) if isinstance(call, dict) else {}
        arguments = function.get("arguments", "")
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        yield f"Tool call: {function.get('name', 'unknown')} {shown}".rstrip()
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") == "tool_use":
            yield f"Tool call: {part.get('name')} {json.dumps(part.get('input'), ensure_ascii=False)}"


def _images(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, list) else ():
        link = part.get("image_url") if isinstance(part, dict) else None
        url = link.get("url") if isinstance(link, dict) else link
        if isinstance(url, str):
            yield url


def _read_agentprocessbench(source: Source) -> Iterable[Trajectory]:
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
        step_labels=_turn_labels(source, chat.turns),
    )


def _turn_labels(source: Source, turns: tuple[int, ...]) -> tuple[StepLabel, ...]:
    """One label per assistant turn, None if the file has none. Raises InputError for invalid indices and values."""
    labels = source.get("step_labels")
    if not isinstance(labels, dict):
        raise source.error("step_labels", "it must be an object from message index to 1, 0 or -1")
    if unknown := labels.keys() - {str(turn) for turn in turns}:
        raise InputError(
            source.where, f"step label {min(unknown)!r} belongs to no assistant message", f"those are {list(turns)}"
        )
    return tuple(source.label(labels.get(str(turn)), {**RATINGS, None: None}, f"the label of message {turn}") for turn in turns)


def _write_agentprocessbench(target: Target) -> dict[str, Any]:
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
        "step_labels": {str(turn): rating(label) for turn, label in zip(turns, gold, strict=True) if label is not None},
    }


FORMATS = {
    "chat": Format(read=_read_chat, write=_write_chat, score=_score_chat, **about("chat")),
    "agentprocessbench": Format(read=_read_agentprocessbench, write=_write_agentprocessbench, **about("agentprocessbench")),
}
