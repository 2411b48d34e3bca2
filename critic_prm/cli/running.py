"""Run a command's work with progress on stderr, graceful interrupts, a summary and run.json."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import orjson

from critic_prm import signals
from critic_prm.cli.options import ALL_ROWS, InputOptions
from critic_prm.cli.outputs import this_run
from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic, CriticStats, Report
from critic_prm.data.formats.common import Report as Reading
from critic_prm.data.formats.convert import read_trajectories
from critic_prm.data.records.reading import OnError, RecordWriter, write_whole
from critic_prm.data.segment.rows import FEW, StepCounts
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.concurrency import reduced_gc
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import CriticPrmError, InputError, Interrupted, Pending, UsageError
from critic_prm.label.progress import RunStats, describe, watch
from critic_prm.label.run import ONE_SAMPLE, LabelOptions, Samples, SamplingStats, label_into
from critic_prm.terminal import note, say

if TYPE_CHECKING:
    from critic_prm.engine.client import Client

Result = TypeVar("Result")

SPARE_FILES = 64
"""Number of open files that a run needs besides its connections."""


class SkippedRows:
    """Counts the invalid rows that a reader skips; it is the reader's `complain`. Every distinct error is printed once."""

    def __init__(self) -> None:
        self.count, self._printed = 0, set[str]()

    def __call__(self, error: object) -> None:
        self.count += 1
        if (text := str(error)) not in self._printed:
            self._printed.add(text)
            say(f"skipped: {text}")


READ_AHEAD = 64
"""Number of solutions that are read to see whether all of them have one step."""


class Input:
    """The trajectories of a command's INPUT; each iteration reads the file from the start.

    With `labelling`, the rows of a training set are refused.
    """

    def __init__(self, source: str, options: InputOptions = ALL_ROWS, labelling: bool = False) -> None:
        self.source, self.options, self.skipped = source, options, SkippedRows()
        self._noted, self._counted, self._labelling = False, False, labelling
        self._begun: Iterator[Trajectory] | None = None
        self._marked: list[Trajectory] | None = None

    def __iter__(self) -> Iterator[Trajectory]:
        rows, self._begun = self._begun or self._rows(), None
        return rows

    def mark_steps(self, judge: str, judging: JudgeOptions) -> None:
        """Read all rows, let a judge mark their steps (--segment llm), and keep them."""
        from critic_prm.label.segmenting import mark_steps

        counts, rows = StepCounts(), self._rows(unmarked=True)
        self._counted = True
        self._marked = signals.run(mark_steps(rows, judge, judging, counts))
        report_steps(counts)

    def check_steps(self) -> None:
        """Raise UsageError if all solutions (not just one or two), or the first `READ_AHEAD` of them, have one step. The rows
        read for this are kept for the next iteration, so that this works on stdin; an error in them is raised there, too."""
        if self.options.segment == "none":
            return
        rows, head = self._rows(), list[Trajectory]()

        def rest(error: CriticPrmError | None) -> Iterator[Trajectory]:
            yield from head
            if error is not None:
                raise error
            yield from rows

        failure, self._counted = None, True  # what is refused is not reported as well
        try:
            for row in rows:
                head.append(row)
                if len(row.steps) > 1 or len(head) == READ_AHEAD:
                    break
        except CriticPrmError as error:
            failure = error
        self._begun, self._counted = rest(failure), False
        if failure is None and len(head) >= FEW and all(len(row.steps) == 1 for row in head):
            these = f"the first {len(head)} solutions have" if len(head) == READ_AHEAD else "every solution has"
            raise UsageError(
                f"{self.source}: {these} one step, so a judge would be paid for verdicts on whole solutions; say where"
                " steps begin, with --segment lines, paragraphs, numbered, sentences, thoughts or llm; accept it with"
                " --segment none"
            )

    def _rows(self, unmarked: bool = False) -> Iterator[Trajectory]:
        if self._marked is not None:
            yield from self._marked
            return
        if self.options.segment == "llm" and not unmarked:
            raise UsageError(
                "--segment llm asks a judge, and this command cannot; write a file with the steps first:"
                f" critic-prm convert {self.source} --segment llm --segment-judge openai/MODEL -o FILE"
            )
        self.skipped.count = 0
        on_error: OnError = "skip" if self.options.skip_bad else "stop"
        options, report = self.options.conversion(), Reading()
        rows = read_trajectories(self.source, self.options.format, options, on_error, self.skipped, report)
        for row in islice(rows, self.options.limit):
            while report.notes and not self._noted:
                say(f"{self.source}: {report.notes.pop(0)}")
            self._noted = True
            if self._labelling and report.source == "trl" and {"votes", "weight"} <= row.extra.keys() | row.meta.keys():
                problem = "these are rows of a training set, whose steps have a judge's labels already"
                again = f"critic-prm convert {self.source} -o SOLUTIONS"
                fix = f"run: critic-prm distill {Path(self.source).parent} -o VERIFIER; to label them again: {again}"
                raise InputError(self.source, problem, fix)
            yield row
        if not self._counted:
            self._counted = True
            report_steps(report.steps)

    def estimated_rows(self) -> int | None:
        """The number of rows by counting newlines; the limit if the file cannot be counted."""
        path, limit = Path(self.source), self.options.limit
        if not self.source.endswith((".jsonl", ".ndjson")) or not path.is_file():
            return limit
        with path.open("rb") as stream:
            lines = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
        return min(lines, limit) if limit else lines


def report_steps(counts: StepCounts) -> None:
    """Say how solutions were split into steps; with --quiet only what is doubtful about it."""
    for line in counts.lines():
        (say if line.startswith("warning") else note)(line)


def open_judges(
    names: Sequence[str], judging: JudgeOptions, consensus: str, samples: Samples
) -> tuple[Critic, list[CriticStats]]:
    """Open one judge as it is, or several as a consensus, with the statistics to collect."""
    if len(names) == 1:
        critic = open_critic(names[0], judging)
    else:
        from critic_prm.critics.combined import connect_all

        critic = connect_all(names, judging, consensus)
    return critic, [*([] if samples.rule == "all" else [SamplingStats(samples)]), *critic.stats]


def run_labelling(
    rows: Input,
    critic: Critic,
    out: str,
    options: LabelOptions = ONE_SAMPLE,
    *,
    workers: int = 64,
    stats: Sequence[CriticStats] = (),
) -> int:
    """Label `rows`, write the label file `out`, and report on stderr, including the statistics in `stats`.

    Returns the exit code: 0, or 3 if rows failed or were skipped. Raises the error that stopped the run; by then, replies
    received are in the cache and finished labels are in `out`.
    """
    tally = RunStats(total=rows.estimated_rows())
    client: Client | None = critic.client

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        crew = workers if client is None else lambda: max(workers, client.gate.most)
        await label_into(sink, rows, critic, tally, options, workers=crew, stop=stop, stats=stats)
        tally.skipped = rows.skipped.count

    return run_watched(body, out, tally, client, critic.close, stats, clients_of(critic))


def run_batched(
    rows: Input,
    critic: Critic,
    out: str,
    options: LabelOptions,
    judging: JudgeOptions,
    *,
    wait: bool,
    batch_size: int | None = None,
    stats: Sequence[CriticStats] = (),
) -> int:
    """Submit missing requests as batches, and label once all results have arrived.

    Returns the exit code: 0, or 3 if rows failed or were skipped; 5 if results are pending and `wait` is not set. Raises the
    error that stopped the run.
    """
    from critic_prm.engine.batch.ledger import Ledger
    from critic_prm.label.batch_job import Job

    tally, clients = RunStats(total=rows.options.limit), clients_of(critic)
    for refused, problem in (
        (not clients, "--batch needs a judge that is asked over a network, such as --judge openai/MODEL"),
        (judging.offline, "--batch sends requests, and --offline forbids that; leave out --batch to use the cache only"),
        (judging.cluster is not None, "--batch and --engine ray exclude each other; a provider's batches need no workers"),
        (rows.source == "-", "--batch reads the input several times, and stdin can be read once; write it to a file"),
    ):
        if refused:
            raise UsageError(problem)
    for client in clients:
        client.provider.batches()  # fails early if the provider has no batch API
    ledger = Ledger(judging.cache).alone()

    def show(text: str) -> None:
        if text and not tally.waiting:
            say(text)
        tally.waiting = text

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        job = Job(critic, clients, ledger, options.samples, say, show, stop, batch_size)
        try:
            await job.run(lambda: rows, wait=wait)
            for account in stats:
                account.restart()
            await label_into(sink, rows, critic, tally, options, stop=stop, stats=stats)
            tally.skipped = rows.skipped.count
            job.settle()
        finally:
            await job.close()

    try:
        return run_watched(body, out, tally, clients[0] if len(clients) == 1 else None, critic.close, stats, clients)
    except Pending as pending:
        say(str(pending))
        return pending.exit_code


def run_watched(
    body: Callable[[RecordWriter, asyncio.Event], Awaitable[None]],
    out: str,
    tally: RunStats,
    client: Client | None,
    close: Callable[[], Awaitable[None]],
    parts: Sequence[Report] = (),
    clients: Sequence[Client] | None = None,
) -> int:
    """Run `body` with progress, signal handling, a summary and run.json.

    `body` writes rows to the sink and takes no more input once the event is set. Progress shows `client`; signals change the
    connection limit of all `clients`. Returns the exit code: 0, or 3 if rows failed. Raises the error that stopped the run.
    """
    asking = clients if clients is not None else [client] if client is not None else []
    tally.clients = asking
    stop = asyncio.Event()

    def interrupt() -> None:
        stop.set()
        tally.stopping = True
        say("stopping: what is out is brought in and kept; press Ctrl-C again to stop at once")

    async def run() -> int:
        _raise_file_limit(asking)
        _listen(asking)
        outcome: BaseException | None = None
        try:
            async with watched(tally, client, close):
                with RecordWriter(out) as sink:
                    tally.output = sink
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
            _finish(tally, client, out, parts, outcome)
        return 3 if tally.failed else 0

    with reduced_gc():
        return signals.run(run(), interrupt)


@asynccontextmanager
async def watched(tally: RunStats, client: Client | None, close: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Show progress on stderr within this context, and call `close` at its end."""
    watching = asyncio.create_task(watch(tally, client))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await close()


def run_with_progress(critic: Critic, work: Callable[[RunStats], Awaitable[Result]]) -> Result:
    """Run the coroutine of a command whose only critic is this one, with progress on stderr; then close the critic."""
    tally = RunStats(clients=clients_of(critic))

    async def run() -> Result:
        async with watched(tally, critic.client, critic.close):
            return await work(tally)

    try:
        return signals.run(run())
    finally:
        _say_reasons(tally, "-")


def _say_reasons(tally: RunStats, out: str) -> None:
    for line in tally.reasons.lines(out) if tally.reasons else ():
        say(line)


def _finish(tally: RunStats, client: Client | None, out: str, parts: Sequence[Report], error: BaseException | None) -> None:
    """Print the summary of a run, and write its report to `OUT.run.json`."""
    asked = client is not None and client.counts["abandoned"]
    if tally.rows or error is None or asked:  # nothing to report if the run failed before its first row
        say(describe(tally, client, final=True))
        _say_reasons(tally, out)
    if tally.how.keys() - {"plain", "schema"}:
        say("how verdicts were got: " + ", ".join(f"{word} {n:,}" for word, n in tally.how.most_common()))
    for part in parts:
        for line in part.lines():
            say(line)
    if out == "-" or not Path(out).parent.is_dir():
        return
    code = error.exit_code if isinstance(error, CriticPrmError) else 130 if error else 3 if tally.failed else 0
    report = {"run": this_run(), "exit_code": code, "stopped_by": str(error) if error else None, **tally.report(client)}
    report |= {part.name: part.report() for part in parts}
    try:
        write_whole(f"{out}.run.json", orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    except (OSError, CriticPrmError) as problem:
        say(f"run.json could not be written: {problem}")


def clients_of(critic: Critic) -> list[Client]:
    """Return the clients of a critic and of the judges inside it."""
    inner = [client for _, judge in critic.judges for client in clients_of(judge)]
    return inner if critic.client is None else [critic.client, *inner]


def _listen(clients: Sequence[Client]) -> None:
    """Double the connection limit on SIGUSR1 and halve it on SIGUSR2."""
    loop = asyncio.get_running_loop()

    def resize(factor: float) -> None:
        for client in clients:
            client.gate.resize(max(1, round(client.gate.most * factor)))
            note(f"{client.provider.model}: at most {client.gate.most} connections from now on")

    loop.add_signal_handler(signal.SIGUSR1, resize, 2.0)
    loop.add_signal_handler(signal.SIGUSR2, resize, 0.5)


def _raise_file_limit(clients: Sequence[Client]) -> None:
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
        note(f"this system allows {hard} open files: at most {granted - SPARE_FILES} connections (see `ulimit -Hn`)")
