"""Record the open requests and their batches in the cache file, so that a crash loses neither.

A batch goes through these states: gathering (requests are added), ready (nothing was sent yet), sending (it may have been
created at the provider, its id is unknown), running, ended. A batch that is gathering or ready after a crash never left this
machine and is dropped. A batch that is sending is first looked for at the provider. A request file that is being exported is
"writing", then it stays "exported".
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

import orjson

from critic_prm.data.records.writing import LOCK_FILE
from critic_prm.engine.cache import Attempt, Cache, Entry, connect
from critic_prm.engine.entries import PendingRequest
from critic_prm.engine.sqlite import Database, Migrations
from critic_prm.errors import InputError, UsageError
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.batches import custom_id
from critic_prm.providers.provider import Provider, Wire

migrations = Migrations("critic-prm-batches")

PART = 256


@migrations()
def m001_batches(db: Database) -> None:
    """A request's prompt is stored in the same table as the prompts of replies, so there is no second copy."""
    for statement in (
        """CREATE TABLE request (
            key TEXT PRIMARY KEY, provider TEXT NOT NULL, model TEXT NOT NULL, base_url TEXT,
            prompt TEXT NOT NULL REFERENCES prompt(hash), params TEXT NOT NULL, sample INTEGER NOT NULL, salt TEXT NOT NULL)""",
        """CREATE TABLE batch (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            token TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, base_url TEXT,
            state TEXT NOT NULL, requests INTEGER NOT NULL DEFAULT 0, most_usd REAL NOT NULL DEFAULT 0,
            usd REAL NOT NULL DEFAULT 0, file TEXT NOT NULL DEFAULT '', newest TEXT NOT NULL DEFAULT '',
            remote TEXT NOT NULL DEFAULT '', sure INTEGER NOT NULL DEFAULT 1, not_ours TEXT NOT NULL DEFAULT '',
            status TEXT NOT NULL DEFAULT '', failure TEXT NOT NULL DEFAULT '', settled INTEGER NOT NULL DEFAULT 0,
            made REAL NOT NULL, sent REAL NOT NULL DEFAULT 0, ended REAL NOT NULL DEFAULT 0)""",
        "CREATE TABLE batch_request (batch INTEGER NOT NULL REFERENCES batch(id), key TEXT NOT NULL, outcome TEXT)",
        "CREATE INDEX batch_request_key ON batch_request(key)",
        "CREATE INDEX batch_request_batch ON batch_request(batch)",
    ):
        db.execute(statement)


OPEN = "outcome IS NULL AND (batch = ?1 OR ?1 IS NULL AND batch IN (SELECT id FROM batch WHERE state = 'exported'))"
"""SQL condition for the open requests of batch ?1 or, if that is null, of all exported files."""

LARGEST = 1e11
"""No count, cost in US dollars or time in seconds since 1970 of a batch reaches it (as a time, the year 5138)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A row of table batch. Times are in seconds since 1970."""

    id: int
    token: str
    """Random name, used to find the batch at the provider again."""
    provider: str
    model: str
    base_url: str | None
    state: str
    requests: int
    """Number of requests."""
    most_usd: float
    """Maximum cost in US dollars, reserved while the batch runs."""
    usd: float
    """Cost of the imported results in US dollars."""
    file: str
    """Id of the uploaded request file, used to find the batch again; or the path of an exported file."""
    newest: str
    """Id of the provider's newest batch before this one was created, used to find the batch again."""
    remote: str
    """The provider's id of the batch; empty while unknown."""
    sure: int
    """0 if `remote` is a guess, which the results have to confirm."""
    not_ours: str
    """Ids of batches that were mistaken for this one, separated by spaces."""
    status: str
    """The status that the provider reports."""
    failure: str
    """Why the provider rejected the whole batch; empty if it did not."""
    settled: int
    """1 if later runs ignore the batch's outcomes."""
    made: float
    sent: float
    ended: float

    @property
    def called(self) -> str:
        """Name for messages."""
        there = f", {self.remote}" if self.remote else ""
        return f"batch {self.id} ({self.provider}/{self.model}{there})"


@dataclass(frozen=True, slots=True)
class Try:
    """One inclusion of a request in a batch. `outcome` is None while it is open."""

    batch: int
    state: str
    outcome: str | None


class Ledger:
    """The batch tables in the cache file `path`. Every write is flushed to disk, because batches cost money.

    A ledger belongs to one thread.
    """

    def __init__(self, path: str | Path) -> None:
        self.cache = Cache(path, durable=True)
        self._conn = self.cache.connection
        db = Database(self._conn)
        if migrations.pending(db):
            with self.cache.transaction():
                migrations.apply(db)
        self._lock: TextIO | None = None

    def alone(self) -> Ledger:
        """Lock the ledger: only one process at a time may send its batches. Raises UsageError if another one holds the lock."""
        path = self.cache.path
        lock = path.with_name(f".{path.name}.batches")
        try:
            self._lock = os.fdopen(os.open(lock, LOCK_FILE, 0o666))
        except OSError as error:
            self.close()
            raise InputError(str(lock), f"it cannot be locked: {error.strerror}", "remove it") from None
        try:
            flock(self._lock, LOCK_EX | LOCK_NB)
        except OSError:
            self.close()
            raise UsageError(
                f"another process is processing the batches of {path}; end it, wait for it (it imports all of them), or use"
                " another cache with --db"
            ) from None
        return self

    def begin(self, provider: Provider, state: str = "gathering") -> int:
        """Create an empty batch and return its id."""
        row = (uuid4().hex, provider.name, provider.model, without_secrets(provider.base_url), state, time.time())
        cursor = self._conn.execute(
            "INSERT INTO batch (token, provider, model, base_url, state, made) VALUES (?,?,?,?,?,?)", row
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def add(self, batch: int, questions: Sequence[PendingRequest]) -> None:
        """Add requests to a batch."""
        row = self.batch(batch)
        with self.cache.transaction():
            prompts = [prompt for prompt, _ in self.cache.keep(question.wire for question in questions)]
            self._conn.executemany(
                "INSERT OR IGNORE INTO request VALUES (?,?,?,?,?,?,?,?)",
                [
                    (q.key, row.provider, row.model, row.base_url, prompt, _params(q.wire), q.sample, q.salt)
                    for q, prompt in zip(questions, prompts, strict=True)
                ],
            )
            self._conn.executemany("INSERT INTO batch_request VALUES (?,?,NULL)", [(batch, q.key) for q in questions])
            self._conn.execute("UPDATE batch SET requests = requests + ? WHERE id = ?", (len(questions), batch))

    def note(self, batch: int, **facts: str | float) -> None:
        """Update columns of a batch."""
        assert facts.keys() <= {field.name for field in fields(Batch)}
        self._conn.execute(
            f"UPDATE batch SET {', '.join(f'{name} = ?' for name in facts)} WHERE id = ?", (*facts.values(), batch)
        )

    def batch(self, batch: int) -> Batch:
        """Return the batch with this id."""
        (row,) = self._batches("WHERE id = ?", batch)
        return row

    def batches(self, *states: str) -> list[Batch]:
        """Return all batches, or those in one of `states`, oldest first."""
        return self._batches(f"WHERE state IN ({','.join('?' * len(states))})" if states else "", *states)

    def counts(self, batch: int) -> dict[str, int]:
        """Count the requests of a batch per outcome; "" stands for open ones."""
        sql = "SELECT coalesce(outcome, ''), count(*) FROM batch_request WHERE batch = ? GROUP BY outcome"
        return dict(self._conn.execute(sql, (batch,)))

    def questions(self, batch: int) -> Iterator[PendingRequest]:
        """Yield the requests of a batch in the order in which they were added."""
        last = 0
        while rows := self._conn.execute(
            """SELECT b.rowid, r.key, r.prompt, r.params, r.sample, r.salt FROM batch_request b JOIN request r ON r.key = b.key
               WHERE b.batch = ? AND b.rowid > ? ORDER BY b.rowid LIMIT ?""",
            (batch, last, PART),
        ).fetchall():
            last = rows[-1][0]
            for _, *row in rows:
                yield self._request(*row)

    def asked(self, customs: Iterable[str]) -> dict[str, tuple[PendingRequest, str]]:
        """Return the open requests with these custom ids, each with the name of its provider and model."""
        found = {}
        for custom in customs:
            start = custom.partition("-")[0]
            if len(start) != 32:
                continue
            for provider, model, *row in self._conn.execute(
                "SELECT provider, model, key, prompt, params, sample, salt FROM request WHERE key >= ? AND key < ?",
                (start, f"{start}g"),
            ):
                request = self._request(*row)
                if custom_id(request.key, request.sample) == custom:
                    found[custom] = request, f"{provider}/{model}"
        return found

    def _request(self, key: str, prompt: str, params: str, sample: int, salt: str) -> PendingRequest:
        return PendingRequest(key, self.cache.wire({"prompt": prompt, "params": params}), sample, salt)

    def answered(self, custom: str) -> bool:
        """Whether the reply to the request with this custom id is in the cache."""
        start, _, sample = custom.partition("-")
        sql = "SELECT sample FROM reply WHERE key >= ? AND key < ?"
        return len(start) == 32 and any(str(row[0]) == sample for row in self._conn.execute(sql, (start, f"{start}g")))

    def tries(self, key: str) -> list[Try]:
        """Return the inclusions of `key` in batches since the last completed run, oldest first.

        An exported file counts once its results were imported.
        """
        sql = """SELECT b.id, b.state, r.outcome FROM batch_request r JOIN batch b ON b.id = r.batch
            WHERE r.key = ? AND NOT b.settled AND (r.outcome IS NOT NULL OR b.state NOT IN ('exported', 'writing'))
            ORDER BY b.id"""
        return [Try(*row) for row in self._conn.execute(sql, (key,))]

    def failure_of(self, key: str) -> tuple[str, int | None, str]:
        """Return the last attempt of `key` as (failure, HTTP status, message)."""
        sql = "SELECT failure, http_status, detail FROM attempt WHERE key = ? ORDER BY id DESC LIMIT 1"
        row = self._conn.execute(sql, (key,)).fetchone()
        return ("transient", None, "no result came back") if row is None else tuple(row)

    def has_asked_like(self, provider: Provider, names: Iterable[str]) -> bool:
        """Whether one of this model's last 200 replies from this address answered a request with the same parameter names."""
        sql = """SELECT DISTINCT params FROM (SELECT params FROM reply WHERE provider = ? AND model = ? AND base_url IS ?
            ORDER BY rowid DESC LIMIT 200)"""
        where = (provider.name, provider.model, without_secrets(provider.base_url))
        wanted = sorted(set(names) - {"messages", "system"})
        return any(sorted(orjson.loads(row[0])) == wanted for row in self._conn.execute(sql, where))

    def record(
        self,
        batch: int | None,
        entries: Sequence[Entry],
        attempts: Sequence[Attempt],
        outcomes: Mapping[str, str],
        usd: float = 0.0,
    ) -> None:
        """Store replies, attempts and the outcomes of their requests in one transaction.

        Without `batch`, the outcomes apply to all exported files that hold the requests.
        """
        with self.cache.transaction():
            self.cache.add(entries, attempts)
            self._conn.executemany(
                f"UPDATE batch_request SET outcome = ?2 WHERE key = ?3 AND {OPEN}",
                [(batch, outcome, key) for key, outcome in outcomes.items()],
            )
            self._conn.execute("UPDATE batch SET usd = usd + ? WHERE id = ?", (usd, batch))

    def holds(self, batch: int, key: str) -> bool:
        """Whether a batch contains the request `key`."""
        return (
            self._conn.execute("SELECT 1 FROM batch_request WHERE key = ? AND batch = ?", (key, batch)).fetchone() is not None
        )

    def open_keys(self, batch: int | None, keys: Sequence[str]) -> set[str]:
        """Return the subset of `keys` without an outcome in `batch`, or, without `batch`, in any exported file."""
        sql = f"SELECT key FROM batch_request WHERE {OPEN} AND key IN ({','.join('?' * len(keys))})"
        return {row[0] for row in self._conn.execute(sql, (batch, *keys))}

    def end(self, batch: int, rest: str, **facts: str | float) -> None:
        """End a batch. Its open requests get the outcome `rest`; columns in `facts` are updated."""
        with self.cache.transaction():
            self._conn.execute("UPDATE batch_request SET outcome = ? WHERE batch = ? AND outcome IS NULL", (rest, batch))
            self.note(batch, state="ended", ended=time.time(), **facts)
            self._conn.execute(
                "DELETE FROM request WHERE key IN (SELECT key FROM batch_request WHERE batch = ?1 AND outcome = 'ok')"
                " AND key IN (SELECT key FROM reply)",
                (batch,),
            )

    def drop(self, batch: int) -> None:
        """Delete a batch that was never created at the provider."""
        with self.cache.transaction():
            self._conn.execute(
                """DELETE FROM request WHERE key IN (SELECT key FROM batch_request WHERE batch = ?1)
                   AND key NOT IN (SELECT key FROM batch_request WHERE batch <> ?1)""",
                (batch,),
            )
            self._conn.execute("DELETE FROM batch_request WHERE batch = ?", (batch,))
            self._conn.execute("DELETE FROM batch WHERE id = ?", (batch,))

    def settle(self, provider: Provider) -> None:
        """Mark ended batches and fully imported files as settled at the end of a run, so that the next run retries failures."""
        with self.cache.transaction():
            self._conn.execute(
                """UPDATE batch SET settled = 1 WHERE provider = ? AND model = ? AND (state = 'ended' OR state = 'exported'
                   AND NOT EXISTS (SELECT 1 FROM batch_request WHERE batch = batch.id AND outcome IS NULL))""",
                (provider.name, provider.model),
            )

    def committed(self, provider: Provider) -> tuple[int, float]:
        """Return (requests, USD) of the current job's batches. Batches that have not ended count at their maximum cost."""
        sql = """SELECT coalesce(sum(requests), 0),
            coalesce(sum(CASE state WHEN 'ended' THEN usd ELSE max(usd, most_usd) END), 0.0) FROM batch
            WHERE provider = ? AND model = ? AND NOT settled AND state <> 'exported' AND failure = ''"""
        requests, usd = self._conn.execute(sql, (provider.name, provider.model)).fetchone()
        return requests, usd

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.cache.close()
        if self._lock is not None:
            self._lock.close()

    def _batches(self, where: str, *values: Any) -> list[Batch]:
        names = ", ".join(field.name for field in fields(Batch))
        rows = self._conn.execute(f"SELECT {names} FROM batch {where} ORDER BY id", values)
        return [self._checked(Batch(*row)) for row in rows]

    def _checked(self, batch: Batch) -> Batch:
        """The row itself. Raises InputError when another program wrote values into it that no batch has."""
        for field in fields(Batch):
            value = getattr(batch, field.name)
            if field.type in ("int", "float"):
                fits = isinstance(value, int | float) and 0 <= value < LARGEST
            else:
                fits = isinstance(value, str) or (value is None and field.type == "str | None")
            if not fits:
                shown = repr(value)[:40]
                fix = f"delete it with: DELETE FROM batch WHERE id = {batch.id!r}"
                raise InputError(str(self.cache.path), f"table batch, id {batch.id!r}: {field.name} is {shown}", fix)
        return batch


def _params(wire: Wire) -> str:
    """Return the parameters as JSON in their original order: a model generates a schema's properties in the given order."""
    return orjson.dumps({name: value for name, value in wire.items() if name not in ("messages", "system")}).decode()


def running_batches(db: Path, providers: Sequence[Provider]) -> list[str]:
    """Warnings for a run without batches: batches of these judges that are still running. Reads only."""
    if not db.is_file():
        return []
    with closing(connect(db, readonly=True)) as conn:
        if not conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'batch_request'").fetchone():
            return []
        rows = conn.execute("SELECT id, provider, model, requests FROM batch WHERE state IN ('sending', 'running')").fetchall()
    judges = {(provider.name, provider.model) for provider in providers}
    return [
        f"batch {id} ({name}/{model}) is still running with {requests:,} requests; this run pays again for those it sends,"
        f" too. Continue with --batch, or `critic-prm batch cancel {id}` and `fetch` first"
        for id, name, model, requests in rows
        if (name, model) in judges
    ]
