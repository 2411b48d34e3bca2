"""Langfuse exports: observations, traces with their observations, and single traces, as JSON, JSONL or CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Report, Source, about, has
from critic_prm.data.formats.logs import Call, Message, assistant, dicts, last_of_traces, parsed, text_of, trajectory_of
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory

_CALLS = ("GENERATION", "AGENT", "CHAIN", "SPAN")
"""Observations that may hold a conversation; a trace's generations are tried first."""
_OTHERS = ("EVENT", "TOOL", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL")
_QUESTION = ("question", "query", "input", "prompt", "problem", "text", "content", "message")
_ANSWER = ("output", "answer", "content", "text", "response", "completion", "result", "generated_text")
_USED = ("input", "output", "observations", "trace", "scores", "id", "traceId", "trace_id", "model")


def _score(row: Mapping[str, Any]) -> int:
    """A row is an observation, a trace with its session, or a trace with its observations."""
    if isinstance(row.get("observations"), list) and (isinstance(row.get("trace"), dict) or "input" in row or "output" in row):
        return 5
    if not has(row, "input", "output"):
        return 0
    if row.get("type") in (*_CALLS, *_OTHERS) and ("traceId" in row or "trace_id" in row):
        return 5
    return 5 if "timestamp" in row and ("sessionId" in row or "session_id" in row) else 0


def _call(row: Mapping[str, Any], where: str) -> Call:
    """The call of a row; of a trace with observations the one with the longest conversation. Raises Dropped."""
    trace = row["trace"] if isinstance(row.get("trace"), dict) else row
    own = text_of(trace.get("traceId") or trace.get("trace_id") or trace.get("id"))
    inner = dicts(row.get("observations"))
    if inner:
        inner.sort(key=lambda one: text_of(one.get("startTime") or one.get("start_time")))
        calls = [
            call
            for kinds in (("GENERATION",), _CALLS)
            for one in inner
            if one.get("type") in kinds and (call := _observed(one, own)) is not None
        ]
        if best := max(reversed(calls), key=lambda call: len(call.messages), default=None):
            return best
    elif row.get("type") in _OTHERS:
        raise Dropped("observation without a model call")
    if (call := _observed(trace, own)) is None:
        raise Dropped("observation without input and output")
    return call


def _observed(row: Mapping[str, Any], trace: str) -> Call | None:
    sent, reply = _sent(parsed(row.get("input"))), _reply(parsed(row.get("output")))
    if not sent or not reply:
        return None
    given = parsed(row.get("input"))
    tools = dicts(given.get("tools")) if isinstance(given, dict) else []
    model = row.get("model") or row.get("provided_model_name") or row.get("providedModelName")
    return Call(sent, reply, tools, text_of(row.get("id")) or trace, trace, text_of(model))


def _sent(given: Any) -> list[Message]:
    if isinstance(given, dict) and isinstance(given.get("messages"), list):
        given = given["messages"]
    if isinstance(given, list) and given and all(isinstance(message, dict) and "role" in message for message in given):
        return list(given)
    if isinstance(given, dict) and isinstance(given.get("role"), str):
        return [given]
    text = _text(given, _QUESTION)
    return [{"role": "user", "content": text}] if text.strip() else []


def _reply(given: Any) -> list[Message]:
    if isinstance(given, dict):
        if choices := dicts(given.get("choices")):
            given = choices[0].get("message", choices[0])
        elif isinstance(given.get("message"), dict):
            given = given["message"]
        elif dicts(given.get("messages")):
            given = given["messages"]
    if isinstance(given, list) and given and all(isinstance(message, dict) and "role" in message for message in given):
        return list(given)
    if isinstance(given, dict) and (given.get("role") == "assistant" or "tool_calls" in given):
        return [{**given, "role": "assistant"}]
    text = _text(given, _ANSWER)
    return [assistant([text])] if text.strip() else []


def _text(value: Any, names: Iterable[str]) -> str:
    """A value as text: itself, the text of a usual field, or its JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict):
        texts = [value[name] for name in names if isinstance(value.get(name), str)]
        if texts:
            return str(texts[0])
    return json.dumps(value, ensure_ascii=False) if value not in ({}, []) else ""


def _read(source: Source) -> Iterable[Trajectory]:
    yield trajectory_of(_call(source.row, source.where), source, _USED)


def _gather(records: Iterator[Record], report: Report) -> Iterator[Record]:
    return last_of_traces(records, _score, _call, report)


FORMATS = {
    "langfuse": Format(read=_read, score=_score, gather=_gather, **about("langfuse")),
}
