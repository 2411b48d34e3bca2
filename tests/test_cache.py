"""The cache keeps every complete reply once, tells why keys differ, and survives what happens to files."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from critic_prm.cache import Attempt, Cache, Entry, import_rows
from critic_prm.errors import InputError, UsageError
from critic_prm.provider import Usage, request_key
from critic_prm.records import read_records, write_records


def entry(question: str = "2+2?", sample: int = 0, system: Any = "judge", **params: Any) -> Entry:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    wire = {"model": "m", "messages": messages, **params}
    raw = {"choices": [{"message": {"content": "4"}}]}
    key = request_key(wire, sample)
    return Entry(key, wire, sample, "", "openai", "m", None, raw, "4", "stop", Usage(10, 1, 4), 0.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache.db"


def test_a_stored_reply_comes_back_as_it_was(path: Path) -> None:
    cache, one = Cache(path), entry()
    assert cache.get(one.key) is None
    cache.add([one])
    assert cache.get(one.key) == one.raw
    assert Cache(path).get(one.key) == one.raw


def test_the_same_key_twice_is_once(path: Path) -> None:
    cache = Cache(path)
    cache.add([entry(), entry()])
    cache.add([entry()])
    assert cache.count()["models"][0]["replies"] == 1


def test_the_key_is_made_of_the_wire_the_sample_and_the_salt_alone() -> None:
    wire = {"model": "m", "messages": [], "temperature": 0.5}
    assert request_key(wire) == request_key(dict(reversed(list(wire.items()))))
    different = [request_key(wire, 1), request_key(wire, 0, "x"), request_key({**wire, "temperature": 0.6})]
    assert len({request_key(wire), *different}) == 4


def test_shared_instructions_and_prompts_are_stored_once(path: Path) -> None:
    cache = Cache(path)
    cache.add([entry(f"question {i}", sample) for i in range(10) for sample in range(4)])
    rows = sqlite3.connect(path).execute("SELECT (SELECT count(*) FROM instruction), (SELECT count(*) FROM prompt)").fetchone()
    assert rows == (1, 10)


@pytest.mark.parametrize("shape", ["message", "top level", "none"])
def test_a_request_can_be_shown_exactly_as_it_was_sent(path: Path, shape: str) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "2+2?"}]
    wire: dict[str, Any] = {"model": "m", "temperature": 0.25, "messages": messages}
    if shape == "message":
        messages.insert(0, {"role": "system", "content": "judge"})
    elif shape == "top level":
        wire["system"] = [{"type": "text", "text": "judge", "cache_control": {"type": "ephemeral"}}]
    one = Entry(request_key(wire), wire, 0, "", "x", "m", None, {}, "4", "stop", Usage(), 0.0)
    cache = Cache(path)
    cache.add([one])
    assert cache.find(one.key[:10])["request"] == wire


def test_explain_names_every_place_where_two_requests_differ(path: Path) -> None:
    cache, one, two = Cache(path), entry(temperature=0.2), entry("3+3?", 1, temperature=0.7)
    cache.add([one, two])
    assert cache.explain(one.key, two.key) == [
        ("request.temperature", 0.2, 0.7),
        ("request.messages[1].content", "2+2?", "3+3?"),
        ("sample", 0, 1),
    ]
    assert cache.explain(one.key, one.key) == []


def test_an_unknown_or_ambiguous_key_is_a_usage_error(path: Path) -> None:
    cache = Cache(path)
    cache.add([entry(str(i)) for i in range(40)])
    with pytest.raises(UsageError, match="no reply has a key that begins with 'zz'"):
        cache.find("zz")
    with pytest.raises(UsageError, match="several replies"):
        cache.find("")


def test_export_and_import_carry_everything(path: Path, tmp_path: Path) -> None:
    cache = Cache(path)
    cache.add([entry(str(i)) for i in range(300)])
    rows = tmp_path / "rows.jsonl"
    write_records(rows, cache.export())
    assert import_rows(tmp_path / "other.db", read_records(rows)) == (300, 0)
    assert import_rows(tmp_path / "other.db", read_records(rows)) == (0, 300)
    there, here = Cache(tmp_path / "other.db"), cache
    assert there.find(entry("7").key)["request"] == here.find(entry("7").key)["request"]


def test_a_row_changed_on_the_way_is_refused(path: Path, tmp_path: Path) -> None:
    cache = Cache(path)
    cache.add([entry()])
    row = next(cache.export())
    row["wire"]["model"] = "another"
    write_records(tmp_path / "rows.jsonl", [row])
    with pytest.raises(InputError, match=r"rows.jsonl:1.*not that of the request"):
        import_rows(tmp_path / "other.db", read_records(tmp_path / "rows.jsonl"))


def test_attempts_are_kept_but_serve_nothing(path: Path) -> None:
    cache, one = Cache(path), entry()
    cache.add(
        [], [Attempt(one.key, "openai", "m", "length", usage=Usage(10, 400)), Attempt(one.key, "openai", "m", "transient")]
    )
    assert cache.get(one.key) is None
    assert {row["failure"] for row in cache.count()["attempts"]} == {"length", "transient"}


@pytest.mark.parametrize("offset", [0.0, 0.2, 0.5, 0.9, 0.999])
def test_a_cut_write_ahead_log_loses_at_most_the_end(path: Path, offset: float) -> None:
    cache = Cache(path)
    for i in range(60):
        cache.add([entry(str(i))])
    log = Path(f"{path}-wal")
    whole = log.read_bytes()
    database = path.read_bytes()
    cache.close()
    path.write_bytes(database)
    log.write_bytes(whole[: int(len(whole) * offset)])
    Path(f"{path}-shm").unlink(missing_ok=True)
    again = Cache(path)
    kept = [again.get(entry(str(i)).key) is not None for i in range(60)]
    assert kept == sorted(kept, reverse=True)  # a prefix: earlier rows hold
    again.add([entry("after")])
    assert again.get(entry("after").key)


def test_what_is_no_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("this is no database, it only looks like one " * 50)
    with pytest.raises(InputError, match="not a database"):
        Cache(tmp_path / "notes.db")
    with pytest.raises(InputError, match="no such cache"):
        Cache(tmp_path / "missing.db", readonly=True)
    with pytest.raises(InputError, match="folder must exist"):
        Cache(tmp_path / "nowhere" / "cache.db")
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE x (y)").connection.close()
    with pytest.raises(InputError, match="not a critic-prm cache"):
        Cache(tmp_path / "other.db", readonly=True)
