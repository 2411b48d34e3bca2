"""What the formats of logged model calls share: the conversation of a call as a trajectory, and one call for each trace."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from critic_prm.data.formats.chat import conversation
from critic_prm.data.formats.common import Dropped, Report, Source
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

Message = dict[str, Any]
"""A chat message as OpenAI's API has it: role, content, tool_calls; and `reasoning_content` for what the model thought."""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call: the messages that were sent, and the reply."""

    sent: Sequence[Message]
    reply: Sequence[Message]
    """The assistant's turn; for an agent whose provider ran its tools, several messages."""
    tools: Sequence[Any] = ()
    id: str = ""
    trace: str = ""
    """What the calls of one run have in common; "" if it is unknown."""
    model: str = ""

    @property
    def messages(self) -> list[Message]:
        """The whole conversation. A reply that continues a turn begun in the request (a prefill) is one turn with it."""
        sent, reply = list(self.sent), list(self.reply)
        if sent and reply and _is_turn(sent[-1]) and _is_turn(reply[0]):
            begun, rest = sent[-1].get("content"), reply[0].get("content")
            if isinstance(begun, str) and isinstance(rest, str):
                return [*sent[:-1], {**reply[0], "content": begun + rest}, *reply[1:]]
        return [*sent, *reply]


def _is_turn(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "assistant"


def trajectory_of(call: Call, source: Source, used: Iterable[str] = ()) -> Trajectory:
    """The trajectory of a call: a step for each assistant turn, with the results of its tools as the observation.

    `used` names the fields of the row that the call was made from; the others are kept in `meta`. What the model thought is no
    step: `meta.thinking` has it for each turn. Raises InputError for a conversation without a problem.
    """
    source.drop(*used)
    chat = conversation(call.messages, source.where)
    if not chat.problem.strip():
        raise InputError(
            source.where, "nothing is said before the first assistant turn", "the problem comes first, from the user"
        )
    made = chat.trajectory(source, call.messages, id=call.id)
    thinking = [_thought(call.messages[turn]) for turn in chat.turns]
    meta = {
        **made.meta,
        **({"model": call.model} if call.model else {}),
        **({"thinking": thinking} if any(thinking) else {}),
    }
    extra = {name: value for name, value in made.extra.items() if name != "messages" or any(map(_is_rich, call.messages))}
    return replace(made, meta=meta, extra=extra, tools=tuple(tool for tool in call.tools if isinstance(tool, dict)))


def _is_rich(message: Message) -> bool:
    """Whether a message has more than its text and thoughts, which the steps and `meta` keep."""
    return bool(message.get("tool_calls") or message.get("function_call")) or isinstance(message.get("content"), list)


def _thought(message: Message) -> str | None:
    parts = [message.get("reasoning_content"), message.get("reasoning")]
    content = message.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
            parts += [part.get("thinking"), part.get("content")]
    texts = [part for part in parts if isinstance(part, str) and part.strip()]
    return "\n".join(dict.fromkeys(texts)) or None


def last_of_traces(
    records: Iterator[Record], score: Callable[[Any], int], call_of: Callable[[Any, str], Call], report: Report
) -> Iterator[Record]:
    """The records with one call per trace: the longest conversation, of equally long ones the last.

    An agent sends the whole conversation again at every call, so its last call holds all the others. Records without a `score`
    as rows of the format, those that `call_of` cannot read or drops, and calls without a trace, are passed on. One record per
    trace is held in memory.
    """
    best: dict[str, tuple[int, Record]] = {}
    for record in records:
        call = None
        try:
            call = call_of(record.data, record.where) if isinstance(record.data, dict) and score(record.data) else None
            readable = call is not None and conversation(call.messages, record.where).problem.strip()
        except (Dropped, InputError):
            readable = ""
        if call is None or not readable or not call.trace:
            yield record
            continue
        size = len(call.messages)
        if call.trace in best:
            report.read += 1
            report.dropped["call that a longer one of its trace repeats"] += 1
        if call.trace not in best or size >= best[call.trace][0]:
            best[call.trace] = (size, record)
    yield from (record for _, record in best.values())


def parsed(value: Any) -> Any:
    """The value, or what its JSON says if it is the text of an object or a list, as in the cells of a table."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):  # no JSON, or brackets nested too deeply
            return value
    return value


def body(value: Any) -> Any:
    """The JSON body of a logged request or response, which some logs wrap with method, address or status."""
    value = parsed(value)
    for name in ("body", "json"):
        if isinstance(value, dict) and isinstance(inner := parsed(value.get(name)), dict):
            return inner
    return value


def text_of(value: Any) -> str:
    """A value as text; "" for none."""
    return "" if value is None else str(value)


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def tool_call(name: Any, arguments: Any) -> dict[str, Any]:
    """A tool call as OpenAI's chat messages have it."""
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"type": "function", "function": {"name": text_of(name) or "unknown", "arguments": shown}}


def assistant(texts: Sequence[str], calls: Sequence[Mapping[str, Any]] = (), thoughts: Sequence[str] = ()) -> Message:
    """One assistant turn."""
    message: Message = {"role": "assistant", "content": "\n".join(text for text in texts if text)}
    if calls:
        message["tool_calls"] = list(calls)
    if kept := "\n".join(thought for thought in thoughts if thought):
        message["reasoning_content"] = kept
    return message
