"""The cache keeps every complete reply once, tells why keys differ, and survives what happens to files."""

from __future__ import annotations

import os
import re
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from critic_prm.data.records.reading import read_records, write_records
from critic_prm.engine.batch.ledger import Ledger
from critic_prm.engine.cache import Attempt, Cache, Entry, import_rows
from critic_prm.errors import InputError, UsageError
from critic_prm.label.reread import stored_text
from critic_prm.providers.provider import Usage, request_key


def entry(question: str = "2+2?", sample: int = 0, system: Any = "judge", **params: Any) -> Entry:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    wire = {"model": "m", "messages": messages, **params}
    raw = {"choices": [{"message": {"content": "4"}}]}
    key = request_key(wire, sample)
    return Entry(key, wire, sample, "", "openai", "m", None, raw, "4", "stop", Usage(10, 1, 4), 0.5)


def take(db: Path, rows: Path, **options: bool) -> tuple[int, int]:
    return import_rows(db, read_records(rows), read=stored_text, **options)


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
    assert take(tmp_path / "other.db", rows) == (300, 0)
    assert take(tmp_path / "other.db", rows) == (0, 300)
    there, here = Cache(tmp_path / "other.db"), cache
    assert there.find(entry("7").key)["request"] == here.find(entry("7").key)["request"]


def exported(path: Path) -> dict[str, Any]:
    cache = Cache(path)
    cache.add([entry()])
    (row,) = cache.export()
    cache.close()
    return row


ANOTHER = {"choices": [{"message": {"content": "5"}}]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"wire": {"model": "another", "messages": []}}, "the key .* is not that of the request"),
        ({"raw": ANOTHER}, "the digest is not that of the row"),
        ({"raw": ANOTHER, "text": "5"}, "the digest is not that of the row"),
        ({"text": "5"}, "the digest is not that of the row"),
        ({"finish": "length"}, "the digest is not that of the row"),
        ({"model": "dearer"}, "the digest is not that of the row"),
        ({"base_url": "http://elsewhere/v1"}, "the digest is not that of the row"),
        ({"input_tokens": 0}, "the digest is not that of the row"),
        ({"digest": "0" * 32}, "the digest is not that of the row"),
        ({"digest": None}, "has no digest"),
        ({"text": 5}, "text is '5', not a text"),
        ({"seconds": "x"}, "seconds is 'x', not a number or an integer or null"),
        ({"raw": [1]}, "raw is .*, not an object"),
        ({"raw": None}, "raw is 'None', not an object"),
        ({"wire": "x"}, "wire is 'x', not an object"),
        ({"sample": True}, "sample is 'True', not an integer"),
        ({"sample": 0.5}, "sample is '0.5', not an integer"),
        ({"salt": None}, "salt is 'None', not a text"),
        ({"base_url": 7}, "base_url is '7', not a text or null"),
        ({"input_tokens": -15}, "input_tokens is -15, not between"),
        ({"output_tokens": 2**63}, "output_tokens is 9223372036854775808, not between"),
        ({"output_tokens": 1.5}, "output_tokens is '1.5'"),
        ({"key": None}, "key is 'None', not a text"),
        ("text", "text is missing"),
        ("wire", "wire is missing"),
    ],
)
def test_an_altered_or_misshapen_row_is_refused_by_its_line(
    path: Path, tmp_path: Path, change: dict[str, Any] | str, problem: str
) -> None:
    """The review imported replies whose text and raw body said the opposite, a text that was a number and seconds that were
    a word."""
    row = exported(path)
    altered = {**row, **change} if isinstance(change, dict) else {name: row[name] for name in row if name != change}
    write_records(tmp_path / "rows.jsonl", [row, altered])
    with pytest.raises(InputError, match=rf"rows.jsonl:2: .*{problem}") as refused:
        take(tmp_path / "other.db", tmp_path / "rows.jsonl")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("row", [5, "x", None])
def test_what_is_not_a_row_is_refused(tmp_path: Path, row: Any) -> None:
    write_records(tmp_path / "rows.jsonl", [row])
    with pytest.raises(InputError, match=r"rows.jsonl:1: this is not an exported reply: a row is an object"):
        take(tmp_path / "other.db", tmp_path / "rows.jsonl")


def test_text_and_raw_body_must_agree_even_where_no_digest_is_asked_for(path: Path, tmp_path: Path) -> None:
    row = {**exported(path), "text": "5"}
    del row["digest"]
    write_records(tmp_path / "rows.jsonl", [row])
    with pytest.raises(InputError, match="`text` is not the text in `raw`"):
        take(tmp_path / "other.db", tmp_path / "rows.jsonl", undigested=True)


def test_an_export_of_an_older_version_is_taken_when_asked_for(path: Path, tmp_path: Path) -> None:
    row = exported(path)
    del row["digest"]
    write_records(tmp_path / "rows.jsonl", [row])
    assert take(tmp_path / "other.db", tmp_path / "rows.jsonl", undigested=True) == (1, 0)
    assert exported(tmp_path / "other.db")["digest"], "from then on it has one"


def test_a_row_of_a_provider_of_ones_own_needs_no_dialect_of_ours(path: Path, tmp_path: Path) -> None:
    one = replace(entry(), provider="mine", raw={"said": "4"})
    cache = Cache(path)
    cache.add([one])
    write_records(tmp_path / "rows.jsonl", cache.export())
    assert take(tmp_path / "other.db", tmp_path / "rows.jsonl") == (1, 0)


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


def run_sql(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as conn, conn:
        for statement in statements:
            conn.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE reply SET raw = replace(raw, '4', '5')",
        "UPDATE reply SET raw = replace(raw, '4', '5'), text = '5'",
        "UPDATE reply SET text = '5'",
        "UPDATE reply SET finish = 'length'",
        "UPDATE reply SET input_tokens = 0",
        "UPDATE reply SET model = 'another'",
        "UPDATE reply SET raw = substr(raw, 1, 9)",
        "UPDATE reply SET raw = CAST(raw AS BLOB) || x'ff'",
        "UPDATE reply SET raw = 7",
        "UPDATE reply SET raw = '[]'",
        "UPDATE reply SET raw = '[]', digest = NULL",
        "UPDATE reply SET raw = '{', digest = NULL",
        "UPDATE reply SET raw = x'00', digest = NULL",
        "UPDATE reply SET digest = 5",
    ],
)
def test_an_altered_reply_in_the_database_is_one_line_that_says_how_to_go_on(path: Path, statement: str) -> None:
    """Damaged caches ended in a JSONDecodeError; an edited reply was taken for what the judge had said."""
    cache = Cache(path)
    cache.add([entry(), entry("another?")])
    cache.close()
    run_sql(path, f"{statement} WHERE rowid = 1")
    cache = Cache(path)
    looks: list[Callable[[], object]] = [lambda: cache.find(entry().key), lambda: list(cache.export())]
    if "raw" in statement:  # what answers a request is the raw body: the other columns are for people
        looks.append(lambda: cache.get(entry().key))
    for look in looks:
        with pytest.raises(InputError, match=f"cache.db: reply {entry().key[:12]} was damaged or altered") as refused:
            look()
        assert "\n" not in str(refused.value)
    assert cache.get(entry("another?").key) == entry().raw
    run_sql(path, re.findall(r'"(DELETE .*)"', str(refused.value))[0])
    assert cache.get(entry().key) is None
    assert len(list(cache.export())) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM prompt",
        "DELETE FROM instruction",
        "UPDATE prompt SET messages = '{}'",
        "UPDATE prompt SET messages = '['",
        "UPDATE prompt SET messages = replace(messages, '2+2', '2+3')",
        "UPDATE instruction SET text = '5'",
        "UPDATE instruction SET text = '\"message\"'",
        "UPDATE reply SET params = '[]'",
        "UPDATE reply SET params = 5",
        "UPDATE reply SET sample = 'x'",
        "DROP TABLE prompt",
        "DROP TABLE attempt",
    ],
)
def test_a_damaged_request_is_one_line(path: Path, statement: str) -> None:
    Cache(path).add([entry()])
    run_sql(path, statement)
    cache = Cache(path)
    with pytest.raises(InputError, match=r"cache.db: .*(damaged|no such table)"):
        cache.find(entry().key)


def test_a_cache_of_an_older_version_is_read_as_it_is_and_written_anew(path: Path) -> None:
    cache = Cache(path)
    cache.add([entry()])
    cache.close()
    run_sql(path, "ALTER TABLE reply DROP COLUMN digest", "DELETE FROM _sqlite_migrations WHERE name = 'm002_digests'")
    before = path.read_bytes()
    old = Cache(path, readonly=True)
    assert old.get(entry().key) == entry().raw
    assert len(list(old.export())) == 1
    old.close()
    assert path.read_bytes() == before
    again = Cache(path)
    again.add([entry("new?")])
    assert [row["key"] for row in again.export()] == [entry().key, entry("new?").key]
    assert sqlite3.connect(path).execute("SELECT digest IS NULL FROM reply ORDER BY rowid").fetchall() == [(1,), (0,)]


@pytest.mark.parametrize(
    "tables", [["x (y)"], ["_sqlite_migrations (id INTEGER PRIMARY KEY, migration_set, name, applied_at)"]]
)
def test_a_database_of_another_program_is_left_alone(tmp_path: Path, tables: list[str]) -> None:
    """A foreign SQLite file was given our tables without a word."""
    foreign = tmp_path / "bookmarks.db"
    run_sql(foreign, *(f"CREATE TABLE {table}" for table in tables))
    before = foreign.read_bytes()
    with pytest.raises(InputError, match=r"bookmarks.db: this is not a critic-prm cache; name the file"):
        Cache(foreign)
    assert foreign.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bookmarks.db"]


def test_an_empty_file_becomes_a_cache(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    Cache(tmp_path / "new.db").add([entry()])
    assert Cache(tmp_path / "new.db").get(entry().key)


HOSTILE_SQL = {
    "a trigger that rewrites replies": """CREATE TRIGGER t AFTER INSERT ON reply BEGIN
        UPDATE reply SET raw = replace(raw, 'correct', 'incorrect'), digest = NULL WHERE rowid = new.rowid; END""",
    "a trigger that deletes replies": "CREATE TRIGGER t AFTER INSERT ON reply BEGIN DELETE FROM reply; END",
    "a trigger that never ends": """CREATE TRIGGER t AFTER INSERT ON reply BEGIN UPDATE reply SET finish = (
        WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c); END""",
    "a trigger on another table": "CREATE TRIGGER t AFTER INSERT ON Prompt BEGIN DELETE FROM reply; END",
    "a view in place of the replies": "DROP TABLE reply; CREATE VIEW Reply AS SELECT 1 AS key, 2 AS raw, NULL AS digest",
    "an endless view in place of the migrations": """DROP TABLE _sqlite_migrations; CREATE VIEW _sqlite_migrations AS
        WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS id, 'critic-prm' AS migration_set,
        'm001_replies' AS name, '' AS applied_at FROM c""",
    "a computed column": "ALTER TABLE reply ADD COLUMN x TEXT GENERATED ALWAYS AS (hex(zeroblob(400000000))) VIRTUAL",
    "a virtual table": "DROP TABLE attempt; CREATE VIRTUAL TABLE attempt USING fts5(key, raw)",
    "a view for the batches": "CREATE VIEW batch AS SELECT 1 AS id",
}


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("statements", HOSTILE_SQL.values(), ids=HOSTILE_SQL)
def test_sql_of_a_strangers_cache_does_not_run(path: Path, statements: str, readonly: bool) -> None:
    """A trigger rewrote or deleted replies as they were stored, or never ended; views and computed columns ran on reading."""
    Cache(path).close()
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript(statements)
    with pytest.raises(InputError, match=r"trigger|not a plain table"):
        Cache(path, readonly=readonly)


def test_views_and_tables_of_ones_own_beside_the_cache_are_left_alone(path: Path) -> None:
    Cache(path).close()
    with closing(sqlite3.connect(path)) as conn:
        conn.executescript("CREATE VIEW mine AS SELECT * FROM reply; CREATE TABLE notes (a); CREATE INDEX i ON reply(finish)")
    Cache(path).close()


@pytest.mark.parametrize("readonly", [False, True])
def test_a_journal_beside_a_cache_deletes_no_other_file(path: Path, tmp_path: Path, readonly: bool) -> None:
    """SQLite deleted the file that the journal named as its super-journal when the cache was opened."""
    Cache(path).close()
    victim = tmp_path / "precious"
    victim.write_bytes(b"precious")
    name = str(victim).encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">5I", 0, 1, path.stat().st_size // 4096, 512, 4096)
    tail = struct.pack(">I", 0x40000000 // 4096 + 1) + name + struct.pack(">2I", len(name), sum(name)) + magic
    Path(f"{path}-journal").write_bytes(head.ljust(512, b"\0") + tail)
    with pytest.raises(InputError, match="names another file"):
        Cache(path, readonly=readonly)
    assert victim.exists()


@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
def test_a_pipe_in_place_of_a_cache_file_is_not_waited_for(path: Path, ending: str) -> None:
    if ending:
        Cache(path).close()
    os.mkfifo(f"{path}{ending}")
    with pytest.raises(InputError, match="not a regular file"):
        Cache(path)


def test_a_link_in_place_of_the_lock_for_batches_is_not_followed(path: Path, tmp_path: Path) -> None:
    """The lock was opened for writing through the link, which emptied the file it led to."""
    victim = tmp_path / "precious"
    victim.write_bytes(b"precious")
    path.with_name(f".{path.name}.batches").symlink_to(victim)
    with pytest.raises(InputError, match="cannot be locked"):
        Ledger(path).alone()
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("made", 1e300),
        ("made", float("inf")),
        ("made", "x"),
        ("usd", "x"),
        ("requests", "many"),
        ("requests", -1),
        ("remote", b"x"),
    ],
)
def test_a_batch_row_with_a_value_that_no_batch_has_is_one_line(path: Path, column: str, value: Any) -> None:
    """`batch list` ended in a traceback."""
    with closing(Ledger(path)) as ledger:
        ledger.cache.connection.execute(
            "INSERT INTO batch (token, provider, model, state, made) VALUES ('t', 'openai', 'm', 'sent', 1.0)"
        )
        assert [batch.model for batch in ledger._batches("")] == ["m"]
        ledger.cache.connection.execute(f"UPDATE batch SET {column} = ?", (value,))
        with pytest.raises(InputError, match=rf"table batch, id 1: {column} is .*DELETE FROM batch WHERE id = 1"):
            ledger._batches("")
