"""Run a command's work with progress on stderr, graceful interrupts, a summary and run.json."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import orjson

from critic_prm import signals
from critic_prm.cli.outputs import this_run
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Label, Prior
from critic_prm.data.records.reading import RecordWriter, write_whole
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client
from critic_prm.engine.garbage import reduced_gc
from critic_prm.errors import CriticPrmError, Interrupted
from critic_prm.label.progress import describe, watch
from critic_prm.label.run import RunStats, label_into
from critic_prm.label.sampling import Samples

SPARE_FILES = 64
"""Number of open files that a run needs besides its connections."""


def run_labelling(
    trajectories: Iterable[Trajectory],
    critic: Critic,
    out: str,
    *,
    source: str = "",
    samples: int | Samples = 1,
    prior: Prior = "none",
    workers: int = 64,
    limit: int | None = None,
    accounts: Sequence[CriticStats] = (),
    skipped: Sequence[object] = (),
) -> int:
    """Label `trajectories`, write the label file `out`, and report on stderr, including the statistics in `accounts`.

    Returns the exit code: 0, or 3 if rows failed; rows that the reader put into `skipped` count as failed. Raises the error
    that stopped the run; by then, replies received are in the cache and finished labels are in `out`.
    """
    tally = RunStats(total=_count(source, limit))
    client: Client | None = critic.client

    def count(_: Trajectory, labelled: Label) -> None:
        for account in accounts:
            account.add(labelled)

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        rows = islice(trajectories, limit)
        crew = workers if client is None else lambda: max(workers, client.gate.most)
        await label_into(sink, rows, critic, tally, samples=samples, prior=prior, workers=crew, stop=stop, each=count)
        tally.skipped = len(skipped)

    return run_watched(body, out, tally, client, critic.close, accounts, clients_of(critic))


def run_watched(
    body: Callable[[RecordWriter, asyncio.Event], Awaitable[None]],
    out: str,
    tally: RunStats,
    client: Client | None,
    close: Callable[[], Awaitable[None]],
    accounts: Sequence[Closing] = (),
    clients: Sequence[Client] | None = None,
) -> int:
    """Run `body` with progress, signal handling, a summary and run.json.

    `body` writes rows to the sink and takes no more input once the event is set. Progress shows `client`; signals change the
    connection limit of all `clients`. Returns the exit code: 0, or 3 if rows failed. Raises the error that stopped the run.
    """
    asking = clients if clients is not None else [client] if client is not None else []
    say = Reporter(tally, client, out, accounts)

    stop = asyncio.Event()

    def interrupt() -> None:
        stop.set()
        tally.stopping = True
        say.line("stopping: what is out is brought in and kept; press Ctrl-C again to stop at once")

    async def run() -> int:
        _raise_file_limit(asking, say.line)
        _listen(asking, say.line)
        watching = asyncio.create_task(watch(tally, client))
        outcome: BaseException | None = None
        try:
            with RecordWriter(out) as sink:
                await body(sink, stop)
            if stop.is_set():
                raise Interrupted
        except asyncio.CancelledError:
            outcome = Interrupted()
            raise
        except BaseException as error:
            outcome = error
            raise
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await close()
            say.finish(outcome)
        return 3 if tally.failed else 0

    with reduced_gc():
        return signals.run(run(), interrupt)


def told(skipped: list[object]) -> Callable[[object], None]:
    """Return the reader's callback for invalid rows under --skip-bad: it prints the error and appends it to `skipped`."""

    def complain(error: object) -> None:
        skipped.append(error)
        print(f"skipped: {error}", file=sys.stderr, flush=True)

    return complain


class Closing(Protocol):
    """Statistics of a run: `lines` are printed at its end, `report` is stored under `name` in run.json."""

    @property
    def name(self) -> str: ...

    def lines(self) -> list[str]: ...

    def report(self) -> Any: ...


class Reporter:
    """Print messages to stderr, and write the run report to `OUT.run.json` at the end."""

    def __init__(self, tally: RunStats, client: Client | None, out: str, accounts: Sequence[Closing] = ()) -> None:
        self.tally, self.client, self.out, self.accounts = tally, client, out, accounts

    def line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def finish(self, error: BaseException | None) -> None:
        asked = self.client is not None and self.client.counts["abandoned"]
        if self.tally.rows or error is None or asked:  # nothing to report if the run failed before its first row
            self.line(describe(self.tally, self.client, final=True))
        if self.tally.how.keys() - {"plain", "schema"}:
            self.line("how verdicts were got: " + ", ".join(f"{word} {n:,}" for word, n in self.tally.how.most_common()))
        for account in self.accounts:
            for line in account.lines():
                self.line(line)
        if self.out == "-" or not Path(self.out).parent.is_dir():
            return
        code = error.exit_code if isinstance(error, CriticPrmError) else 130 if error else 3 if self.tally.failed else 0
        report = {
            "run": this_run(),
            "exit_code": code,
            "stopped_by": str(error) if error else None,
            **self.tally.report(self.client),
        }
        report |= {account.name: account.report() for account in self.accounts}
        try:
            write_whole(f"{self.out}.run.json", orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        except (OSError, CriticPrmError) as problem:
            self.line(f"run.json could not be written: {problem}")


def clients_of(critic: Critic) -> list[Client]:
    """Return the clients of a critic and of the judges inside it."""
    inner = [client for _, judge in critic.judges for client in clients_of(judge)]
    return inner if critic.client is None else [critic.client, *inner]


def _listen(clients: Sequence[Client], say: Callable[[str], None]) -> None:
    """Double the connection limit on SIGUSR1 and halve it on SIGUSR2."""
    loop = asyncio.get_running_loop()

    def resize(factor: float) -> None:
        for client in clients:
            client.gate.resize(max(1, round(client.gate.most * factor)))
            say(f"{client.provider.model}: at most {client.gate.most} connections from now on")

    loop.add_signal_handler(signal.SIGUSR1, resize, 2.0)
    loop.add_signal_handler(signal.SIGUSR2, resize, 0.5)


def _raise_file_limit(clients: Sequence[Client], say: Callable[[str], None]) -> None:
    """Raise the soft limit of open files (usually 1,024), since each connection is one; else lower the connection limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sum(client.gate.most for client in clients) + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    if granted < wanted:
        for client in clients:
            client.gate.resize(client.gate.most * (granted - SPARE_FILES) // (wanted - SPARE_FILES))
        say(f"this system allows {hard} open files: at most {granted - SPARE_FILES} connections (see `ulimit -Hn`)")


def _count(source: str, limit: int | None) -> int | None:
    """Estimate the number of input rows by counting newlines; `limit` if the file cannot be counted."""
    path = Path(source)
    if not source.endswith((".jsonl", ".ndjson")) or not path.is_file():
        return limit
    with path.open("rb") as stream:
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
    return min(lines, limit) if limit else lines
