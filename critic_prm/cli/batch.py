"""critic-prm batch: look after the batches of a cache, and carry requests and results in files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from critic_prm import signals
from critic_prm.cli.options import Trust, with_judging
from critic_prm.engine.options import JudgeOptions

app = typer.Typer(no_args_is_help=True, help="Batches: list, status, cancel, fetch, forget; export requests, import results.")

Db = Annotated[Path, typer.Option(help="The cache.")]
Which = Annotated[int | None, typer.Argument(metavar="[BATCH]", help="Its number in `batch list`; all without it.")]
One = Annotated[int, typer.Argument(metavar="BATCH", help="Its number in `batch list`.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="The server, where it is not the provider's own.")]
DB = Path("critic-prm.db")


@app.command("list")
def list_(db: Db = DB) -> None:
    """The batches that were ordered with this cache, as they were last heard of; nothing is asked."""
    from critic_prm.label.batch_admin import batch_lines

    for line in batch_lines(db):
        typer.echo(line)


@app.command()
def status(which: Which = None, db: Db = DB, base_url: BaseUrl = None, trust: Trust = None) -> None:
    """Ask the providers how far the batches are that run."""
    from critic_prm.label.batch_admin import statuses

    for line in signals.run(statuses(db, which, base_url, trust or ())):
        typer.echo(line)


@app.command()
def cancel(which: One, db: Db = DB, base_url: BaseUrl = None, trust: Trust = None) -> None:
    """End a batch at its provider; what is done already is paid for, and comes in with `fetch` or the next run."""
    from critic_prm.label.batch_admin import cancel_batch

    typer.echo(signals.run(cancel_batch(db, which, base_url, trust or ())))


@app.command()
def fetch(which: Which = None, db: Db = DB, base_url: BaseUrl = None, trust: Trust = None) -> None:
    """Take the results of batches that have ended into the cache. `label --batch` does so by itself."""
    from critic_prm.label.batch_admin import fetch_batches

    for line in signals.run(fetch_batches(db, which, base_url, trust or ())):
        typer.echo(line)


@app.command()
def forget(which: One, db: Db = DB) -> None:
    """Give a batch or an exported file up: its requests may be asked again. A batch that runs is still paid for."""
    from critic_prm.label.batch_admin import forget_batch

    typer.echo(forget_batch(db, which))


@app.command()
@with_judging
def export(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="Trajectories in any format `convert` reads.")],
    out: Annotated[str, typer.Argument(metavar="REQUESTS.jsonl", help="One request a line; - is stdout.")],
    judge: Annotated[str, typer.Option(help="provider/MODEL that is to answer.")],
    samples: Annotated[str, typer.Option(help="Judgements a trajectory, as for `label`.")] = "1",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many trajectories.")] = None,
    format: Annotated[str, typer.Option("--from", help="The input's format.")] = "auto",
    *,
    judging: JudgeOptions,
) -> None:
    """Write the requests that labelling would send now, for `vllm run-batch`, a provider's web page or another machine."""
    from dataclasses import replace
    from itertools import islice

    from critic_prm.cli.running import clients_of
    from critic_prm.critics.open import open_critic
    from critic_prm.data.formats.convert import read_trajectories
    from critic_prm.engine.batch.ledger import Ledger
    from critic_prm.label.request_files import Exported, one_client
    from critic_prm.label.request_files import export as export_requests
    from critic_prm.label.sampling import parse_samples

    judging = replace(judging, offline=False)  # nothing is sent in any case, and the book of requests is written
    policy, rows = parse_samples(samples), islice(read_trajectories(source, format), limit)
    critic = open_critic(judge, judging)
    client = one_client(clients_of(critic))

    async def run() -> Exported:
        try:
            with Ledger(judging.db).alone() as ledger:
                return await export_requests(ledger, critic, client, rows, policy, out)
        finally:
            await critic.close()

    told = signals.run(run())
    typer.echo(told.summary(out), err=True)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(metavar="RESULTS.jsonl", help="Results, matched by custom_id.")],
    db: Db = DB,
    requests: Annotated[
        str | None, typer.Option(metavar="REQUESTS.jsonl", help="What they answer, where another cache exported it.")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="provider/MODEL that answered, with --requests.")] = None,
    salt: Annotated[str, typer.Option(help="The --salt that those requests were exported with.")] = "",
    trust: Trust = None,
) -> None:
    """Take results from a file into the cache: whole replies serve from now on, failures are kept as attempts."""
    from critic_prm.label.batch_admin import import_file

    skipped: list[object] = []

    def complain(error: object) -> None:
        skipped.append(error)
        typer.echo(f"skipped: {error}", err=True)

    typer.echo(import_file(db, source, complain, requests, judge, salt, trust or ()), err=True)
    raise typer.Exit(3 if skipped else 0)
