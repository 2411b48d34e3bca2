"""Requests out into a file and results in from one: whoever answered, in any order, whole or damaged, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.batch import answer
from bench.batch_server import Fate
from critic_prm.providers.batches import Result, read_result
from tests.batch.conftest import Bench

OPENAI = (
    ('{"status_code":200,"body":{"choices":[]}}', "null", ("raw", None)),
    ('{"status_code":429,"body":{"error":{"code":"rate_limit_exceeded"}}}', "null", ("throttle", 429)),
    ('{"status_code":200,"body":{"error":{"message":"m"}}}', "null", ("transient", 500)),
    ("null", '{"code":"batch_expired","message":"m"}', ("expired", None)),
    ('{"status_code":400,"body":null}', '{"error":{"message":"too long","code":400}}', ("row", 400)),
    ('{"status_code":400,"body":null}', '"URL /v1/x was used"', ("row", 400)),
    ("null", "null", ("transient", None)),
)
ANTHROPIC = (
    ('{"type":"succeeded","message":{"content":[]}}', ("raw", None)),
    ('{"type":"expired"}', ("expired", None)),
    ('{"type":"canceled"}', ("cancelled", None)),
    ('{"type":"errored","error":{"type":"error","error":{"type":"billing_error"}}}', ("quota", 402)),
    ('{"type":"errored","error":{"type":"error","error":{"type":"overloaded_error"}}}', ("throttle", 529)),
    ('{"type":"errored","error":{"type":"error","error":{"type":"invalid_request_error"}}}', ("row", 400)),
)
LINES = (
    *((f'{{"custom_id":"k","response":{response},"error":{error}}}', meaning) for response, error, meaning in OPENAI),
    *((f'{{"custom_id":"k","result":{result}}}', meaning) for result, meaning in ANTHROPIC),
)


@pytest.mark.parametrize(("line", "meaning"), LINES)
def test_a_line_of_each_kind(line: str, meaning: tuple[str, int | None]) -> None:
    result = read_result(orjson.loads(line))
    assert result is not None
    assert told(result) == meaning


def told(result: Result) -> tuple[str, int | None]:
    if result.raw is not None:
        return "raw", None
    return (result.unrun, None) if result.error is None else (result.error.failure, result.error.status)


def test_what_is_no_result() -> None:
    rows: tuple[Any, ...] = (
        None,
        [],
        {},
        {"custom_id": 3, "response": {}},
        {"custom_id": "k"},
        {"custom_id": "k", "method": "POST", "body": {}},
    )
    for row in rows:
        assert read_result(row) is None


def export(bench: Bench, *options: str) -> list[dict[str, Any]]:
    path = bench.folder / "requests.jsonl"
    at = ("--judge", bench.judge, "--base-url", bench.address)
    assert bench.run("batch", "export", str(bench.source), str(path), "--overwrite", *at, *options) == 0
    return [orjson.loads(line) for line in path.read_bytes().split(b"\n") if line]


def results(bench: Bench) -> Path:
    path = bench.folder / "results.jsonl"
    answer(bench.office, bench.folder / "requests.jsonl", path)
    return path


def labelled(bench: Bench, *options: str) -> bytes:
    assert bench.label("--offline", *options) in (0, 3)
    return bench.out.read_bytes()


def online(bench: Bench) -> bytes:
    db, bench.db = bench.db, bench.folder / "online.db"
    assert bench.label() in (0, 3)
    bench.db = db
    return bench.out.read_bytes()


def test_out_and_in_again(bench: Bench) -> None:
    whole = online(bench)
    rows = export(bench)
    assert len(rows) == 30
    assert set(rows[0]) == ({"custom_id", "params"} if "claude" in bench.judge else {"custom_id", "method", "url", "body"})
    assert all(len(row["custom_id"]) <= 64 for row in rows)
    path = results(bench)
    assert bench.run("batch", "import", str(path)) == 0
    assert "30 replies added; 0 were there already" in bench.said
    assert bench.run("batch", "import", str(path)) == 0
    assert "0 replies added; 30 were there already" in bench.said
    assert labelled(bench) == whole
    assert export(bench) == []
    assert "0 requests written" in bench.said
    assert bench.office.seen()["batches"] == 0


def test_only_what_is_missing_goes_out(openai: Bench) -> None:
    assert openai.label("--limit", "10") == 0
    openai.office.begin(Fate(60))
    assert openai.label("--batch", "--limit", "20") == 5
    assert len(export(openai)) == 10
    assert "10 more are in batches at a provider" in openai.said


def test_damaged_and_doubled_lines_and_strangers(openai: Bench) -> None:
    export(openai)
    path = results(openai)
    lines = path.read_bytes().split(b"\n")[:-1]
    stranger = lines[0].replace(b'"custom_id":"', b'"custom_id":"ffffffff')
    damaged = [lines[0], lines[0], stranger, b"not JSON", b'{"a": 1}', *lines[1:], lines[3][:100]]
    path.write_bytes(b"\n".join(damaged))
    assert openai.run("batch", "import", str(path)) == 3
    assert "30 replies added; 1 were there already; 1 match no request of this cache" in openai.said
    assert "results.jsonl:35: the last line is cut off after 100 characters" in openai.said
    assert "results.jsonl:4: this is not JSON" in openai.said
    assert "results.jsonl:5: this is not a result of a batch" in openai.said


def test_results_of_another_job(openai: Bench) -> None:
    export(openai)
    path = results(openai)
    other, openai.db = openai.db, openai.folder / "other.db"
    openai.label("--limit", "1", "--salt", "another")
    assert openai.run("batch", "import", str(path)) == 1
    assert "none of its 30 results matches a request of this cache" in openai.said
    assert openai.sql("SELECT count(*) FROM reply") == [1]
    # with the requests beside it, it can be taken in: the names say which is which
    options = ("--requests", str(openai.folder / "requests.jsonl"), "--judge", openai.judge)
    assert openai.run("batch", "import", str(path), *options) == 0
    assert "30 replies added; 0 were there already" in openai.said
    openai.db = other
    assert openai.run("batch", "import", str(path)) == 0


def test_requests_that_were_changed_are_refused(openai: Bench) -> None:
    export(openai, "--limit", "2", "--salt", "x")
    path = results(openai)
    openai.db = openai.folder / "other.db"
    options = ("--requests", str(openai.folder / "requests.jsonl"), "--judge", openai.judge)
    assert openai.run("batch", "import", str(path), *options) == 1
    assert "does not match the request in its line; if the file was exported with a --salt, give the same one" in openai.said
    assert openai.run("batch", "import", str(path), *options, "--salt", "x") == 0


def test_failures_are_attempts_and_go_out_again_until_it_is_enough(bench: Bench) -> None:
    marked = {"Order 3:": "refusal", "Order 7:": "length", "Order 15:": "context"}
    bench.office.begin(Fate(marked=marked))
    sizes = []
    while rows := export(bench):
        sizes.append(len(rows))
        assert bench.run("batch", "import", str(results(bench))) == 0
        assert bench.run("batch", "import", str(results(bench))) == 0
    assert sizes[:2] == [30, 2]
    assert sum(sizes) <= 36
    attempts = dict(bench.sql("SELECT failure, count(*) FROM attempt GROUP BY failure"))
    assert attempts["row"] == 1
    assert attempts["length"] >= 2
    assert "failed too often" in bench.said


def test_vllms_way_of_failing(openai: Bench) -> None:
    rows = export(openai, "--limit", "2")
    failed = {"id": "vllm-1", "custom_id": rows[0]["custom_id"], "response": {"status_code": 400, "body": None}}
    failed["error"] = {
        "error": {"message": "This model's maximum context length is 10", "type": "BadRequestError", "code": 400}
    }
    path = openai.folder / "results.jsonl"
    path.write_bytes(orjson.dumps(failed))
    assert openai.run("batch", "import", str(path)) == 0
    assert "1 incomplete replies, to be requested again (row 1)" in openai.said
    assert openai.sql("SELECT failure, http_status FROM attempt") == [("row", 400)]


def test_an_export_that_is_broken_off_leaves_nothing(openai: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("critic_prm.label.batch_files.request_row", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        openai.run("batch", "export", str(openai.source), str(openai.folder / "requests.jsonl"), "--judge", openai.judge)
    assert not (openai.folder / "requests.jsonl").exists()
    assert openai.sql("SELECT state FROM batch") == ["writing"]
    monkeypatch.undo()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-key-000000")
    export(openai)
    assert openai.sql("SELECT state FROM batch") == ["exported"]
