"""Logged calls of OpenAI's APIs: chat completions and Responses, with batches and the logs of proxies such as LiteLLM's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Report, Source, about, describe
from critic_prm.data.formats.logs import (
    Call,
    Message,
    assistant,
    body,
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

_REQUEST = ("request", "request_body", "proxy_server_request", "body", "kwargs")
_RESPONSE = ("response", "response_body", "response_obj", "completion")
_USED = (*_REQUEST, *_RESPONSE, "messages", "tools", "id", "custom_id", "request_id", "trace_id", "litellm_trace_id", "model")


def _score(row: Mapping[str, Any]) -> int:
    """A row has a request of this API, a response, or both; a row of messages alone is a chat."""
    request, response = request_of(row), response_of(row)
    asked = isinstance(request, dict) and _is_request(request)
    answered = isinstance(response, dict) and _is_response(response)
    if asked and (answered or (isinstance(response, str) and response and "messages" in row)):
        return 6
    if "custom_id" in row and (asked or "response" in row):
        return 5
    return 3 if asked and any(name in row for name in _RESPONSE) else 0  # a request that failed


def request_of(row: Mapping[str, Any]) -> Any:
    """The body of the request: its own field, or the row itself, as LiteLLM logs it."""
    for name in _REQUEST:
        if isinstance(found := body(row.get(name)), dict) and found:
            return found
    return row if "messages" in row else None


def response_of(row: Mapping[str, Any]) -> Any:
    """The body of the response; a text is the content of a reply."""
    found = (body(row[name]) for name in _RESPONSE if row.get(name))
    return next(found, None)


def _is_request(request: Mapping[str, Any]) -> bool:
    given = parsed(request.get("messages"))
    return isinstance(given, list) or isinstance(request.get("input"), str | list) or isinstance(request.get("prompt"), str)


def _is_response(response: Mapping[str, Any]) -> bool:
    return isinstance(response.get("choices"), list) or isinstance(response.get("output"), list)


def calls_of(row: Mapping[str, Any], where: str) -> list[Call]:
    """The calls of a row: one, or one for each choice of a response. Raises InputError, and Dropped for a failed request."""
    request, response = request_of(row), response_of(row)
    own = next((text_of(row[name]) for name in ("id", "custom_id", "request_id") if row.get(name)), "")
    if not isinstance(request, dict):
        fix = "put the requests before the results: cat requests.jsonl results.jsonl | critic-prm convert -"
        raise InputError(where, "this is a batch's result file without the requests, which hold the problems", fix)
    if response is None or (isinstance(response, dict) and response.get("error")) or row.get("error"):
        raise Dropped("request without a reply")
    if not own and isinstance(response, dict):
        own = text_of(response.get("id"))
    metadata = row.get("metadata")
    inner = metadata.get("trace_id") if isinstance(metadata, dict) else None
    call = Call(
        sent=list(_sent(request, where)),
        reply=[],
        tools=dicts(request.get("tools")),
        id=own,
        trace=text_of(row.get("trace_id") or row.get("litellm_trace_id") or inner),
        model=text_of(request.get("model") or (response.get("model") if isinstance(response, dict) else "")),
    )
    replies = list(_replies(response, where))
    if len(replies) == 1:
        return [replace(call, reply=replies[0])]
    return [replace(call, reply=reply, id=f"{own}/{number}" if own else "") for number, reply in enumerate(replies)]


def _sent(request: Mapping[str, Any], where: str) -> Iterator[Message]:
    messages, given = parsed(request.get("messages")), request.get("input")
    if isinstance(messages, list):
        yield from messages
        return
    if isinstance(request.get("instructions"), str):
        yield {"role": "system", "content": request["instructions"]}
    if given is None:
        given = request.get("prompt")
    if isinstance(given, str):
        yield {"role": "user", "content": given}
    elif isinstance(given, list):
        yield from _items(given)
    else:
        raise InputError(where, f"the request's messages are {describe(messages)}", "a request has messages, input or a prompt")


def _replies(response: Any, where: str) -> Iterator[list[Message]]:
    fields = response if isinstance(response, dict) else {}
    if isinstance(response, str):
        yield [assistant([response])]
    elif isinstance(output := fields.get("output"), list):
        yield list(_items(output)) or [assistant([""])]
    elif choices := dicts(fields.get("choices")):
        for choice in choices:
            message = choice.get("message")
            yield [message if isinstance(message, dict) else assistant([text_of(choice.get("text"))])]
    else:
        raise InputError(
            where, f"the response is {describe(response)}", "it has choices (chat completions) or output (Responses)"
        )


def _items(items: Iterable[Any]) -> Iterator[Message]:
    """The items of the Responses API as messages: an assistant's message, reasoning and tool calls in a row are one turn."""
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    thoughts: list[str] = []
    for item in items:
        if not isinstance(item, dict):
            continue
        kind = item["type"] if isinstance(item.get("type"), str) else "message"
        if kind == "message" and item.get("role") == "assistant":
            texts.append(_text(item.get("content")))
        elif kind == "reasoning":
            thoughts += [text_of(part.get("text")) for part in (*dicts(item.get("summary")), *dicts(item.get("content")))]
        elif kind in ("function_call", "custom_tool_call"):
            calls.append(tool_call(item.get("name"), item.get("arguments", item.get("input"))))
        elif kind.endswith("_call"):  # a tool that the provider ran
            given = item.get("arguments") or item.get("action") or item.get("code") or item.get("queries") or {}
            calls.append(tool_call(item.get("name") or kind.removesuffix("_call"), given))
            if result := item.get("output") or item.get("outputs") or item.get("results"):
                yield assistant(texts, calls, thoughts)
                yield {"role": "tool", "content": _text(result)}
                texts, calls, thoughts = [], [], []
        else:
            if texts or calls or thoughts:
                yield assistant(texts, calls, thoughts)
                texts, calls, thoughts = [], [], []
            if kind.endswith("_call_output"):
                yield {"role": "tool", "content": _text(item.get("output"))}
            elif kind == "message":
                yield {"role": item.get("role"), "content": _text(item.get("content"))}
    if texts or calls or thoughts:
        yield assistant(texts, calls, thoughts)


def _text(content: Any) -> str:
    if isinstance(content, list):
        shown = (part if isinstance(part, str) else text_of(_shown(part)) for part in content)
        return "\n".join(filter(None, shown))
    return text_of(content)


def _shown(part: Any) -> Any:
    names = ("text", "logs", "refusal", "content")
    return next((part[name] for name in names if isinstance(part.get(name), str)), "") if isinstance(part, dict) else ""


def _read(source: Source) -> Iterable[Trajectory]:
    for call in calls_of(source.row, source.where):
        yield trajectory_of(call, source, _USED)


def _first_call(row: Any, where: str) -> Call:
    return calls_of(row, where)[0]


def _gather(records: Iterator[Record], report: Report) -> Iterator[Record]:
    return last_of_traces(paired(records, report, request_of, response_of, "body", "response"), _score, _first_call, report)


def paired(
    records: Iterator[Record], report: Report, request_of: Any, response_of: Any, request: str, response: str
) -> Iterator[Record]:
    """Join the requests and results of a batch by `custom_id`: a request waits for its result, whichever comes first."""
    waiting: dict[str, Record] = {}
    for record in records:
        row = record.data
        own = row.get("custom_id") if isinstance(row, dict) else None
        if not isinstance(own, str) or (request_of(row) is None) == (response_of(row) is None):
            yield record
        elif own not in waiting:
            waiting[own] = record
        else:
            other = waiting.pop(own)
            asked, answered = (other, record) if response_of(row) is not None else (record, other)
            if response_of(asked.data) is not None or request_of(answered.data) is not None:  # two of one kind
                yield from (other, record)
                continue
            report.read += 1
            yield replace(
                answered, data={request: asked.data.get(request), response: answered.data[response], "custom_id": own}
            )
    yield from waiting.values()


FORMATS = {
    "openai-log": Format(read=_read, score=_score, gather=_gather, **about("openai-log")),
}
