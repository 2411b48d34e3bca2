"""Damaged copies of the example cache, through the commands that read one: an exit code and one line, never another label."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest

from critic_prm import cli
from critic_prm.cli import main
from critic_prm.registry import resource

ROWS = 12
DOCUMENTED = {0, 1, 2, 3, 4}
JUDGEMENT = ("p_correct", "votes", "first_error", "status")

Damage = Callable[[Path, random.Random], None]


def flipped(bits: int, first: float = 0.0, last: float = 1.0) -> Damage:
    """Flip random bits between two places of the file, given as parts of its length."""

    def damage(path: Path, draw: random.Random) -> None:
        data = bytearray(path.read_bytes())
        for _ in range(bits):
            data[draw.randrange(int(first * len(data)), int(last * len(data)))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)

    return damage


def overwritten(length: int) -> Damage:
    """Overwrite a random stretch with random bytes, as a bad block does."""

    def damage(path: Path, draw: random.Random) -> None:
        data = bytearray(path.read_bytes())
        at = draw.randrange(len(data) - length)
        data[at : at + length] = draw.randbytes(length)
        path.write_bytes(data)

    return damage


def truncated(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def sql(*statements: str) -> Damage:
    def damage(path: Path, draw: random.Random) -> None:
        with closing(sqlite3.connect(path)) as conn, conn:
            conn.execute("PRAGMA writable_schema=ON")
            for statement in statements:
                conn.execute(statement)

    return damage


SOME = "WHERE rowid % 3 = 0"
DAMAGES: list[Damage] = [
    *(flipped(bits) for bits in (1, 1, 4, 4, 16, 16, 64, 64, 256, 1024) for _ in range(2)),
    *(flipped(bits, last=100 / 356352) for bits in (1, 2, 4, 8)),
    *(flipped(16, first=4096 / 356352, last=0.2) for _ in range(3)),
    *(overwritten(length) for length in (16, 256, 4096, 4096, 40_000)),
    *(truncated for _ in range(8)),
    *(
        sql(statement)
        for statement in (
            "DROP TABLE reply",
            "DROP TABLE prompt",
            "DROP TABLE instruction",
            "DROP TABLE attempt",
            "DROP TABLE _sqlite_migrations",
            "DELETE FROM _sqlite_migrations",
            "DROP INDEX reply_model",
            "ALTER TABLE reply RENAME COLUMN raw TO body",
            "ALTER TABLE reply DROP COLUMN finish",
            "ALTER TABLE reply DROP COLUMN digest",
            "ALTER TABLE prompt RENAME COLUMN messages TO message",
            "UPDATE sqlite_master SET rootpage = 3 WHERE name = 'reply'",
            "UPDATE sqlite_master SET sql = 'CREATE TABLE reply (x)' WHERE name = 'reply'",
            f"UPDATE reply SET raw = replace(raw, 'incorrect', 'correct') {SOME}",
            f"UPDATE reply SET raw = replace(raw, 'correct', 'incorrect') {SOME}",
            "UPDATE reply SET raw = (SELECT raw FROM reply AS other WHERE other.rowid = reply.rowid % 90 + 1)",
            f"UPDATE reply SET raw = substr(raw, 1, length(raw) / 2) {SOME}",
            f"UPDATE reply SET raw = substr(raw, 1, length(raw) / 2), digest = NULL {SOME}",
            f"UPDATE reply SET raw = '' {SOME}",
            f"UPDATE reply SET raw = 5 {SOME}",
            f"UPDATE reply SET raw = 5, digest = NULL {SOME}",
            f"UPDATE reply SET raw = x'fffe00', digest = NULL {SOME}",
            f"UPDATE reply SET raw = '[1]', digest = NULL {SOME}",
            f"UPDATE reply SET raw = '{{}}', digest = NULL {SOME}",
            f"UPDATE reply SET raw = '{{\"choices\": 5}}', digest = NULL {SOME}",
            f"UPDATE reply SET raw = zeroblob(5) {SOME}",
            f"UPDATE reply SET text = 7, created_at = 7, seconds = 'x', provider = x'ff' {SOME}",
            "UPDATE reply SET model = CAST(x'ff1b5b324a' AS TEXT), created_at = CAST(x'ff' AS TEXT)",
            "UPDATE reply SET input_tokens = 'many', output_tokens = -1, cached_tokens = 1e300",
            f"UPDATE reply SET sample = 'first', salt = 0 {SOME}",
            f"UPDATE reply SET prompt = 'gone' {SOME}",
            f"UPDATE reply SET params = '[' {SOME}",
            "UPDATE reply SET key = upper(key)",
            "UPDATE reply SET key = x'00ff'  WHERE rowid = 3",
            f"UPDATE prompt SET messages = '5' {SOME}",
            f"UPDATE prompt SET messages = CAST(x'5bff' AS TEXT) {SOME}",
            "UPDATE instruction SET text = 'null'",
            "UPDATE instruction SET text = x'ff'",
            "INSERT INTO attempt SELECT NULL, key, 5, 5, 'length', 'x', 5, 'x', 'x', 5, '[' FROM reply",
            "INSERT INTO attempt SELECT NULL, key, 5, 5, x'ff', 'x', 5, 'x', 'x', 5, CAST(x'ff' AS TEXT) FROM reply",
        )
    ),
]


@pytest.fixture(autouse=True)
def one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building the command tree takes longer than most of these commands."""
    monkeypatch.setattr(cli, "build", TREE)


TREE = cache(cli.build)


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and stderr; any other exception than SystemExit is a traceback, and fails the test."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    return int(stop.value.code or 0), capsys.readouterr().err


def labels(path: Path) -> dict[str, dict[str, Any]]:
    rows = [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
    return {row["id"]: {name: row[name] for name in JUDGEMENT} for row in rows}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the label file of the undamaged cache."""
    folder = tmp_path_factory.mktemp("honest")
    source, db = str(resource("examples/trajectories.jsonl")), str(resource("cache.db.example"))
    given = ["--judge", "recorded/example-judge", "--offline", "--db", db, "--limit", str(ROWS)]
    with pytest.raises(SystemExit) as stop:
        main(["label", source, "-o", str(folder / "labels.jsonl"), *given])
    assert not stop.value.code
    return folder / "labels.jsonl"


@pytest.mark.parametrize("case", range(len(DAMAGES)))
def test_a_damaged_cache_never_ends_in_a_traceback_or_another_label(
    case: int, honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 60 damaged caches, 13 ended in a traceback."""
    right = labels(honest)
    assert len(right) == ROWS
    db, out = tmp_path / "copy.db", tmp_path / "out.jsonl"
    shutil.copyfile(resource("cache.db.example"), db)
    DAMAGES[case](db, random.Random(case))
    source, judge = str(resource("examples/trajectories.jsonl")), ["--judge", "recorded/example-judge"]
    for command in (
        ["cache", "stats"],
        ["cache", "show", next(iter(orjson.loads(honest.read_bytes().splitlines()[0])["judgements"]))["keys"][0]],
        ["cache", "export", "-o", str(tmp_path / "replies.jsonl")],
        ["label", source, *judge, "--offline", "--limit", str(ROWS), "-o", str(out)],
        ["labels", "reread", str(honest), "-o", str(out)],
        ["label", source, *judge, "--limit", str(ROWS), "-o", str(out)],
    ):
        out.unlink(missing_ok=True)
        code, said = run([*command, "--db", str(db)], capsys)
        assert code in DOCUMENTED, (command, said)
        assert "Traceback" not in said
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        assert len(errors) == (1 if code in (1, 2, 4) else 0), (command, said)
        assert not errors or str(db) in errors[0] or "recorded replies answer only" in errors[0], errors
        for row, label in labels(out).items():
            assert label == right[row] or label["status"] == "provider_error", (command, row)


def test_the_fuzz_has_enough_cases() -> None:
    assert len(DAMAGES) >= 60
