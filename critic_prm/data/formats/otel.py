"""OpenTelemetry spans of model calls, by the GenAI semantic conventions: OTLP in JSON, console exporter, log events.

Messages are read from the attributes of the current conventions (`gen_ai.input.messages`, `gen_ai.output.messages`,
`gen_ai.system_instructions`), from the events of the earlier ones (`gen_ai.user.message`, `gen_ai.choice`, ...), and from the
numbered attributes of OpenLLMetry (`gen_ai.prompt.0.content`) and OpenInference (`llm.input_messages.0.message.content`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Report, Source, about
from critic_prm.data.formats.logs import (
    Call,
    Message,
    assistant,
    dicts,
    last_of_traces,
    parsed,
    text_of,
    tool_call,
    trajectory_of,
)
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

_EVENT = re.compile(r"gen_ai\.(system|user|assistant|tool)\.message$")
_NUMBERED = re.compile(
    r"(gen_ai\.prompt|gen_ai\.completion|llm\.input_messages|llm\.output_messages)\.(\d+)\.(?:message\.)?(.+)"
)
_TOOL_CALL = re.compile(r"tool_calls\.(\d+)\.(?:tool_call\.)?(?:function\.)?(name|arguments)$")
_MODEL_SPANS = ("gen_ai.", "llm.")


def _score(row: Mapping[str, Any]) -> int:
    """A row is an OTLP batch of spans or log records, or one span."""
    batch = any(isinstance(row.get(name), list) for name in _names("resourceSpans", "resourceLogs"))
    return 5 if batch or (_is_span(row) and any(map(_is_model_span, _spans(row)))) else 0


def _names(*names: str) -> list[str]:
    """Names in both spellings, resourceSpans and resource_spans."""
    return [*names, *(re.sub("([A-Z])", lambda found: f"_{found[1].lower()}", name) for name in names)]


def _get(value: Mapping[str, Any], name: str) -> Any:
    return next((value[spelled] for spelled in _names(name) if spelled in value), None)


def _is_span(row: Mapping[str, Any]) -> bool:
    known = isinstance(row.get("context"), dict) or isinstance(_get(row, "spanId"), str)
    return known and isinstance(row.get("attributes"), dict | list)


def _spans(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The spans of a row; log records of one span stand for it."""
    if _is_span(row):
        yield row
    for resource in dicts(_get(row, "resourceSpans")):
        for scope in dicts(_get(resource, "scopeSpans")):
            yield from dicts(scope.get("spans"))
    events: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for resource in dicts(_get(row, "resourceLogs")):
        for scope in dicts(_get(resource, "scopeLogs")):
            for record in dicts(_get(scope, "logRecords")):
                attributes = _attributes(record.get("attributes"))
                name = _get(record, "eventName") or attributes.get("event.name")
                event = {"name": name, "attributes": record.get("attributes"), "body": _value(record.get("body"))}
                events[text_of(_get(record, "traceId")), text_of(_get(record, "spanId"))].append(event)
    for (trace, span), own in events.items():
        yield {"traceId": trace, "spanId": span, "attributes": [], "events": own}


def _attributes(given: Any) -> dict[str, Any]:
    """Attributes as a mapping; OTLP has a list of keys and typed values."""
    if isinstance(given, dict):
        return given
    return {item["key"]: _value(item.get("value")) for item in dicts(given) if isinstance(item.get("key"), str)}


def _value(value: Any) -> Any:
    """What a typed value of OTLP holds."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind in _names("arrayValue"):
        return [_value(item) for item in (inner.get("values") or () if isinstance(inner, dict) else ())]
    if kind in _names("kvlistValue"):
        return _attributes(inner.get("values") if isinstance(inner, dict) else None)
    return inner if kind in _names("stringValue", "intValue", "boolValue", "doubleValue", "bytesValue") else value


def _is_model_span(span: Mapping[str, Any]) -> bool:
    names = [*_attributes(span.get("attributes")), *(text_of(event.get("name")) for event in dicts(span.get("events")))]
    return any(name.startswith(_MODEL_SPANS) for name in names)


def _call(span: Mapping[str, Any]) -> Call | None:
    """The call of a span; None if it holds no messages."""
    attributes = _attributes(span.get("attributes"))
    sent: list[Message] = []
    reply: list[Message] = []
    for event in dicts(span.get("events")):
        name, own = text_of(event.get("name")), _attributes(event.get("attributes"))
        if name == "gen_ai.client.inference.operation.details":
            attributes = {**attributes, **own}
        elif role := _EVENT.match(name):
            sent.append(_event_message(role[1], own, event.get("body")))
        elif name == "gen_ai.choice":
            body = _event_body(own, event.get("body"))
            inner = parsed(body.get("message"))
            reply.append(_event_message("assistant", inner if isinstance(inner, dict) else body, None))
        elif name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            (sent if name.endswith("prompt") else reply).extend(_plain(own.get(name.replace("content.", "")), name))
    instructions = _parts(parsed(attributes.get("gen_ai.system_instructions")))
    structured = [message for item in _list(attributes.get("gen_ai.input.messages")) for message in _messages(item)]
    answered = [message for item in _list(attributes.get("gen_ai.output.messages"))[:1] for message in _messages(item)]
    numbered = _numbered(attributes)
    sent = structured or sent or numbered["input"] or _plain(attributes.get("gen_ai.prompt"), "prompt")
    reply = answered or reply[:1] or numbered["output"] or _plain(attributes.get("gen_ai.completion"), "completion")
    if not sent and not reply:
        return None
    if instructions:
        sent = [{"role": "system", "content": instructions}, *sent]
    context = span.get("context")
    trace = text_of(_get(context, "traceId") if isinstance(context, dict) else _get(span, "traceId"))
    own_id = text_of(_get(context, "spanId") if isinstance(context, dict) else _get(span, "spanId"))
    return Call(
        sent,
        reply,
        _list(attributes.get("gen_ai.tool.definitions")),
        f"{trace}-{own_id}" if trace and own_id else trace or own_id,
        text_of(attributes.get("gen_ai.conversation.id") or trace),
        text_of(attributes.get("gen_ai.response.model") or attributes.get("gen_ai.request.model") or ""),
    )


def _list(value: Any) -> list[Any]:
    value = parsed(value)
    return value if isinstance(value, list) else []


def _messages(item: Any) -> Iterator[Message]:
    """A message of the current conventions, with its parts; each result of a tool is a message of its own."""
    item = parsed(item)
    if not isinstance(item, dict):
        return
    role, parts = item.get("role"), [parsed(part) for part in _list(item.get("parts"))]
    content = item.get("content")
    texts = [content] if isinstance(content, str) else []
    calls, thoughts, results = [], [], []
    for part in dicts(parts):
        kind = part.get("type")
        if kind == "tool_call":
            calls.append(tool_call(part.get("name"), part.get("arguments", {})))
        elif kind == "tool_call_response":
            results.append(_shown(part.get("response", part.get("result"))))
        elif kind == "reasoning":
            thoughts.append(text_of(part.get("content")))
        elif isinstance(part.get("content"), str):
            texts.append(part["content"])
    yield from ({"role": "tool", "content": result} for result in results)
    if role == "assistant":
        yield assistant(texts, calls, thoughts)
    elif texts or not results:
        yield {"role": role, "content": "\n".join(texts)}


def _parts(value: Any) -> str:
    """System instructions: a text, or a list of parts."""
    if isinstance(value, str):
        return value
    return "\n".join(text_of(part.get("content")) for part in dicts(value))


def _shown(value: Any) -> str:
    import json

    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _event_body(attributes: Mapping[str, Any], body: Any) -> Mapping[str, Any]:
    for value in (body, attributes.get("gen_ai.event.content"), attributes.get("event_body")):
        if isinstance(found := parsed(value), dict):
            return found
    return attributes


def _event_message(role: str, attributes: Mapping[str, Any], body: Any) -> Message:
    """A message of an event of the earlier conventions."""
    own = _event_body(attributes, body)
    content = own.get("content")
    text = content if isinstance(content, str) else _shown(content) if content is not None else ""
    if role != "assistant":
        return {"role": role, "content": text}
    calls = [
        tool_call(function.get("name"), function.get("arguments", ""))
        for call in dicts(_list(own.get("tool_calls")))
        if isinstance(function := call.get("function", call), dict)
    ]
    return assistant([text], calls)


def _numbered(attributes: Mapping[str, Any]) -> dict[str, list[Message]]:
    """The messages of numbered attributes, sent and received."""
    found: dict[str, dict[int, dict[str, Any]]] = {"input": {}, "output": {}}
    for name, value in attributes.items():
        if place := _NUMBERED.match(name):
            side = "input" if place[1].endswith(("prompt", "input_messages")) else "output"
            found[side].setdefault(int(place[2]), {})[place[3]] = value
    made: dict[str, list[Message]] = {}
    for side, messages in found.items():
        made[side] = []
        for _, fields in sorted(messages.items()):
            calls: dict[int, dict[str, Any]] = {}
            for name, value in fields.items():
                if call := _TOOL_CALL.match(name):
                    calls.setdefault(int(call[1]), {})[call[2]] = value
            text = _shown(fields.get("content"))
            role = text_of(fields.get("role") or ("assistant" if side == "output" else "user"))
            listed = [tool_call(call.get("name"), call.get("arguments", "")) for _, call in sorted(calls.items())]
            made[side].append(assistant([text], listed) if role == "assistant" else {"role": role, "content": text})
    return made


def _plain(value: Any, side: str) -> list[Message]:
    """A text, or chat messages in JSON, as the first conventions had them."""
    value = parsed(value)
    if isinstance(value, list):
        return dicts(value)
    role = "user" if side.endswith("prompt") else "assistant"
    return [{"role": role, "content": value}] if isinstance(value, str) and value else []


def _calls(row: Mapping[str, Any]) -> list[Call]:
    return [call for span in _spans(row) if (call := _call(span)) is not None]


def _read(source: Source) -> Iterable[Trajectory]:
    calls = _calls(source.row)
    if not calls:
        if any(map(_is_model_span, _spans(source.row))):
            fix = (
                "record them with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true in the program that writes the spans"
            )
            raise InputError(source.where, "the spans of model calls hold no messages", fix)
        raise Dropped("span without a model call")
    for call in calls:
        if not call.reply:
            raise Dropped("request without a reply")
        yield trajectory_of(call, source, source.row)


def _gather(records: Iterator[Record], report: Report) -> Iterator[Record]:
    """One record for each span with messages, then one for each trace."""

    def spans() -> Iterator[Record]:
        for record in records:
            found = list(_spans(record.data)) if isinstance(record.data, dict) else []
            kept = [span for span in found if _call(span) is not None]
            if not kept:
                yield record
            for span in kept:
                yield replace(record, data={"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})

    def call_of(row: Any, where: str) -> Call:
        call = next(iter(_calls(row)), None)
        if call is None or not call.reply:
            raise Dropped("request without a reply")
        return call

    return last_of_traces(spans(), _score, call_of, report)


FORMATS = {
    "otel": Format(read=_read, score=_score, gather=_gather, **about("otel")),
}
