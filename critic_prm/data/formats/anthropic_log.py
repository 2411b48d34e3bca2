"""Logged calls of Anthropic's Messages API and its batches: content blocks, tool use and results, thinking kept apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from critic_prm.data.formats.common import Dropped, Format, Report, Source, about, describe
from critic_prm.data.formats.logs import Call, Message, body, dicts, last_of_traces, parsed, text_of, trajectory_of
from critic_prm.data.formats.openai_log import paired
from critic_prm.data.records.reading import Record
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError

_REQUEST = ("request", "request_body", "body", "params", "kwargs")
_RESPONSE = ("response", "response_body", "message", "result")
_USED = (*_REQUEST, *_RESPONSE, "messages", "system", "tools", "id", "custom_id", "request_id", "trace_id", "model")


def _request_of(row: Mapping[str, Any]) -> Any:
    for name in _REQUEST:
        if isinstance(found := body(row.get(name)), dict) and isinstance(parsed(found.get("messages")), list):
            return found
    return row if isinstance(parsed(row.get("messages")), list) else None


def _response_of(row: Mapping[str, Any]) -> Any:
    """The message of the response. A batch's result wraps it, and has no message if the request failed."""
    for name in _RESPONSE:
        found = body(row.get(name))
        if isinstance(found, dict) and isinstance(found.get("type"), str) and isinstance(found.get("message"), dict):
            found = found["message"]
        if isinstance(found, dict) and (_is_message(found) or "error" in found or found.get("type") in _FAILED):
            return found
    return None


_FAILED = ("errored", "canceled", "expired", "error")


def _is_message(response: Mapping[str, Any]) -> bool:
    return isinstance(response.get("content"), list) and (
        response.get("type") == "message" or response.get("role") == "assistant"
    )


def _score(row: Mapping[str, Any]) -> int:
    """A row has a response with content blocks, or is a request or a result of a message batch."""
    request, response = _request_of(row), _response_of(row)
    answered = isinstance(response, dict) and _is_message(response)
    if request is not None and answered:
        return 7
    batched = {"custom_id", "params"} <= row.keys() if response is None else {"custom_id", "result"} <= row.keys()
    if batched and (request is not None or response is not None):
        return 5
    return 2 if request is not None and any(name in row for name in _RESPONSE) else 0  # a request that failed


def call_of(row: Mapping[str, Any], where: str) -> Call:
    """The call of a row. Raises InputError, and Dropped for a failed request."""
    request, response = _request_of(row), _response_of(row)
    if request is None:
        fix = "put the requests before the results: cat requests.jsonl results.jsonl | critic-prm convert -"
        raise InputError(where, "this is a batch's result file without the requests, which hold the problems", fix)
    if response is None or not _is_message(response):
        raise Dropped("request without a reply")
    messages = parsed(request.get("messages"))
    if not all(isinstance(message, dict) for message in messages):
        raise InputError(where, f"the messages are {describe(messages)}", 'they must be a list of {"role", "content"}')
    system = request.get("system")
    before = [{"role": "system", "content": system}] if system else []
    blocks = response["content"]
    plain = all(
        isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str) for block in blocks
    )
    reply: Message = {"role": "assistant", "content": "".join(block["text"] for block in blocks) if plain else _blocks(blocks)}
    own = next((text_of(row[name]) for name in ("id", "custom_id", "request_id") if row.get(name)), "")
    return Call(
        [*before, *messages],
        [reply],
        dicts(request.get("tools")),
        own or text_of(response.get("id")),
        text_of(row.get("trace_id")),
        text_of(request.get("model") or response.get("model")),
    )


def _blocks(blocks: Iterable[Any]) -> list[Any]:
    """Blocks of a reply; tools that the provider ran are shown like the others."""
    return [
        {**block, "type": "tool_use"} if isinstance(block, dict) and block.get("type") == "server_tool_use" else block
        for block in blocks
    ]


def _read(source: Source) -> Iterable[Trajectory]:
    yield trajectory_of(call_of(source.row, source.where), source, _USED)


def _gather(records: Iterator[Record], report: Report) -> Iterator[Record]:
    return last_of_traces(paired(records, report, _request_of, _response_of, "params", "result"), _score, call_of, report)


FORMATS = {
    "anthropic-log": Format(read=_read, score=_score, gather=_gather, **about("anthropic-log")),
}
