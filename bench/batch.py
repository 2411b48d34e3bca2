"""Kill batch runs at every stage, and run one job through four backends: python bench/batch.py [--rows 5000] [--kills 40]

Runs `critic-prm label --batch --wait` against bench/batch_server.py, where batches expire half done, fail after acceptance
and finish in any order, and some creations are refused or get no reply. The process is killed (SIGKILL) at events that the
server sees (an upload, a creation that arrives, one that was accepted but not confirmed, a poll, results half sent), and at
random moments after them. Then it is started again, until it was killed `--kills` times. Checks that the labels equal those
of an undisturbed run, that no request was run in two batches, and that every batch of the server was imported.

Then one job starts online, continues by batch and ends through files, with a stop in between. Checks that there is one reply
per key and that the labels are the same.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson

from bench.batch_server import Fate, Office, serving
from bench.runs import FORKS, write_input

JUDGES = {"openai": ("openai/bench", "/v1"), "anthropic": ("anthropic/claude-bench", "")}
"""Provider -> (judge, what its base URL ends with)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--size", type=int, default=500, help="requests a batch")
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--job", type=int, default=2000, help="rows of the job that runs through four backends")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for provider in JUDGES:
        with tempfile.TemporaryDirectory() as folder:
            for line in complete(Path(folder), provider, given.rows):
                print(line)
        with tempfile.TemporaryDirectory() as folder:
            for line in killed(Path(folder), provider, given.kills, given.rows, given.size, given.seed):
                print(line)
    with tempfile.TemporaryDirectory() as folder:
        for line in four_backends(Path(folder), given.job):
            print(line)


class Run:
    """One command line in a process of its own, quick to start: the modules are there already."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.said = folder / "said.txt"
        self.process = FORKS.Process(target=_child, args=(words, str(self.said)))
        self.process.start()

    def finish(self, timeout: float = 600.0) -> int:
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.process.kill()
            raise TimeoutError(self.said.read_text())
        return self.process.exitcode

    def kill(self) -> None:
        if self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGKILL)


def _child(words: tuple[str, ...], said: str) -> None:
    with open(said, "a") as stream:
        os.dup2(stream.fileno(), 2)
        for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_", "CRITIC_PRM_"))]:
            del os.environ[name]
        os.environ |= {"OPENAI_API_KEY": "sk-test-key-000000", "ANTHROPIC_API_KEY": "sk-test-key-000000"}
        sys.stderr = stream
        from critic_prm.cli import main as command

        try:
            command(list(words))
        finally:
            used = resource.getrusage(resource.RUSAGE_SELF)
            stream.write(f"{used.ru_maxrss // 1024} MiB, {used.ru_utime + used.ru_stime:.1f} s of CPU\n")
            stream.flush()


def words(provider: str, office: Office, source: Path, out: Path, db: Path, *options: str) -> tuple[str, ...]:
    judge, path = JUDGES[provider]
    here = ("label", str(source), "-o", str(out), "--db", str(db), "--judge", judge, "--base-url", office.url + path)
    return (*here, *options)


def complete(folder: Path, provider: str, rows: int) -> Iterator[str]:
    """A job that nothing disturbs, for its time and memory."""
    source, out, db = write_input(folder / "in.jsonl", rows), folder / "out.jsonl", folder / "cache.db"
    with serving(Fate(1.0)) as office:
        began = time.monotonic()
        run = Run(folder, *words(provider, office, source, out, db, "--batch", "--wait"))
        code = run.finish()
        seconds = time.monotonic() - began
        assert code == 0, run.said.read_text()
        seen = office.seen()
    assert seen["ran"] + seen["online"] == rows == kept(db), seen
    used = run.said.read_text().splitlines()[-1]
    yield f"{provider}: {rows:,} requests in {seen['batches']} batches, {seconds:.1f} s of which 1.0 s at the provider; {used}"


def killed(folder: Path, provider: str, kills: int, rows: int, size: int, seed: int) -> Iterator[str]:
    """Kill, resume, compare, and begin again with an empty cache while kills are left. Yields what was found; raises
    AssertionError for anything lost, doubled or changed."""
    drawn, points, batches = random.Random(seed), Counter[str](), Counter[str]()
    source, whole = write_input(folder / "in.jsonl", rows), folder / "whole.jsonl"
    with serving(Fate(0.05)) as office:
        assert Run(folder, *words(provider, office, source, whole, folder / "whole.db", "--batch", "--wait")).finish() == 0
    jobs = 0
    fate = Fate(0.3, {"expired": 0.15, "token_limit_exceeded": 0.1 * (provider == "openai")}, turned_down=3, lost=2)
    with serving(fate) as office:
        office.late = 0.1
        while points.total() < kills:
            office.begin(replace(fate, seed=seed + jobs))
            out, db = folder / f"out-{jobs}.jsonl", folder / f"cut-{jobs}.db"
            line = words(provider, office, source, out, db, "--batch", "--wait", "--batch-size", str(size))
            points += kill(folder, office, line, kills - points.total(), drawn)
            check(office, out, db, whole, rows)
            batches += Counter(made.fate for made in office.batches)
            jobs += 1
    where = ", ".join(f"{count} at {name!r}" for name, count in sorted(points.items()))
    fates = ", ".join(f"{count} {name}" for name, count in sorted(batches.items()))
    yield f"{provider}: {points.total()} kills ({where})"
    yield f"  in {jobs} jobs of {rows:,} requests, {batches.total()} batches ({fates}):"
    yield "  labels byte for byte the same, no request run twice, no batch lost, every reply kept"


def kill(folder: Path, office: Office, line: tuple[str, ...], most: int, drawn: random.Random) -> Counter[str]:
    """Run `line` to its end, killed at most so often on the way: where."""
    points = Counter[str]()
    while True:
        run = Run(folder, *line)
        death = Death(run, drawn.randrange(1, 9), drawn.choice((0.0, 0.0, drawn.uniform(0, 0.3))))
        office.at = death if points.total() < most else (lambda what: None)
        code = run.finish()
        office.at = lambda what: None
        if code == 0:
            return points
        assert code == -signal.SIGKILL, run.said.read_text()
        points[death.point] += 1


def check(office: Office, out: Path, db: Path, whole: Path, rows: int) -> None:
    """What must hold after a job, whatever befell it."""
    runs = office.runs()
    conn = sqlite3.connect(db)
    known = {row[0] for row in conn.execute("SELECT remote FROM batch WHERE state = 'ended'")}
    conn.close()
    orphans = [made.id for made in office.batches if made.id not in known]
    assert out.read_bytes() == whole.read_bytes(), "the labels are not those of a run that was left alone"
    assert max(runs.values()) == 1, f"{sum(count > 1 for count in runs.values())} requests were run in two batches"
    assert not orphans, f"{len(orphans)} batches were made and not taken in"
    assert kept(db) == rows


class Death:
    """Kills a run at the `at`-th thing that the server sees of it, or `wait` seconds after that."""

    def __init__(self, run: Run, at: int, wait: float) -> None:
        self.run, self.left, self.wait, self.point = run, at, wait, ""

    def __call__(self, what: str) -> None:
        self.left -= 1
        if self.left != 0:
            return
        self.point = what
        if self.wait:
            threading.Timer(self.wait, self.run.kill).start()
        else:
            self.run.kill()


def four_backends(folder: Path, rows: int) -> Iterator[str]:
    """Online, stopped; by batch, stopped; the rest through a file: against the same in one go."""
    source = write_input(folder / "in.jsonl", rows)
    quarter = str(rows // 4)
    with serving(Fate(0.1)) as office:
        whole, db = folder / "whole.jsonl", folder / "roads.db"
        assert Run(folder, *words("openai", office, source, whole, folder / "whole.db")).finish() == 0
        office.begin(Fate(0.1))
        out = folder / "out.jsonl"
        plain = words("openai", office, source, out, db)
        stopped = Run(folder, *plain, "--max-requests", quarter)
        assert stopped.finish() == 5, stopped.said.read_text()
        online = kept(db)
        ordered = Run(folder, *plain, "--batch", "--batch-size", quarter, "--max-requests", str(rows // 2), "--wait")
        assert ordered.finish() == 5, ordered.said.read_text()
        batched = kept(db) - online
        judge, path = JUDGES["openai"]
        requests, results = folder / "requests.jsonl", folder / "results.jsonl"
        export = ("batch", "export", str(source), str(requests), "--judge", judge, "--base-url", office.url + path)
        assert Run(folder, *export, "--db", str(db)).finish() == 0
        answer(office, requests, results)
        for _ in range(2):  # twice is once
            assert Run(folder, "batch", "import", str(results), "--db", str(db)).finish() == 0
        last = Run(folder, *plain, "--offline")
        assert last.finish() == 0, last.said.read_text()
        ran = office.runs().total() + office.online.total()
    exported = kept(db) - online - batched
    assert kept(db) == rows == len(set(keys(db)))
    assert ran + exported == rows, (ran, exported)
    assert out.read_bytes() == whole.read_bytes(), "the labels are not those of one run online"
    roads = f"{online:,} online, {batched:,} by batch, {exported:,} through files"
    yield f"{rows:,} rows: {roads}: one reply a key, labels byte for byte those of one run online"


def answer(office: Office, requests: Path, results: Path) -> None:
    """What a colleague's machine does with a file of requests."""
    rows = [orjson.loads(line) for line in requests.read_bytes().split(b"\n") if line]
    random.Random(0).shuffle(rows)
    with results.open("wb") as stream:
        for row in rows:
            custom = row["custom_id"]
            if "params" in row:
                status, body = office.body(custom, row["params"], "/v1/messages")
                name, kind = ("message", "succeeded") if status == 200 else ("error", "errored")
                told = {"custom_id": custom, "result": {"type": kind, name: orjson.Fragment(body)}}
            else:
                status, body = office.body(custom, row["body"], "/v1/chat/completions")
                response = {"status_code": status, "request_id": "r", "body": orjson.Fragment(body)}
                told = {"id": "1", "custom_id": custom, "response": response, "error": None}
            stream.write(orjson.dumps(told) + b"\n")


def kept(db: Path) -> int:
    return len(keys(db))


def keys(db: Path) -> list[str]:
    """The keys of all replies in a cache."""
    conn = sqlite3.connect(db)
    try:
        return [row[0] for row in conn.execute("SELECT key FROM reply")]
    finally:
        conn.close()


if __name__ == "__main__":
    main()
