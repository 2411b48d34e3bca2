"""List, poll, cancel, fetch, forget and import the batches recorded in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from critic_prm.data.trust import Origin
from critic_prm.engine.batch.ledger import Batch, Ledger
from critic_prm.engine.batch.manager import BatchManager
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.label.request_files import import_results, register
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.models import abilities
from critic_prm.providers.provider import Provider, Usage, official_addresses, open_provider


def batch_lines(db: Path) -> Iterator[str]:
    """One line per batch: number, judge, requests, state, outcomes, USD, creation time, and its id or file."""
    with _open(db) as ledger:
        for batch in ledger.batches():
            came = ", ".join(f"{name or 'open'} {count:,}" for name, count in sorted(ledger.counts(batch.id).items()))
            word = batch.failure or batch.status
            yield "  ".join(
                (
                    f"{batch.id:>4}",
                    datetime.fromtimestamp(batch.made, UTC).strftime("%Y-%m-%d %H:%M"),
                    f"{batch.provider}/{batch.model}",
                    f"{batch.requests:,} requests ({came})",
                    f"{batch.state}: {word}" if word else batch.state,
                    f"${batch.usd:.4f}" if batch.usd else "",
                    batch.remote or batch.file,
                )
            ).rstrip()


async def statuses(judging: JudgeOptions, which: int | None) -> list[str]:
    """One line per running batch, with its current status at the provider."""
    lines: list[str] = []
    with _open(judging.db) as ledger:
        for batch in _wanted(ledger, which, "running"):
            async with _desk(ledger, batch, judging) as desk:
                remote = await desk.look(batch)
            if remote is None:
                lines.append(f"{batch.called}: no answer from the provider")
                continue
            through = f", {remote.done:,} done, {remote.failed:,} failed" if remote.done + remote.failed else ""
            ready = (
                "; `critic-prm batch fetch`, or the labelling command again, takes it in" if remote.state != "running" else ""
            )
            lines.append(f"{batch.called}: {batch.requests:,} requests, {remote.status}{through}{ready}")
    return lines or ["no batch runs"]


async def cancel_batch(judging: JudgeOptions, which: int) -> str:
    """Cancel a running batch."""
    with _open(judging.db) as ledger:
        (batch,) = _wanted(ledger, which, "running")
        async with _desk(ledger, batch, judging) as desk:
            remote = await desk.cancel(batch)
    return f"{batch.called}: {remote.status}; what was done by then comes in with `critic-prm batch fetch {batch.id}`"


async def fetch_batches(judging: JudgeOptions, which: int | None) -> list[str]:
    """Import the results of batches that have ended."""
    lines: list[str] = []
    with _open(judging.db).alone() as ledger:
        for batch in _wanted(ledger, which, "running"):
            async with _desk(ledger, batch, judging) as desk:
                desk.say = lines.append
                remote = await desk.look(batch)
                if remote is not None and remote.state != "running":
                    await desk.take_in(batch, remote)
                else:
                    lines.append(f"{batch.called}: {remote.status if remote else 'no answer from the provider'}")
    return lines or ["no batch runs"]


def forget_batch(db: Path, which: int) -> str:
    """Stop tracking a batch or an exported file."""
    with _open(db).alone() as ledger:
        (batch,) = _wanted(ledger, which, "running", "sending", "exported")
        ledger.end(batch.id, "unsent", status=batch.status, failure="forgotten")
    return f"{batch.called}: forgotten; what it asked may be asked again"


def import_file(
    judging: JudgeOptions,
    source: str,
    complain: Callable[[object], None],
    requests: str | None,
    judge: str | None,
    salt: str,
) -> str:
    """Import a file of results and return a summary. Raises InputError if the file does not belong to this cache."""
    provider = open_provider(judge) if judge is not None else None
    if requests is not None and provider is None:
        raise UsageError("--requests needs --judge provider/MODEL: whose replies these are")
    with (Ledger(judging.db) if requests is not None else _open(judging.db)).alone() as ledger:
        if requests is not None and provider is not None:
            register(ledger, requests, provider, salt)
        taken = import_results(ledger, source, lambda provider, usage: 0.0, complain, provider, judging.trust)
    parts = [f"{taken.outcomes['ok']:,} replies added", f"{taken.again:,} were there already"]
    failed = {name: count for name, count in taken.outcomes.most_common() if name != "ok"}
    if failed:
        said = ", ".join(f"{name} {count:,}" for name, count in failed.items())
        parts.append(f"{sum(failed.values()):,} that are no whole reply, to be asked again ({said})")
    if taken.strangers:
        parts.append(f"{taken.strangers:,} answer nothing that this cache asked ({', '.join(taken.names)}, ...), left out")
    return "; ".join(parts)


def _open(db: Path) -> Ledger:
    if not db.is_file():
        raise InputError(str(db), "there is no such cache", "name an existing file with --db")
    return Ledger(db)


def _wanted(ledger: Ledger, which: int | None, *states: str) -> list[Batch]:
    if which is None:
        return ledger.batches(*states)
    found = [batch for batch in ledger.batches() if batch.id == which]
    if not found:
        raise UsageError(f"there is no batch {which} in {ledger.cache.path}; see `critic-prm batch list`")
    if found[0].state not in states:
        raise UsageError(f"{found[0].called} is {found[0].state}, not {' or '.join(states)}")
    return found


def _desk(ledger: Ledger, batch: Batch, judging: JudgeOptions) -> BatchManager:
    provider = _provider(ledger, batch, judging)
    prices = abilities(batch.provider, batch.model).prices

    def spend(_: Provider, usage: Usage) -> float:
        return (prices.cost(usage, batch=True) if prices else None) or 0.0

    return BatchManager(ledger, provider, spend, lambda text: None)


def _provider(ledger: Ledger, batch: Batch, judging: JudgeOptions) -> Provider:
    """The provider that holds a batch. A cache file may come from anyone, and the provider is sent the user's API key. The
    address is therefore the one the user gives, here or in the environment, or the provider's default. Raises InputError for a
    judge or address that the cache may not name."""
    origin = Origin(ledger.cache.path, judging.trust)
    name = origin.provider(f"the judge of batch {batch.id}", f"{batch.provider}/{batch.model}")
    provider = open_provider(name, judging.base_url)
    there = batch.base_url
    if judging.base_url is not None or there in (None, without_secrets(provider.base_url)):
        return provider
    if there in official_addresses(batch.provider):
        return open_provider(name, there)
    raise origin.refusal(
        f"the address of batch {batch.id}",
        there,
        "the provider's own",
        "if your key may be sent there, repeat it with --base-url",
    )
