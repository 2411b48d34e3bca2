"""Permanent SQLite cache of paid replies and failed attempts."""

from __future__ import annotations

import hashlib
import os
import shlex
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson

from critic_prm.data.records.reading import Record
from critic_prm.engine.place import announce, create_privately
from critic_prm.engine.sqlite import Database, Migrations
from critic_prm.errors import CriticPrmError, InputError, UsageError
from critic_prm.providers.provider import MOST_TOKENS, Reply, Usage, read_stored, request_key
from critic_prm.terminal import safe_text

migrations = Migrations("critic-prm")

_T = TypeVar("_T")


@migrations()
def m001_replies(db: Database) -> None:
    """The text that all requests of a style share (instruction) is stored once, and a prompt once for all its samples."""
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


@migrations()
def m002_digests(db: Database) -> None:
    """Rows written by older versions keep no digest: computing one now would certify any change made to them since."""
    db.execute("ALTER TABLE reply ADD COLUMN digest TEXT")


COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "written_tokens", "reasoning_tokens")
DIGESTED = ("key", "provider", "model", "base_url", "sample", "salt", "text", "finish", *COUNTS)
"""The columns that a row's digest covers, besides `raw`. The request is covered by `key`, which is a hash of it."""

_NONE = type(None)
SHAPE: Mapping[str, tuple[type, ...]] = {
    "wire": (dict,),
    "raw": (dict,),
    **dict.fromkeys(("key", "salt", "provider", "model", "text", "finish"), (str,)),
    "base_url": (str, _NONE),
    "sample": (int,),
    **dict.fromkeys(COUNTS, (int, _NONE)),
    "seconds": (int, float, _NONE),
}
"""The fields of an exported row and their allowed types."""


def row_digest(row: Mapping[str, Any]) -> str:
    """Return the digest of a row of table reply: the digest of its body, then the digest of the DIGESTED columns.

    It detects corruption and manual edits; it is not a signature. Raises TypeError or ValueError for values that a row cannot
    hold.
    """
    rest = hashlib.blake2b(orjson.dumps([row[name] for name in DIGESTED]), digest_size=16)
    return body_digest(row["key"], row["raw"]) + rest.hexdigest()


def body_digest(key: str, raw: bytes | str) -> str:
    """Return the first half of a row's digest, which is enough to check a reply before it answers a request."""
    digest = hashlib.blake2b(key.encode(), digest_size=16)
    digest.update(raw if isinstance(raw, bytes) else raw.encode())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One complete reply to be stored. `wire` is the request body that was sent, `raw` the reply body."""

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
    anew: bool = False
    """Whether it takes the place of what is kept under its key, which could not be read."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that got no complete reply. It is stored and counted, and a later run sends the request again."""

    key: str
    provider: str
    model: str
    failure: str
    detail: str = ""
    http_status: int | None = None
    usage: Usage = Usage()
    raw: Mapping[str, Any] | None = None


class Cache:
    """The reply cache in the SQLite file `path`, which is created if it does not exist.

    `readonly` opens an existing file without changing it. The file uses WAL with synchronous=NORMAL: a killed process loses
    nothing that was committed. A power failure may lose the last transactions but does not damage the file. `durable` sets
    synchronous=FULL. A Cache belongs to one thread.
    """

    def __init__(self, path: str | Path, *, durable: bool = False, readonly: bool = False) -> None:
        self.path = Path(path)
        new = not self.path.exists()
        if readonly and not self.path.is_file():
            raise InputError(str(path), "there is no such cache", "name an existing file with --db")
        if new:
            create_privately(self.path)
        self._conn = connect(self.path, readonly=readonly)
        try:
            self._prepare(durable, readonly)
        except BaseException:
            self._conn.close()
            raise
        if (tell := announce.get()) is not None:
            tell(self.path, new)

    def _prepare(self, durable: bool, readonly: bool) -> None:
        db = Database(self._conn)
        # Keep this order: another process may be creating the tables now, and they all appear at once when it commits.
        in_use = self._conn.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 0
        done = {migration.name for migration in migrations.applied(db)}
        if m001_replies.__name__ not in done and (readonly or in_use):
            raise InputError(
                str(self.path), "this is not a critic-prm cache", "name the file that `label --db` wrote, or a new one"
            )
        if not readonly:
            self._conn.execute("PRAGMA journal_mode=WAL")
            self._conn.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            if migrations.pending(db):
                # Several processes may open a new file at once: the first one creates the tables, the others wait for it.
                with self.transaction():
                    migrations.apply(db)
        digest = "NULL" if readonly and m002_digests.__name__ not in done else "digest"
        self._select = f"SELECT key, CAST(raw AS BLOB), {digest}, rowid FROM reply WHERE key = ?"
        self._lookup = sqlite3.Cursor(self._conn)

    @property
    def connection(self) -> sqlite3.Connection:
        """The SQLite connection, for modules that keep their own tables in this file. Group related writes in `transaction`."""
        return self._conn

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Context manager: commit the whole block or nothing. A nested block is part of the outer transaction."""
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
        """Return the raw body stored under `key`, or None. Raises InputError when the row is damaged."""
        try:  # without the wrappers of _Cursor, which would cost as much as the lookup
            rows = self._lookup.execute(self._select, (key,)).fetchall()
        except SQLITE_ERRORS as error:
            raise _unusable(self.path, error) from error
        return self._body(key, *rows[0]) if rows else None

    def _body(self, key: Any, stored: Any, raw: Any, digest: Any, place: int) -> dict[str, Any]:
        """Decode the body of the row with rowid `place`. Raises InputError if it is not what was stored under `key`."""
        try:
            body = orjson.loads(raw)
            whole = isinstance(body, dict) and stored == key and (digest is None or str(digest)[:32] == body_digest(key, raw))
        except (TypeError, ValueError, AttributeError):  # AttributeError: a column holds a number or NULL
            whole = False
        if not whole:
            raise self._damaged(key, place)
        return body  # type: ignore[no-any-return]

    def _damaged(self, key: Any, rowid: Any) -> InputError:
        shown = key[:12] if isinstance(key, str) and key.isalnum() else repr(key)[:40]
        statement = f"DELETE FROM reply WHERE rowid = {rowid}"
        return InputError(
            str(self.path),
            f"reply {shown} was damaged or altered after it was stored",
            f'to ask for it again, delete it: sqlite3 {shlex.quote(str(self.path))} "{statement}"',
        )

    def request(self, key: str) -> Mapping[str, Any] | None:
        """Return the request body of the reply stored under `key`, or None."""
        rows = self._rows("SELECT rowid AS place, * FROM reply WHERE key = ?", key)
        return self._whole(rows[0])[0] if rows else None

    def reply(self, key: str, *, complete: bool = False) -> Reply | None:
        """Parse the reply stored under `key` or, without `complete`, the last incomplete one, as the provider that sent the
        request parses it. None if there is none or it cannot be parsed. Raises InputError when the row is damaged."""
        raw = self.get(key) or (None if complete else self.attempted(key))
        if raw is None:
            return None
        sql = "SELECT provider FROM reply WHERE key = ?1 UNION ALL SELECT provider FROM attempt WHERE key = ?1 LIMIT 1"
        return read_stored(self._conn.execute(sql, (key,)).fetchone()[0], raw)

    def known(self, keys: Sequence[str]) -> set[str]:
        """Return the subset of `keys` that are in the cache."""
        found: set[str] = set()
        for start in range(0, len(keys), 500):
            part = keys[start : start + 500]
            marks = ",".join("?" * len(part))
            found.update(row[0] for row in self._conn.execute(f"SELECT key FROM reply WHERE key IN ({marks})", part))
        return found

    def cut(self) -> set[str]:
        """Return the keys of the requests whose reply was truncated at the token limit."""
        return {row[0] for row in self._conn.execute("SELECT DISTINCT key FROM attempt WHERE failure = 'length'")}

    def experience(self, provider: str, model: str) -> tuple[int, float, float]:
        """Return (replies, input tokens per byte of prompt, mean output tokens) of a model's last 500 replies."""
        row = self._conn.execute(
            """SELECT count(*), sum(input_tokens) * 1.0 / sum(size), avg(output_tokens) FROM (
                SELECT r.input_tokens, r.output_tokens,
                    length(CAST(p.messages AS BLOB)) + length(CAST(i.text AS BLOB)) AS size
                FROM reply r JOIN prompt p ON r.prompt = p.hash JOIN instruction i ON p.instruction = i.hash
                WHERE r.provider = ? AND r.model = ? AND r.input_tokens > 0 AND p.messages != '[]'
                ORDER BY r.rowid DESC LIMIT 500)""",
            (provider, model),
        ).fetchone()
        return row[0], row[1] or 0.0, row[2] or 0.0

    def attempted(self, key: str, failure: str | None = None) -> Mapping[str, Any] | None:
        """Return the raw body of the last incomplete reply to `key`, or None; with `failure`, of the last such failure.

        Raises InputError when the stored body is damaged.
        """
        sql = "SELECT raw FROM attempt WHERE key = ?1 AND raw IS NOT NULL AND (?2 IS NULL OR failure = ?2) ORDER BY id DESC"
        row = self._conn.execute(sql, (key, failure)).fetchone()
        if row is None:
            return None
        try:
            body = orjson.loads(row[0])
        except (TypeError, ValueError):
            body = None
        if not isinstance(body, dict):
            fix = f"to ask again, delete it: sqlite3 {shlex.quote(str(self.path))} \"DELETE FROM attempt WHERE key = '{key}'\""
            raise InputError(str(self.path), f"an attempt under {key[:12]} was damaged after it was stored", fix)
        return body

    def add(self, entries: Iterable[Entry], attempts: Iterable[Attempt] = ()) -> None:
        """Store them in one transaction; a key that is there already changes nothing, unless the entry is
        `anew`. Raises InputError (disk full)."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        entries = list(entries)
        failed = [_attempt_row(attempt, now) for attempt in attempts]
        with self.transaction():
            kept = self.keep(entry.wire for entry in entries)
            replies = [_reply_row(entry, *parts, now) for entry, parts in zip(entries, kept, strict=True)]
            for anew, word in ((False, "IGNORE"), (True, "REPLACE")):
                rows = [row for entry, row in zip(entries, replies, strict=True) if entry.anew == anew]
                self._conn.executemany(f"INSERT OR {word} INTO reply VALUES ({','.join('?' * 19)})", rows)
            self._conn.executemany(f"INSERT INTO attempt VALUES (NULL{',?' * 10})", failed)

    def keep(self, wires: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
        """Store the prompts of request bodies, each text once.

        Returns (prompt hash, parameters as JSON) for each body, from which `wire` restores it.
        """
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

    # Inspection: the methods below serve the `cache` commands.

    def count(self) -> dict[str, Any]:
        """Count replies and tokens per provider and model, attempts per failure, and the file's size in bytes."""
        models = self._rows(
            """SELECT provider, model, count(*) AS replies, sum(input_tokens) AS input_tokens,
               sum(output_tokens) AS output_tokens, sum(cached_tokens) AS cached_tokens,
               CAST(min(created_at) AS TEXT) AS first, CAST(max(created_at) AS TEXT) AS last
               FROM reply GROUP BY provider, model ORDER BY replies DESC"""
        )
        attempts = self._rows("SELECT failure, count(*) AS attempts FROM attempt GROUP BY failure ORDER BY attempts DESC")
        for row in (*models, *attempts):
            row |= {name: _legible(value) for name, value in row.items()}
        return {"path": str(self.path), "bytes": self.path.stat().st_size, "models": models, "attempts": attempts}

    def find(self, prefix: str) -> dict[str, Any]:
        """Return everything stored about one reply, found by its key or a prefix: request, text, usage, raw, attempts."""
        row = self._one(prefix)
        attempts = self.attempts(row["key"])
        wire, raw = self._whole(row)
        found = {**_shown(row), "request": wire, "raw": raw, "attempts": attempts}
        try:
            orjson.dumps(found)
        except TypeError:  # a text column holds bytes or invalid UTF-8
            raise self._damaged(row["key"], row["place"]) from None
        return found

    def attempts(self, key: str) -> list[dict[str, Any]]:
        """Return the failed attempts at a request, oldest first: failure class, HTTP status, message, time."""
        return self._rows("SELECT failure, http_status, detail, created_at FROM attempt WHERE key = ? ORDER BY id", key)

    def explain(self, first: str, second: str) -> list[tuple[str, Any, Any]]:
        """Explain why two keys differ: (path in the request, first value, second value), in reading order."""
        sides = []
        for prefix in (first, second):
            row = self._one(prefix)
            sides.append(_flat({"request": self.wire(row), "sample": row["sample"], "salt": row["salt"]}))
        left, right = sides
        return [
            (place, left.get(place), right.get(place)) for place in {**left, **right} if left.get(place) != right.get(place)
        ]

    def export(self) -> Iterator[dict[str, Any]]:
        """Yield every reply as a row that `entry_from_row` reads back, oldest first. Raises InputError at a damaged row."""
        for row in self._each("SELECT rowid AS place, * FROM reply ORDER BY rowid"):
            wire, raw = self._whole(row)
            yield {**_shown(row), "wire": wire, "raw": raw, "digest": row_digest(row)}

    def _whole(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the request and the raw body of a row. Raises InputError if they are not what was stored."""
        try:
            key, digest = row["key"], row.get("digest")
            raw = self._body(key, key, row["raw"], digest, row["place"])
            wire = self.wire(row)
            fits = not _misfit({**row, "wire": wire, "raw": raw}) and request_key(wire, row["sample"], row["salt"]) == key
            whole = fits and digest in (None, row_digest(row))
        except (KeyError, TypeError, ValueError):  # a column is missing or holds bytes
            whole = False
        if not whole:
            raise self._damaged(row.get("key"), row["place"])
        return wire, raw

    def _each(self, sql: str, *values: Any) -> Iterator[dict[str, Any]]:
        cursor = self._conn.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return (dict(zip(names, row, strict=True)) for row in cursor)

    def _rows(self, sql: str, *values: Any) -> list[dict[str, Any]]:
        return list(self._each(sql, *values))

    def _one(self, prefix: str) -> dict[str, Any]:
        rows = self._rows("SELECT rowid AS place, * FROM reply WHERE key >= ? AND key < ? LIMIT 2", prefix, prefix + "g")
        if len(rows) == 1:
            return rows[0]
        problem = "no reply has a key that begins with" if not rows else "several replies have keys that begin with"
        raise UsageError(f"{problem} {prefix!r} in {self.path}; keys are in label files and in the table reply")

    def wire(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Rebuild the request body from the `prompt` and `params` of `row`. Raises InputError if they are damaged."""
        sql = "SELECT p.messages, i.text FROM prompt p LEFT JOIN instruction i ON p.instruction = i.hash WHERE p.hash = ?"
        try:
            messages, instruction = self._conn.execute(sql, (row["prompt"],)).fetchone()
            wire: dict[str, Any] = orjson.loads(row["params"])
            wire["messages"] = orjson.loads(messages)
            shared = orjson.loads(instruction)
            if shared is not None:
                wire["messages"].insert(0, shared["message"]) if "message" in shared else wire.update(shared)
        except (TypeError, ValueError, AttributeError, KeyError):
            raise InputError(
                str(self.path), f"prompt {str(row['prompt'])[:12]!r} was damaged after it was stored", RECOVER
            ) from None
        return wire


def connect(path: Path, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection whose errors are InputErrors that name the file. Raises InputError where it cannot be opened."""
    _check_files(path)
    address = f"{path.absolute().as_uri()}?mode={'ro' if readonly else 'rwc'}"
    try:
        conn = sqlite3.connect(address, timeout=60, uri=True, check_same_thread=False, factory=_Connection)
    except sqlite3.Error as error:
        raise _unusable(path, error) from error
    conn.path = path
    conn.text_factory = _text
    conn.isolation_level = None
    try:
        _check_schema(conn)
    except BaseException:
        conn.close()
        raise
    return conn


SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a rollback journal that names another file. SQLite deletes that file when it has read the journal."""

TABLES = frozenset(
    ("instruction", "prompt", "reply", "attempt", "request", "batch", "batch_request", "_sqlite_migrations")
)  # fmt: skip
"""The tables of a cache, those for batches included. In lower case: SQL does not tell Reply from reply."""


def _check_files(path: Path) -> None:
    """Look at the files of a cache before SQLite opens them. Raises InputError for what is not a regular file, which SQLite may
    wait for without end, and for a journal that makes it delete another file."""
    real = os.path.realpath(path)
    for ending in ("", "-journal", "-wal", "-shm"):
        place = real + ending
        try:
            regular = stat.S_ISREG(os.lstat(place).st_mode)
        except (OSError, ValueError):
            continue  # it does not exist, or SQLite will say why it cannot be opened
        if not regular:
            raise InputError(place, "it is not a regular file", "name another cache with --db")
        if ending == "-journal":
            with open(place, "rb") as file:
                file.seek(max(os.fstat(file.fileno()).st_size - len(SUPER_JOURNAL), 0))
                if file.read() == SUPER_JOURNAL:
                    fix = (
                        "critic-prm does not write such journals: use the cache only if you know who made it, without this file"
                    )
                    raise InputError(place, "the journal names another file, which SQLite would delete", fix)


def _check_schema(conn: _Connection) -> None:
    """Raises InputError for SQL of the file's author that would run when the cache is used: triggers, and views, virtual tables
    and computed columns in place of the cache's own tables."""
    for kind, name, sql in conn.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
        shown, table = safe_text(str(name)), str(name).lower() in TABLES
        if kind == "trigger":
            fix = "if you made it yourself, remove it with DROP TRIGGER in sqlite3"
            raise InputError(str(conn.path), f"it has a trigger, {shown!r}, which can alter replies when they are stored", fix)
        if not table or kind == "index":
            continue
        plain = kind == "table" and not str(sql).upper().startswith("CREATE VIRTUAL")
        columns = conn.execute("SELECT hidden FROM pragma_table_xinfo(?)", (name,)).fetchall() if plain else []
        if not plain or any(hidden for (hidden,) in columns):
            raise InputError(
                str(conn.path), f"{shown} is not a plain table, as in every cache that critic-prm writes", "name another --db"
            )


def _legible(value: Any) -> Any:
    """Make a value of a damaged row printable."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _text(stored: bytes) -> str:
    """Decode stored text. Invalid bytes become lone surrogates, which fail in digests and in JSON, so damage is detected."""
    return stored.decode("utf-8", "surrogateescape")


SQLITE_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)
"""The second: SQLite quotes a damaged schema in messages that are not valid UTF-8."""


class _Cursor(sqlite3.Cursor):
    """A cursor that names the file in every error. SQLite reads while rows are fetched, so any method may find damage."""

    connection: _Connection

    def execute(self, *args: Any) -> _Cursor:
        return self._named(super().execute, *args)

    def executemany(self, *args: Any) -> _Cursor:
        return self._named(super().executemany, *args)

    def fetchone(self) -> Any:
        return self._named(super().fetchone)

    def fetchall(self) -> list[Any]:
        return self._named(super().fetchall)

    def __next__(self) -> Any:
        return self._named(super().__next__)

    def _named(self, method: Callable[..., _T], *args: Any) -> _T:
        try:
            return method(*args)
        except SQLITE_ERRORS as error:
            raise _unusable(self.connection.path, error) from error


class _Connection(sqlite3.Connection):
    path: Path

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, *args: Any) -> Any:
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        return self.cursor().executemany(*args)


def import_rows(
    path: str | Path,
    records: Iterable[Record],
    *,
    read: Callable[[str, Mapping[str, Any]], str | None],
    undigested: bool = False,
) -> tuple[int, int]:
    """Import rows of `Cache.export` into the cache at `path`. Returns (new rows, rows already there). Raises InputError.

    `read` returns the text that a provider parses from a raw body, or None for an unknown provider. `undigested` accepts rows
    without a digest, which older versions exported.
    """
    cache, added, known = Cache(path), 0, 0
    source = iter(records)
    try:
        while part := list(islice(source, 256)):
            entries = [entry_from_row(record.data, record.where, read, undigested) for record in part]
            there = cache.known([entry.key for entry in entries])
            cache.add(entries)
            new = len({entry.key for entry in entries} - there)
            added, known = added + new, known + len(entries) - new
    finally:
        cache.close()
    return added, known


def entry_from_row(
    row: Any, where: str, read: Callable[[str, Mapping[str, Any]], str | None], undigested: bool = False
) -> Entry:
    """Parse a row of `Cache.export`. Raises InputError for a row with other fields or types, and for an altered row: its key
    does not match its request, its digest does not match its fields, or its text does not match its raw body."""
    if problem := _misfit(row):
        raise InputError(where, f"this is not an exported reply: {problem}", "import what `critic-prm cache export` wrote")
    digest = row.get("digest")
    if digest is None and not undigested:
        fix = "export it again with this version, or accept such rows with --without-digest"
        raise InputError(where, "the row has no digest, so changes to it could not be detected", fix)
    kept = {**dict.fromkeys(COUNTS), **row, "raw": orjson.dumps(row["raw"]).decode()}
    checks = (
        (
            row["key"] == request_key(row["wire"], row["sample"], row["salt"]),
            f"the key {row['key'][:12]!r} is not that of the request",
        ),
        (digest is None or digest == row_digest(kept), "the digest is not that of the row"),
        (read(row["provider"], row["raw"]) in (None, row["text"]), "`text` is not the text in `raw`"),
    )
    for fits, problem in checks:
        if not fits:
            raise InputError(where, f"{problem}: the row was altered", "export the cache again")
    whole, out, cached, written, thought = (row.get(name) or 0 for name in COUNTS)
    usage = Usage(whole, out, cached, written, thought)
    same = {name: row[name] for name in SHAPE if name not in (*COUNTS, "seconds")}
    return Entry(usage=usage, seconds=row.get("seconds") or 0.0, **same)


def _misfit(row: Any) -> str:
    """Say where an exported row violates SHAPE; empty if it does not."""
    if not isinstance(row, dict):
        return f"a row is an object, not {type(row).__name__}"
    for name, types in SHAPE.items():
        value = row.get(name)
        if name not in row and _NONE not in types:
            return f"{name} is missing"
        if type(value) not in types:
            return f"{name} is {str(value)[:40]!r}, not {' or '.join(sorted(_JSON[one] for one in types))}"
        if name in COUNTS and not 0 <= (value or 0) <= MOST_TOKENS:
            return f"{name} is {value}, not between 0 and 2**53"
    return ""


_JSON = {dict: "an object", str: "a text", int: "an integer", float: "a number", _NONE: "null"}


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of table reply without the columns that are shown in decoded form elsewhere."""
    return {name: value for name, value in row.items() if name not in ("prompt", "params", "raw", "digest", "place")}


def _split(wire: Mapping[str, Any]) -> tuple[tuple[str, str, str], tuple[str, str], str]:
    """Split a body into prompt row, instruction row and parameters.

    The instruction is the system text: the "system" parameter or a leading system message.
    """
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
    counts = (usage.input, usage.output, usage.cached, usage.written, usage.reasoning)
    who = (entry.key, entry.provider, entry.model, entry.base_url)
    which, said = (entry.sample, entry.salt), (entry.text, entry.finish)
    raw = orjson.dumps(entry.raw).decode()
    digest = row_digest({"raw": raw, **dict(zip(DIGESTED, (*who, *which, *said, *counts), strict=True))})
    return (*who, prompt, params, *which, *said, *counts, entry.seconds, now, raw, digest)


def _attempt_row(attempt: Attempt, now: str) -> tuple[Any, ...]:
    raw = None if attempt.raw is None else orjson.dumps(attempt.raw).decode()
    counts = (attempt.usage.input, attempt.usage.output)
    named = (attempt.key, attempt.provider, attempt.model, attempt.failure, attempt.http_status, attempt.detail)
    return (*named, *counts, now, raw)


def _flat(value: Any, place: str = "") -> dict[str, Any]:
    """Flatten a nested value to {path: leaf}."""
    if isinstance(value, dict):
        items: Iterable[tuple[str, Any]] = ((f"{place}.{name}" if place else name, item) for name, item in value.items())
    elif isinstance(value, list):
        items = ((f"{place}[{index}]", item) for index, item in enumerate(value))
    else:
        return {place: value}
    return {name: leaf for where, item in items for name, leaf in _flat(item, where).items()}


RECOVER = "the file is damaged: `sqlite3 FILE .recover` saves what can be saved, a copy of the file made earlier saves more"


def _unusable(path: Path, error: Exception) -> CriticPrmError:
    fixes = {
        "disk is full": "make room and run the same command again: everything stored so far is kept",
        "unable to open": "the folder must exist and be writable; choose another place with --db",
        "readonly": "the file or its folder is not writable; choose another place with --db",
        "not a database": "name a file that `critic-prm label --db` wrote, or a new one",
        "locked": "another program has locked the file; end it or wait, then run the same command again",
    }
    fix = next((fix for words, fix in fixes.items() if words in str(error)), RECOVER)
    return InputError(str(path), f"the cache cannot be used: {error}", fix)
