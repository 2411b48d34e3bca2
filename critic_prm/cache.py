"""Replies that were paid for, in one SQLite file, for ever; and the attempts that came to nothing."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
from sqlite_utils import Database, Migrations

from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.provider import Usage, request_key, stated_usage
from critic_prm.records import Record

migrations = Migrations("critic-prm")


@migrations()
def m001_replies(db: Database) -> None:
    """What all requests of a style share is stored once (instruction), a prompt once for all its samples."""
    for statement in (
        "CREATE TABLE instruction (hash TEXT PRIMARY KEY, text TEXT NOT NULL)",
        """CREATE TABLE prompt (
            hash TEXT PRIMARY KEY, instruction TEXT REFERENCES instruction(hash), messages TEXT NOT NULL)""",
        """CREATE TABLE reply (
            key TEXT PRIMARY KEY, provider TEXT NOT NULL, model TEXT NOT NULL, base_url TEXT,
            prompt TEXT NOT NULL REFERENCES prompt(hash), params TEXT NOT NULL, sample INTEGER NOT NULL, salt TEXT NOT NULL,
            text TEXT NOT NULL, finish TEXT NOT NULL,
            input_tokens INTEGER, output_tokens INTEGER, cached_tokens INTEGER, written_tokens INTEGER,
            reasoning_tokens INTEGER, seconds REAL, created_at TEXT NOT NULL, raw TEXT NOT NULL)""",
        """CREATE TABLE attempt (
            id INTEGER PRIMARY KEY, key TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, failure TEXT NOT NULL,
            http_status INTEGER, detail TEXT NOT NULL, input_tokens INTEGER, output_tokens INTEGER,
            created_at TEXT NOT NULL, raw TEXT)""",
        "CREATE INDEX attempt_key ON attempt(key)",
        "CREATE INDEX reply_model ON reply(model, created_at)",
    ):
        db.execute(statement)


@dataclass(frozen=True, slots=True)
class Entry:
    """One complete reply on its way into the cache. `wire` is the body that was sent, `raw` the body that came back."""

    key: str
    wire: Mapping[str, Any]
    sample: int
    salt: str
    provider: str
    model: str
    base_url: str | None
    raw: Mapping[str, Any]
    text: str
    finish: str
    usage: Usage
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that brought no complete reply: kept, counted, and asked again."""

    key: str
    provider: str
    model: str
    failure: str
    detail: str = ""
    http_status: int | None = None
    usage: Usage = Usage()
    raw: Mapping[str, Any] | None = None


class Cache:
    """The replies in `path`, which is made when it does not exist; `readonly` opens a whole file without touching it.

    WAL with synchronous=NORMAL: a killed process loses nothing that was committed; after a power cut the last moments may be
    missing, never damaged. `durable` asks for synchronous=FULL. One Cache belongs to one thread.
    """

    def __init__(self, path: str | Path, *, durable: bool = False, readonly: bool = False) -> None:
        self.path = Path(path)
        if readonly and not self.path.is_file():
            raise InputError(str(path), "there is no such cache", "name an existing file with --db")
        try:
            if readonly:
                self._conn = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            else:
                self._conn = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
            self._conn.isolation_level = None
            self._prepare(durable, readonly)
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error

    def _prepare(self, durable: bool, readonly: bool) -> None:
        if not readonly:
            self._conn.execute("PRAGMA journal_mode=WAL")
            self._conn.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        db = Database(self._conn)
        if migrations.pending(db):
            if readonly:
                raise InputError(str(self.path), "this is not a critic-prm cache", "name the file that `label --db` wrote")
            # Several processes may open a new file at once: the first one makes the tables, the others wait for it.
            with self.transaction():
                migrations.apply(db)

    @property
    def connection(self) -> sqlite3.Connection:
        """For tables of others in the same file; what belongs together goes into one `transaction`."""
        return self._conn

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of a block or nothing; within another one, a part of that."""
        within = self._conn.in_transaction
        if within:
            yield
            return
        self._conn.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._conn.in_transaction:
                self._conn.execute("ROLLBACK")
            raise
        self._conn.execute("COMMIT")

    def get(self, key: str) -> Mapping[str, Any] | None:
        """The raw body kept under `key`, None if there is none."""
        row = self._conn.execute("SELECT raw FROM reply WHERE key = ?", (key,)).fetchone()
        return None if row is None else orjson.loads(row[0])

    def request(self, key: str) -> Mapping[str, Any] | None:
        """The body that was sent for the reply under `key`, None if there is none."""
        rows = self._rows("SELECT prompt, params FROM reply WHERE key = ?", key)
        return self.wire(rows[0]) if rows else None

    def known(self, keys: Sequence[str]) -> set[str]:
        """Which of `keys` are in the cache."""
        found: set[str] = set()
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            marks = ",".join("?" * len(part))
            found.update(row[0] for row in self._conn.execute(f"SELECT key FROM reply WHERE key IN ({marks})", part))
        return found

    def cut(self) -> set[str]:
        """The keys under which an answer was cut off for want of tokens."""
        return {row[0] for row in self._conn.execute("SELECT DISTINCT key FROM attempt WHERE failure = 'length'")}

    def experience(self, provider: str, model: str) -> tuple[int, float, float]:
        """What the last 500 replies of a model say: (how many, tokens per byte of prompt, tokens of a reply)."""
        row = self._conn.execute(
            """SELECT count(*), sum(input_tokens) * 1.0 / sum(size), avg(output_tokens) FROM (
                SELECT r.input_tokens, r.output_tokens,
                    length(CAST(p.messages AS BLOB)) + length(CAST(i.text AS BLOB)) AS size
                FROM reply r JOIN prompt p ON r.prompt = p.hash JOIN instruction i ON p.instruction = i.hash
                WHERE r.provider = ? AND r.model = ? AND r.input_tokens > 0 ORDER BY r.rowid DESC LIMIT 500)""",
            (provider, model),
        ).fetchone()
        return row[0], row[1] or 0.0, row[2] or 0.0

    def attempted(self, key: str, failure: str | None = None) -> Mapping[str, Any] | None:
        """The raw body of the last answer under `key` that was no complete reply; with `failure`, of one that failed so."""
        sql = "SELECT raw FROM attempt WHERE key = ?1 AND raw IS NOT NULL AND (?2 IS NULL OR failure = ?2) ORDER BY id DESC"
        row = self._conn.execute(sql, (key, failure)).fetchone()
        return None if row is None else orjson.loads(row[0])

    def add(self, entries: Iterable[Entry], attempts: Iterable[Attempt] = ()) -> None:
        """Store them in one transaction; a key that is there already changes nothing. Raises InputError (disk full)."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        entries = list(entries)
        failed = [_attempt_row(attempt, now) for attempt in attempts]
        try:
            with self.transaction():
                kept = self.keep(entry.wire for entry in entries)
                replies = [_reply_row(entry, *parts, now) for entry, parts in zip(entries, kept, strict=True)]
                self._conn.executemany(f"INSERT OR IGNORE INTO reply VALUES ({','.join('?' * 18)})", replies)
                self._conn.executemany(f"INSERT INTO attempt VALUES (NULL{',?' * 10})", failed)
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error

    def keep(self, wires: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Store the prompts of bodies, each text once: (the prompt's hash, the parameters as JSON) of each, from which `wire`
        puts it together again."""
        instructions, prompts, parts = {}, {}, []
        for wire in wires:
            prompt, instruction, params = _split(wire)
            instructions[instruction[0]] = instruction
            prompts[prompt[0]] = prompt
            parts.append((prompt[0], params))
        with self.transaction():
            self._conn.executemany("INSERT OR IGNORE INTO instruction VALUES (?,?)", instructions.values())
            self._conn.executemany("INSERT OR IGNORE INTO prompt VALUES (?,?,?)", prompts.values())
        return parts

    def close(self) -> None:
        self._conn.close()

    # What follows is for people who look into a cache.

    def count(self) -> dict[str, Any]:
        """Replies and attempts by provider and model, tokens, and the file's size in bytes."""
        models = self._rows(
            """SELECT provider, model, count(*) AS replies, sum(input_tokens) AS input_tokens,
               sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens,
               min(created_at) AS first, max(created_at) AS last
               FROM reply GROUP BY provider, model ORDER BY replies DESC"""
        )
        attempts = self._rows("SELECT failure, count(*) AS attempts FROM attempt GROUP BY failure ORDER BY attempts DESC")
        return {"path": str(self.path), "bytes": self.path.stat().st_size, "models": models, "attempts": attempts}

    def find(self, prefix: str) -> dict[str, Any]:
        """Everything kept about one reply, by its key or the first digits of it: request, text, usage, raw, attempts."""
        row = self._one(prefix)
        attempts = self._rows("SELECT failure, http_status, detail, created_at FROM attempt WHERE key = ?", row["key"])
        kept = {name: value for name, value in row.items() if name not in ("prompt", "params", "raw")}
        return {**kept, "request": self.wire(row), "raw": orjson.loads(row["raw"]), "attempts": attempts}

    def explain(self, first: str, second: str) -> list[tuple[str, Any, Any]]:
        """Why two keys differ: (place in the request, value in the first, value in the second), in reading order."""
        sides = []
        for prefix in (first, second):
            row = self._one(prefix)
            sides.append(_flat({"request": self.wire(row), "sample": row["sample"], "salt": row["salt"]}))
        left, right = sides
        return [
            (place, left.get(place), right.get(place)) for place in {**left, **right} if left.get(place) != right.get(place)
        ]

    def export(self) -> Iterator[dict[str, Any]]:
        """Every reply as a row that `entry_from_row` reads back, oldest first."""
        cursor = self._conn.execute("SELECT * FROM reply ORDER BY rowid")
        names = [column[0] for column in cursor.description]
        for values in cursor:
            row = dict(zip(names, values, strict=True))
            wire = self.wire(row)
            del row["prompt"], row["params"]
            yield {**row, "wire": wire, "raw": orjson.loads(row["raw"])}

    def _rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        cursor = self._conn.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def _one(self, prefix: str) -> dict[str, Any]:
        rows = self._rows("SELECT * FROM reply WHERE key >= ? AND key < ? LIMIT 2", prefix, prefix + "g")
        if len(rows) == 1:
            return rows[0]
        problem = "no reply has a key that begins with" if not rows else "several replies have keys that begin with"
        raise UsageError(f"{problem} {prefix!r} in {self.path}; keys stand in label files and in table reply")

    def wire(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The body whose `prompt` and `params` stand in `row`."""
        sql = "SELECT p.messages, i.text FROM prompt p LEFT JOIN instruction i ON p.instruction = i.hash WHERE p.hash = ?"
        messages, instruction = self._conn.execute(sql, (row["prompt"],)).fetchone()
        wire: dict[str, Any] = orjson.loads(row["params"])
        wire["messages"] = orjson.loads(messages)
        shared = orjson.loads(instruction)
        if shared is not None:
            wire["messages"].insert(0, shared["message"]) if "message" in shared else wire.update(shared)
        return wire


def import_rows(path: str | Path, records: Iterable[Record]) -> tuple[int, int]:
    """Take rows of `Cache.export` into the cache at `path`: (how many were new, how many were there). Raises InputError."""
    cache, added, known = Cache(path), 0, 0
    source = iter(records)
    while part := list(islice(source, 256)):
        entries = [entry_from_row(record.data, record.where) for record in part]
        there = cache.known([entry.key for entry in entries])
        cache.add(entries)
        new = len({entry.key for entry in entries} - there)
        added, known = added + new, known + len(entries) - new
    cache.close()
    return added, known


def entry_from_row(row: Mapping[str, Any], where: str) -> Entry:
    """Read what `Cache.export` wrote. The key is computed again: a row that was changed on the way is an InputError."""
    try:
        key = request_key(row["wire"], row["sample"], row["salt"])
        if key != row["key"]:
            raise InputError(where, f"the key {row['key']!r} is not that of the request beside it", "export the cache again")
        names = ("input", "output", "cached", "written", "reasoning")
        usage = stated_usage(**{name: row.get(f"{name}_tokens") for name in names})
        same = {
            name: row[name]
            for name in ("key", "wire", "sample", "salt", "provider", "model", "base_url", "raw", "text", "finish")
        }
        return Entry(usage=usage, seconds=row.get("seconds") or 0.0, **same)
    except (KeyError, TypeError) as error:
        raise InputError(
            where, f"this is no exported reply ({error})", "import what `critic-prm cache export` wrote"
        ) from error


def _split(wire: Mapping[str, Any]) -> tuple[tuple[str, str, str], tuple[str, str], str]:
    """A body as prompt row, instruction row and parameters. The instruction is the leading system text, wherever it stands."""
    messages = wire.get("messages") or []
    params = {name: value for name, value in wire.items() if name != "messages"}
    shared = None
    if "system" in params:
        shared = {"system": params.pop("system")}
    elif messages and messages[0].get("role") == "system":
        shared, messages = {"message": messages[0]}, messages[1:]
    instruction = orjson.dumps(shared, option=orjson.OPT_SORT_KEYS).decode()
    rest = orjson.dumps(messages, option=orjson.OPT_SORT_KEYS).decode()
    head = hashlib.sha256(instruction.encode()).hexdigest()
    prompt = hashlib.sha256(f"{head}{rest}".encode()).hexdigest()
    return (prompt, head, rest), (head, instruction), orjson.dumps(params, option=orjson.OPT_SORT_KEYS).decode()


def _reply_row(entry: Entry, prompt: str, params: str, now: str) -> tuple[Any, ...]:
    usage = entry.usage
    return (
        *(
            entry.key,
            entry.provider,
            entry.model,
            entry.base_url,
            prompt,
            params,
            entry.sample,
            entry.salt,
            entry.text,
            entry.finish,
        ),
        *(usage.input, usage.output, usage.cached, usage.written, usage.reasoning, entry.seconds, now),
        orjson.dumps(entry.raw).decode(),
    )


def _attempt_row(attempt: Attempt, now: str) -> tuple[Any, ...]:
    raw = None if attempt.raw is None else orjson.dumps(attempt.raw).decode()
    counts = (attempt.usage.input, attempt.usage.output)
    named = (attempt.key, attempt.provider, attempt.model, attempt.failure, attempt.http_status, attempt.detail)
    return (*named, *counts, now, raw)


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """A nested value as {place: leaf}."""
    if isinstance(value, dict):
        items: Iterable[tuple[str, Any]] = ((f"{place}.{name}" if place else name, item) for name, item in value.items())
    elif isinstance(value, list):
        items = ((f"{place}[{index}]", item) for index, item in enumerate(value))
    else:
        return {place: value}
    return {name: leaf for where, item in items for name, leaf in _flat(item, where).items()}


def _unusable(path: Path, error: sqlite3.Error) -> CriticPrmError:
    mends = {
        "disk is full": "make room and run the same command again: everything stored so far is kept",
        "unable to open": "the folder must exist and be writable; choose another place with --db",
        "readonly": "the file or its folder is not writable; choose another place with --db",
        "not a database": "name a file that `critic-prm label --db` wrote, or a new one",
        "malformed": "the file is damaged; `sqlite3 FILE .recover` saves what can be saved",
        "locked": "another program holds the file; end it or wait, then run the same command again",
    }
    mend = next((mend for words, mend in mends.items() if words in str(error)), "")
    return InputError(str(path), f"the cache cannot be used: {error}", mend)
