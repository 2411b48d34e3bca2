"""critic-prm batch: manage provider batches, and exchange requests and results as files."""

from __future__ import annotations

from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.cli.fields import Fields
from critic_prm.cli.options import BatchOptions, CacheOptions, InputOptions
from critic_prm.engine.options import JudgeOptions
from critic_prm.label.run import LabelOptions

app = typer.Typer()

Which = Annotated[int | None, typer.Argument(metavar="[BATCH]", help="Number of the batch in `batch list`; default: all.")]
One = Annotated[int, typer.Argument(metavar="BATCH", help="Number of the batch in `batch list`.")]


@app.command("list")
def list_(options: CacheOptions) -> None:
    """List the batches of a cache with their last known status.

    Reads the cache (--db) only; no request is sent. Prints one line per batch.

    Example: critic-prm batch list
    """
    from critic_prm.label.batch_files import batch_lines

    for line in batch_lines(options.cache):
        typer.echo(line)


@app.command()
def status(options: BatchOptions, which: Which = None) -> None:
    """Ask the providers for the status of running batches.

    Reads the cache (--db) and the provider's API. Prints one line per batch.

    Example: critic-prm batch status 3
    """
    from critic_prm.label.batch_files import statuses

    for line in signals.run(statuses(options, which)):
        typer.echo(line)


@app.command()
def cancel(which: One, options: BatchOptions) -> None:
    """Cancel a batch at its provider.

    Reads the cache (--db) and calls the provider's API. Requests that are already done are paid for; `batch fetch` or the next
    run imports their results.

    Example: critic-prm batch cancel 3
    """
    from critic_prm.label.batch_files import cancel_batch

    typer.echo(signals.run(cancel_batch(options, which)))


@app.command()
def fetch(options: BatchOptions, which: Which = None) -> None:
    """Import the results of finished batches into the cache.

    Reads results from the provider's API. Writes to the cache (--db). `label --batch` does this automatically.

    Example: critic-prm batch fetch
    """
    from critic_prm.label.batch_files import fetch_batches

    for line in signals.run(fetch_batches(options, which)):
        typer.echo(line)


@app.command()
def forget(which: One, options: CacheOptions) -> None:
    """Give up a batch or an exported file, so that its requests may be sent again.

    Writes to the cache (--db); the provider is not called. A batch that is still running is paid for anyway.

    Example: critic-prm batch forget 3
    """
    from critic_prm.label.batch_files import forget_batch

    typer.echo(forget_batch(options.cache, which))


@app.command()
def export(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Trajectories in any format that `convert` reads.")],
    out: Annotated[str, typer.Argument(metavar="REQUESTS.jsonl", help="File to write, one request per line; - is stdout.")],
    judge: Annotated[str, typer.Option(help="Judge that will answer: provider/MODEL.")],
    *,
    options: Annotated[LabelOptions, Fields(only=("samples",))],
    reading: InputOptions,
    judging: JudgeOptions,
) -> None:
    """Export the requests that `label` would send now.

    Reads trajectories (INPUT) and the cache (--db). Writes requests (REQUESTS.jsonl) for `vllm run-batch`, a provider's web
    page or another machine; nothing is sent.

    Example: critic-prm batch export in.jsonl requests.jsonl --judge vllm/MODEL
    """
    from dataclasses import replace

    from critic_prm.cli.running import Input, clients_of
    from critic_prm.critics.open import open_critic
    from critic_prm.engine.batch.ledger import Ledger
    from critic_prm.label.batch_files import Export, one_client
    from critic_prm.label.batch_files import export as export_requests

    judging = replace(judging, offline=False)  # nothing is sent in any case, but the ledger is written
    critic = open_critic(judge, judging)
    client = one_client(clients_of(critic))
    rows = Input(source, reading)
    rows.check_steps()

    async def run() -> Export:
        try:
            with Ledger(judging.cache).alone() as ledger:
                return await export_requests(ledger, critic, client, rows, options.samples, out)
        finally:
            await critic.close()

    told = signals.run(run())
    typer.echo(told.summary(out), err=True)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="RESULTS.jsonl", help="File of results, which are matched by custom_id.")],
    options: Annotated[JudgeOptions, Fields(only=("db", "trust"))],
    requests: Annotated[
        str | None, typer.Option(metavar="REQUESTS.jsonl", help="Requests of these results, if another cache exported them.")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="With --requests: the judge that answered, provider/MODEL.")] = None,
    salt: Annotated[str, typer.Option(help="With --requests: the --salt used for the export.")] = "",
) -> None:
    """Import results from a file into the cache.

    Reads results (RESULTS.jsonl). Writes to the cache (--db): complete replies serve later requests, failures are kept as
    attempts.

    Example: critic-prm batch import results.jsonl
    """
    from critic_prm.cli.running import SkippedRows
    from critic_prm.label.batch_files import import_file

    skipped = SkippedRows()
    typer.echo(import_file(options, source, skipped, requests, judge, salt), err=True)
    raise typer.Exit(3 if skipped.count else 0)
