"""Kill a labelling run at random moments and check that nothing is lost: python bench/crash.py [--kills 50] [--rows 2000]

Kills `critic-prm label` (SIGKILL) at random moments and starts it again, `--kills` times, then lets it finish. Checks that
the output equals that of an undisturbed run, that no reply in the cache at a kill was requested again, and that the server
got no more repeated requests than were in flight at the kills. Then truncates the write-ahead log of a killed run at random
places, as a power failure may, and checks that the cache opens and contains a prefix of what was written.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.runs import Forked, Server, command, seen, write_input
from critic_prm.engine.cache import Cache

CONNECTIONS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in crash(Path(folder), given.kills, given.rows, given.seed):
            print(line)


def crash(folder: Path, kills: int, rows: int, seed: int) -> Iterator[str]:
    """Kill, resume, compare. Yields what was found; raises AssertionError for anything lost, doubled or changed."""
    drawn = random.Random(seed)
    source = write_input(folder / "in.jsonl", rows)
    latency = 0.05
    with Server("--latency", str(latency)) as server:
        whole = folder / "whole.jsonl"
        finish(command(source, whole, folder / "whole.db", server.url, "--max-connections", "64"), folder)
    with Server("--latency", str(latency)) as server:
        out, db = folder / "out.jsonl", folder / "cut.db"
        line = command(source, out, db, server.url, "--max-connections", str(CONNECTIONS))
        stretch = rows / (CONNECTIONS / latency) / max(kills, 1) * 1.2
        done: dict[str, int] = {}
        killed = 0
        while killed < kills:
            before = seen(server.url)["requests"]
            process = Forked(line, folder / "said.txt")
            while seen(server.url)["requests"] == before and process.poll() is None:
                time.sleep(0.005)
            time.sleep(drawn.uniform(0, stretch))
            if process.poll() is not None:
                break  # it was done before we were
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
            time.sleep(latency + 0.02)  # what was out arrives at the server, and is not asked for again by a dead client
            bodies = seen(server.url, "bodies")
            keep(db, folder / "killed.db")
            done |= {key: bodies.get(key, 0) for key in keys(folder / "killed.db") if key not in done}
            if killed == kills // 2:
                keep(db, folder / "half.db")
        finish(line, folder)
        bodies = seen(server.url, "bodies")
        stats = seen(server.url)
    assert out.read_bytes() == whole.read_bytes(), "the output is not that of a run that was left alone"
    again = [key for key, count in done.items() if bodies.get(key, 0) != count]
    assert not again, f"{len(again)} replies that were kept were asked for again"
    assert stats["repeated"] <= killed * CONNECTIONS, stats
    yield f"{killed} kills in {rows:,} rows: output byte for byte the same, 0 kept replies asked for again"
    yield f"asked twice: {stats['repeated'] / max(killed, 1):.1f} requests a kill, with {CONNECTIONS} in flight"
    yield cut_log(folder, drawn, cuts=kills)


def cut_log(folder: Path, drawn: random.Random, cuts: int) -> str:
    """Cut the log of a killed run at random places: what is left must be a beginning of what was written."""
    half = folder / "half.db"
    log = Path(f"{half}-wal").read_bytes()
    keep(half, folder / "cut-log.db")
    order, most, least = keys(folder / "cut-log.db"), 0, len(log)
    for _ in range(cuts):
        database = folder / "cut-log.db"
        keep(half, database)
        Path(f"{database}-wal").write_bytes(log[: drawn.randrange(len(log) + 1)])
        Cache(database).close()
        found = keys(database)
        assert found == order[: len(found)], "what is left is no beginning of what was written"
        assert sqlite3.connect(database).execute("PRAGMA integrity_check").fetchone() == ("ok",)
        least, most = min(least, len(found)), max(most, len(found))
    return f"log of {len(log):,} bytes cut at {cuts} places: each time the first {least} to {most} of {len(order)} rows held"


def keep(db: Path, target: Path) -> None:
    """A copy of a killed run's files as they lie there: the database, and the log that was not moved into it yet."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
        if suffix != "-shm" and Path(f"{db}{suffix}").exists():
            shutil.copy(f"{db}{suffix}", f"{target}{suffix}")


def keys(db: Path) -> list[str]:
    """The keys of all replies in a cache, in the order in which they were written."""
    if not db.exists():
        return []
    conn = sqlite3.connect(db)
    try:
        return [row[0] for row in conn.execute("SELECT key FROM reply ORDER BY rowid")]
    except sqlite3.OperationalError:  # killed before the tables were made
        return []
    finally:
        conn.close()


def finish(line: list[str], folder: Path) -> None:
    run = Forked(line, folder / "said.txt")
    assert run.wait() == 0, run.said.read_text()


if __name__ == "__main__":
    main()
