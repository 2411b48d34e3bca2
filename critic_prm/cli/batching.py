"""Run labelling through provider batches: submit requests, report what is pending, then label."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from critic_prm.cli.running import clients_of, run_watched
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Label, Prior
from critic_prm.data.records.reading import RecordWriter
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.batch.ledger import Ledger
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import Pending, UsageError
from critic_prm.label.batch_admin import away
from critic_prm.label.batch_job import Job
from critic_prm.label.run import RunStats, label_into
from critic_prm.label.sampling import Samples
from critic_prm.providers.batches import batch_api


def run_batched(
    source: str,
    read: Callable[[], Iterable[Trajectory]],
    critic: Critic,
    out: str,
    judging: JudgeOptions,
    *,
    samples: Samples,
    wait: bool,
    prior: Prior = "none",
    size: int | None = None,
    limit: int | None = None,
    accounts: Sequence[CriticStats] = (),
    skipped: list[object],
) -> int:
    """Submit missing requests as batches, and label once all results have arrived.

    `read` opens the input again for each round and puts the rows that it skips into `skipped`. Returns the exit code: 0, or 3
    if rows failed; 5 if results are pending and `wait` is not set. Raises the error that stopped the run.
    """
    tally, clients = RunStats(total=limit), clients_of(critic)
    if not clients:
        raise UsageError("--batch needs a judge that is asked over a network, such as --judge openai/MODEL")
    if judging.offline:
        raise UsageError("--batch sends requests, and --offline forbids it; without --batch, the cache alone is asked")
    if judging.cluster is not None:
        raise UsageError("--batch and --engine ray are two roads for the same requests; a provider's batches need no cluster")
    if source == "-":
        raise UsageError("--batch reads the input once for each round, and stdin can be read once; put it into a file")
    for client in clients:
        batch_api(client.provider)  # fails early if the provider has no batch API
    ledger = Ledger(judging.db).alone()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def show(text: str) -> None:
        if text and not tally.waiting:
            say(text)
        tally.waiting = text

    def count(_: Trajectory, labelled: Label) -> None:
        for account in accounts:
            account.add(labelled)

    def again() -> Iterable[Trajectory]:
        skipped.clear()
        return read()

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        job = Job(critic, clients, ledger, samples, say, show, stop, size)
        try:
            await job.run(lambda: islice(again(), limit), wait=wait)
            for account in accounts:
                account.restart()
            rows = islice(again(), limit)
            await label_into(sink, rows, critic, tally, samples=samples, prior=prior, stop=stop, each=count)
            tally.skipped = len(skipped)
            job.settle()
        finally:
            await job.close()

    shown = clients[0] if len(clients) == 1 else None
    try:
        return run_watched(body, out, tally, shown, critic.close, accounts, clients)
    except Pending as news:
        say(str(news))
        return news.exit_code


def warn_of_batches(critic: Critic, judging: JudgeOptions) -> None:
    """Before an online run, warn about pending batches that may bring the same replies."""
    if not judging.offline:
        for line in away(judging.db, [client.provider for client in clients_of(critic)]):
            print(line, file=sys.stderr, flush=True)
