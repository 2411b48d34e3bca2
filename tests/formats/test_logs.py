"""Logs of model calls in the shapes that the APIs, LiteLLM, OpenTelemetry and Langfuse document become trajectories."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.formats.convert import Report, detect, read_trajectories
from critic_prm.data.records.reading import write_records
from critic_prm.data.trajectory import Trajectory
from critic_prm.errors import InputError
from tests.command import invoke

ASK = {"role": "user", "content": "Weather in Paris?"}
USED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"location": "Paris"}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "rainy, 57°F"}
ANSWER = "The weather in Paris is rainy, 57°F."
CALL = 'Tool call: get_weather {"location": "Paris"}'
STEPS = [(CALL, "rainy, 57°F"), (ANSWER, None)]


def read(path: Path, *rows: Any, format: str, report: Report | None = None) -> list[Trajectory]:
    write_records(path / "log.jsonl", rows)
    assert detect(path / "log.jsonl") == format
    return list(read_trajectories(path / "log.jsonl", report=report))


def steps(trajectory: Trajectory) -> list[tuple[str, str | None]]:
    return [(step.text, step.observation) for step in trajectory.steps]


def completion(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A response of POST /chat/completions."""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    usage = {"prompt_tokens": 19, "completion_tokens": 10, "total_tokens": 29}
    made = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1741569952, "model": "m-2026", "choices": [choice]}
    return {**made, "usage": usage, **more}


def test_chat_completions(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {}}}]
    request = {"model": "m", "messages": [{"role": "system", "content": "Be brief."}, ASK, USED, RESULT], "tools": tools}
    reply = {"role": "assistant", "content": ANSWER, "refusal": None, "reasoning_content": "It rains."}
    (found,) = read(tmp_path, {"request": request, "response": completion(reply), "user": "u1"}, format="openai-log")
    assert (found.id, found.problem, steps(found)) == ("chatcmpl-1", "Weather in Paris?", STEPS)
    assert found.meta == {"user": "u1", "system": "Be brief.", "model": "m", "thinking": [None, "It rains."]}
    assert list(found.tools) == tools
    choices = [{"index": n, "message": {"role": "assistant", "content": text}} for n, text in enumerate(("4", "5"))]
    wrapped = {
        "request": {"method": "POST", "url": "/v1/chat/completions", "body": json.dumps({"messages": [ASK]})},
        "response": {"status": 200, "body": {"id": "c", "choices": choices}},
    }
    both = read(tmp_path, wrapped, format="openai-log")
    assert [(one.id, one.texts) for one in both] == [("c/0", ["4"]), ("c/1", ["5"])]
    solution = {"role": "assistant", "content": "First 2 + 2 = 4.\n\nThen 4 - 1 = 3.\n\nSo the answer is 3."}
    (split,) = read(tmp_path, {"request": {"messages": [ASK]}, "response": completion(solution)}, format="openai-log")
    assert split.texts == ["First 2 + 2 = 4.", "Then 4 - 1 = 3.", "So the answer is 3."]


def test_the_responses_api(tmp_path: Path) -> None:
    request = {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Weather in Paris?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I need the weather."}]},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": '{"location": "Paris"}'},
            {"type": "function_call_output", "call_id": "c1", "output": "rainy, 57°F"},
        ],
    }
    text = {"type": "output_text", "text": ANSWER, "annotations": []}
    output = [
        {"id": "ci_1", "type": "code_interpreter_call", "code": "1 + 1", "outputs": [{"type": "logs", "logs": "2"}]},
        {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "content": [text]},
    ]
    response = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": output, "error": None}
    (found,) = read(tmp_path, {"request": request, "response": response}, format="openai-log")
    assert steps(found) == [(CALL, "rainy, 57°F"), ("Tool call: code_interpreter 1 + 1", "2"), (ANSWER, None)]
    assert (found.problem, found.meta["system"]) == ("Weather in Paris?", "Be brief.")
    assert found.meta["thinking"] == ["I need the weather.", None, None]
    (short,) = read(tmp_path, {"request": {"input": "2 + 2?"}, "response": response}, format="openai-log")
    assert short.problem == "2 + 2?"


def test_requests_and_results_of_a_batch(tmp_path: Path) -> None:
    asked = [
        {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [ASK]}}
        for n in range(3)
    ]
    reply = completion({"role": "assistant", "content": ANSWER})
    done = [
        {"id": f"batch_req_{n}", "custom_id": f"r{n}", "response": {"status_code": 200, "body": reply}, "error": None}
        for n in range(2)
    ]
    failed = {"custom_id": "r2", "response": {"status_code": 400, "body": {"error": {"message": "no"}}}, "error": None}
    for rows in ([*asked, *reversed(done), failed], [*done, failed, *asked]):
        report = Report()
        found = read(tmp_path, *rows, format="openai-log", report=report)
        assert sorted((one.id, one.problem, one.texts[0]) for one in found) == [
            ("r0", "Weather in Paris?", ANSWER),
            ("r1", "Weather in Paris?", ANSWER),
        ]
        assert (report.read, report.dropped) == (6, {"request without a reply": 1})
    with pytest.raises(InputError, match=r"a batch's result file without the requests.*cat requests\.jsonl results\.jsonl"):
        read(tmp_path, *done, format="openai-log")


def test_the_log_of_a_litellm_proxy(tmp_path: Path) -> None:
    """StandardLoggingPayload: an agent's calls have one trace, and the last one repeats the others."""
    common = {
        "call_type": "acompletion",
        "status": "success",
        "model": "m",
        "metadata": {},
        "total_tokens": 3,
        "error_str": None,
    }
    first = {**common, "id": "a", "trace_id": "t1", "messages": [ASK], "response": completion(USED)}
    final = completion({"role": "assistant", "content": ANSWER})
    second = {**common, "id": "b", "trace_id": "t1", "messages": [ASK, USED, RESULT], "response": final}
    other = {**common, "id": "c", "trace_id": "t2", "messages": [ASK], "response": final}
    failure = {**common, "id": "d", "trace_id": "t3", "status": "failure", "messages": [ASK], "response": None}
    report = Report()
    found = read(tmp_path, first, second, other, failure, format="openai-log", report=report)
    assert {one.id: steps(one) for one in found} == {"b": STEPS, "c": [(ANSWER, None)]}
    assert report.dropped == {"call that a longer one of its trace repeats": 1, "request without a reply": 1}
    assert report.read == 4
    (text,) = read(tmp_path, {**second, "messages": json.dumps([ASK]), "response": final}, format="openai-log")
    assert steps(text) == [(ANSWER, None)]  # as the columns of its database have it


BLOCKS = [
    {"type": "thinking", "thinking": "I need the weather.", "signature": "EqQB"},
    {"type": "text", "text": "I look it up."},
    {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"location": "Paris"}},
]


def message(content: list[dict[str, Any]]) -> dict[str, Any]:
    """A response of POST /v1/messages."""
    made = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "content": content}
    return {**made, "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 9, "output_tokens": 5}}


def test_the_messages_api(tmp_path: Path) -> None:
    result = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rainy, 57°F"}]}]
    messages = [ASK, {"role": "assistant", "content": BLOCKS}, {"role": "user", "content": result}]
    request = {"model": "claude", "max_tokens": 99, "system": [{"type": "text", "text": "Be brief."}], "messages": messages}
    row = {"request": request, "response": message([{"type": "text", "text": ANSWER}])}
    (found,) = read(tmp_path, row, format="anthropic-log")
    assert steps(found) == [(f"I look it up.\n{CALL}", "rainy, 57°F"), (ANSWER, None)]
    assert found.meta["thinking"] == ["I need the weather.", None]
    assert (found.meta["system"], found.id) == ("Be brief.", "msg_1")
    prefill = {"request": {"messages": [ASK, {"role": "assistant", "content": "It "}]}, "response": message([])}
    prefill["response"]["content"] = [{"type": "text", "text": "rains."}]
    (one,) = read(tmp_path, prefill, format="anthropic-log")
    assert one.texts == ["It rains."]


def test_message_batches(tmp_path: Path) -> None:
    asked = [{"custom_id": f"r{n}", "params": {"model": "claude", "max_tokens": 9, "messages": [ASK]}} for n in range(2)]
    good = {"custom_id": "r0", "result": {"type": "succeeded", "message": message([{"type": "text", "text": ANSWER}])}}
    bad = {"custom_id": "r1", "result": {"type": "errored", "error": {"type": "error", "error": {"type": "invalid_request"}}}}
    report = Report()
    (found,) = read(tmp_path, *asked, bad, good, format="anthropic-log", report=report)
    assert (found.id, steps(found)) == ("r0", [(ANSWER, None)])
    assert report.dropped == {"request without a reply": 1}


def otlp(*spans: dict[str, Any]) -> dict[str, Any]:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "agent"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "openai"}, "spans": list(spans)}]}]}


def span(number: int, trace: str = "5b8aa5a2", events: Any = (), **attributes: Any) -> dict[str, Any]:
    listed = [{"key": key.replace("__", "."), "value": value} for key, value in attributes.items()]
    made = {
        "traceId": trace,
        "spanId": f"051581bf{number}",
        "name": "chat m",
        "kind": 3,
        "startTimeUnixNano": "1",
        "status": {},
    }
    return {**made, "endTimeUnixNano": "2", "attributes": listed, "events": list(events)}


def texts(value: Any) -> dict[str, Any]:
    return {"stringValue": value if isinstance(value, str) else json.dumps(value)}


PARTS = [
    {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]},
    {
        "role": "assistant",
        "parts": [
            {"type": "reasoning", "content": "I need the weather."},
            {"type": "tool_call", "id": "call_1", "name": "get_weather", "arguments": {"location": "Paris"}},
        ],
    },
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "rainy, 57°F"}]},
]
OUTPUT = [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "stop"}]
MODEL: dict[str, Any] = {"gen_ai__operation__name": texts("chat"), "gen_ai__request__model": texts("m")}


def test_spans_of_the_current_conventions(tmp_path: Path) -> None:
    first = span(1, **MODEL, gen_ai__input__messages=texts(PARTS[:1]), gen_ai__output__messages=texts(PARTS[1:2]))
    system = texts([{"type": "text", "content": "Be brief."}])
    last = span(
        2,
        **MODEL,
        gen_ai__input__messages=texts(PARTS),
        gen_ai__output__messages=texts(OUTPUT),
        gen_ai__system_instructions=system,
    )
    http = span(3, http__request__method=texts("POST"))
    other = span(4, "ffff", **MODEL, gen_ai__input__messages=texts(PARTS[:1]), gen_ai__output__messages=texts(OUTPUT))
    for rows in ([otlp(http, first, last, other)], [otlp(first), otlp(last, http), otlp(other)]):
        report = Report()
        found = read(tmp_path, *rows, format="otel", report=report)
        assert [(one.id, steps(one)) for one in found] == [
            ("5b8aa5a2-051581bf2", STEPS),
            ("ffff-051581bf4", [(ANSWER, None)]),
        ]
        assert found[0].meta == {"system": "Be brief.", "model": "m", "thinking": ["I need the weather.", None]}
        assert report.dropped == {"call that a longer one of its trace repeats": 1}
    with pytest.raises(InputError, match=r"hold no messages.*OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true"):
        read(tmp_path, otlp(span(1, **MODEL)), format="otel")
    assert read(tmp_path, otlp(http), format="otel") == []


def test_spans_as_values_and_of_earlier_conventions(tmp_path: Path) -> None:
    """Structured attribute values, events on spans, events as log records, and the numbered attributes of two libraries."""

    def value(given: Any) -> dict[str, Any]:
        if isinstance(given, dict):
            return {"kvlistValue": {"values": [{"key": key, "value": value(inner)} for key, inner in given.items()]}}
        return {"arrayValue": {"values": list(map(value, given))}} if isinstance(given, list) else {"stringValue": given}

    structured = span(1, **MODEL, gen_ai__input__messages=value(PARTS), gen_ai__output__messages=value(OUTPUT))
    bodies = [
        ("gen_ai.user.message", {"content": "Weather in Paris?"}),
        ("gen_ai.assistant.message", {"tool_calls": USED["tool_calls"]}),
        ("gen_ai.tool.message", {"id": "call_1", "content": "rainy, 57°F"}),
        ("gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": ANSWER}}),
    ]
    events = [
        {"name": name, "timeUnixNano": "1", "attributes": [{"key": "gen_ai.event.content", "value": texts(body)}]}
        for name, body in bodies
    ]
    logs = [
        {"timeUnixNano": "1", "traceId": "5b8aa5a2", "spanId": "1", "eventName": name, "body": value(body), "attributes": []}
        for name, body in bodies
    ]
    numbered = {
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": "Weather in Paris?",
        "gen_ai.prompt.1.role": "assistant",
        "gen_ai.prompt.1.tool_calls.0.name": "get_weather",
        "gen_ai.prompt.1.tool_calls.0.arguments": '{"location": "Paris"}',
        "gen_ai.prompt.2.role": "tool",
        "gen_ai.prompt.2.content": "rainy, 57°F",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": ANSWER,
    }
    inference = {
        name.replace("gen_ai.prompt", "llm.input_messages")
        .replace("gen_ai.completion", "llm.output_messages")
        .replace("s.0.name", "s.0.tool_call.function.name")
        .replace("s.0.arguments", "s.0.tool_call.function.arguments"): value
        for name, value in numbered.items()
    }
    inference = {
        name.replace("messages.", "messages.", 1).replace(".role", ".message.role"): v for name, v in inference.items()
    }
    console: dict[str, Any] = {
        "name": "chat m",
        "context": {"trace_id": "0xab", "span_id": "0xcd"},
        "parent_id": None,
        "events": [],
    }
    rows = [
        otlp(structured),
        otlp(span(1, events=events)),
        {"resourceLogs": [{"scopeLogs": [{"logRecords": logs}]}]},
        {**console, "attributes": numbered},
        {**console, "attributes": inference},
    ]
    for row in rows:
        (found,) = read(tmp_path, row, format="otel")
        assert (found.problem, steps(found)) == ("Weather in Paris?", STEPS), row


def observation(own: str, given: Any, output: Any, **more: Any) -> dict[str, Any]:
    made = {"id": own, "traceId": "t1", "type": "GENERATION", "name": "chat", "startTime": f"2026-01-01T00:00:0{own[-1]}.000Z"}
    return {**made, "model": "m", "input": given, "output": output, "parentObservationId": None, "level": "DEFAULT", **more}


def test_langfuse(tmp_path: Path) -> None:
    final = {"role": "assistant", "content": ANSWER}
    first, last = observation("o1", [ASK], USED), observation("o3", {"messages": [ASK, USED, RESULT]}, final)
    tool = observation("o2", {"location": "Paris"}, "rainy, 57°F", type="TOOL")
    report = Report()
    (found,) = read(tmp_path, first, tool, last, format="langfuse", report=report)
    assert (found.id, found.problem, steps(found), found.meta["model"]) == ("o3", "Weather in Paris?", STEPS, "m")
    assert report.dropped == {"observation without a model call": 1, "call that a longer one of its trace repeats": 1}
    trace = {"id": "t1", "name": "agent", "timestamp": "2026-01-01T00:00:00.000Z", "sessionId": None, "userId": None}
    simple = {**trace, "input": {"question": "2 + 2?"}, "output": {"answer": "4"}}
    (one,) = read(tmp_path, simple, format="langfuse")
    assert (one.id, one.problem, one.texts) == ("t1", "2 + 2?", ["4"])
    for whole in ({**simple, "observations": [last, tool, first]}, {"trace": simple, "observations": [last, tool, first]}):
        (one,) = read(tmp_path, whole, format="langfuse")
        assert (one.id, steps(one)) == ("o3", STEPS)
    row = observation("o3", json.dumps([ASK, USED, RESULT]), json.dumps(final))
    with (tmp_path / "export.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(row))
        writer.writeheader()
        writer.writerow(row)
    (one,) = read_trajectories(tmp_path / "export.csv")
    assert (one.problem, steps(one)) == ("Weather in Paris?", STEPS)


def test_convert_says_what_it_left_out(tmp_path: Path) -> None:
    write_records(tmp_path / "x.jsonl", [observation("o1", [ASK], USED), observation("o3", [ASK, USED, RESULT], ANSWER)])
    result = invoke("convert", str(tmp_path / "x.jsonl"), "-o", str(tmp_path / "y.jsonl"))
    assert "read 2 rows (langfuse), wrote 1 (native)" in result.stderr
    assert "left out: 1 call that a longer one of its trace repeats" in result.stderr


def test_a_text_of_many_brackets_is_a_text(tmp_path: Path) -> None:
    """A field that looks like deeply nested JSON ended the command with a traceback."""
    brackets = "[" * 5000
    (found,) = read(tmp_path, observation("o", brackets, {"content": "4"}), format="langfuse")
    assert (found.problem, steps(found)) == (brackets, [("4", None)])
