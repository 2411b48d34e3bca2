"""Manage the batches recorded in a cache, and exchange requests and results as files in OpenAI's batch format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path

from critic_prm.data.critic import Critic
from critic_prm.data.records.reading import RecordWriter, read_records
from critic_prm.data.trajectory import Trajectory
from critic_prm.data.trust import Origin
from critic_prm.engine.batch.builder import ReplyPending, verdict_so_far
from critic_prm.engine.batch.ledger import PART, Batch, Ledger
from critic_prm.engine.batch.manager import BatchManager, ImportSummary, store_results
from critic_prm.engine.client import Answer, Client
from critic_prm.engine.entries import PendingRequest
from critic_prm.engine.options import JudgeOptions
from critic_prm.errors import InputError, UsageError
from critic_prm.label.run import Samples, judgements
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.batches import Result, custom_id, read_result
from critic_prm.providers.models import abilities
from critic_prm.providers.provider import Provider, Usage, official_addresses, open_provider, request_key


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


async def statuses(options: JudgeOptions, which: int | None) -> list[str]:
    """One line per running batch, with its current status at the provider."""
    lines: list[str] = []
    with _open(options.cache) as ledger:
        for batch in _wanted(ledger, which, "running"):
            async with _manager(ledger, batch, options) as manager:
                remote = await manager.poll(batch)
            if remote is None:
                lines.append(f"{batch.called}: no answer from the provider")
                continue
            through = f", {remote.done:,} done, {remote.failed:,} failed" if remote.done + remote.failed else ""
            ended = remote.state != "running"
            ready = "; `critic-prm batch fetch`, or the labelling command again, imports the results" if ended else ""
            lines.append(f"{batch.called}: {batch.requests:,} requests, {remote.status}{through}{ready}")
    return lines or ["no batch is running"]


async def cancel_batch(options: JudgeOptions, which: int) -> str:
    """Cancel a running batch."""
    with _open(options.cache) as ledger:
        (batch,) = _wanted(ledger, which, "running")
        async with _manager(ledger, batch, options) as manager:
            remote = await manager.cancel(batch)
    return f"{batch.called}: {remote.status}; `critic-prm batch fetch {batch.id}` imports what was done by then"


async def fetch_batches(options: JudgeOptions, which: int | None) -> list[str]:
    """Import the results of batches that have ended."""
    lines: list[str] = []
    with _open(options.cache).alone() as ledger:
        for batch in _wanted(ledger, which, "running"):
            async with _manager(ledger, batch, options) as manager:
                manager.say = lines.append
                remote = await manager.poll(batch)
                if remote is not None and remote.state != "running":
                    await manager.import_batch(batch, remote)
                else:
                    lines.append(f"{batch.called}: {remote.status if remote else 'no answer from the provider'}")
    return lines or ["no batch is running"]


def forget_batch(db: Path, which: int) -> str:
    """Stop tracking a batch or an exported file."""
    with _open(db).alone() as ledger:
        (batch,) = _wanted(ledger, which, "running", "sending", "exported")
        ledger.end(batch.id, "unsent", status=batch.status, failure="forgotten")
    return f"{batch.called}: forgotten; its requests may be sent again"


def import_file(
    options: JudgeOptions,
    source: str,
    complain: Callable[[object], None],
    requests: str | None,
    judge: str | None,
    salt: str,
) -> str:
    """Import a file of results and return a summary. Raises InputError if the file does not belong to this cache."""
    provider = open_provider(judge) if judge is not None else None
    if requests is not None and provider is None:
        raise UsageError("--requests needs --judge provider/MODEL, the judge that answered")
    with (Ledger(options.cache) if requests is not None else _open(options.cache)).alone() as ledger:
        if requests is not None and provider is not None:
            register(ledger, requests, provider, salt)
        summary = import_results(ledger, source, complain, provider, options.trust)
    parts = [f"{summary.outcomes['ok']:,} replies added", f"{summary.again:,} were there already"]
    failed = {name: count for name, count in summary.outcomes.most_common() if name != "ok"}
    if failed:
        counts = ", ".join(f"{name} {count:,}" for name, count in failed.items())
        parts.append(f"{sum(failed.values()):,} incomplete replies, to be requested again ({counts})")
    if summary.unknown:
        parts.append(f"{summary.unknown:,} match no request of this cache ({', '.join(summary.names)}, ...), left out")
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


def _manager(ledger: Ledger, batch: Batch, options: JudgeOptions) -> BatchManager:
    provider = _provider(ledger, batch, options)
    prices = abilities(batch.provider, batch.model).prices

    def spend(_: Provider, usage: Usage) -> float:
        return (prices.cost(usage, batch=True) if prices else None) or 0.0

    return BatchManager(ledger, provider, spend, lambda text: None)


def _provider(ledger: Ledger, batch: Batch, options: JudgeOptions) -> Provider:
    """The provider that holds a batch. A cache file may come from anyone, and the provider is sent the user's API key. The
    address is therefore the one the user gives, here or in the environment, or the provider's default. Raises InputError for a
    judge or address that the cache may not name."""
    origin = Origin(ledger.cache.path, options.trust)
    name = origin.provider(f"the judge of batch {batch.id}", f"{batch.provider}/{batch.model}")
    opened = partial(open_provider, name, headers=options.header, key_variable=options.api_key_env)
    provider = opened(options.base_url)
    there = batch.base_url
    if options.base_url is not None or there in (None, without_secrets(provider.base_url)):
        return provider
    if there in official_addresses(batch.provider):
        return opened(there)
    raise origin.refusal(
        f"the address of batch {batch.id}",
        there,
        "the provider's own",
        "if your key may be sent there, repeat it with --base-url",
    )


@dataclass
class Export:
    """A handler for a client's `elsewhere` that writes requests to a file instead of sending them.

    It counts requests written (`requests`), already in batches at a provider (`away`), and given up after repeated failures
    (`failed`).
    """

    client: Client
    ledger: Ledger
    sink: RecordWriter
    batch: int
    requests: int = 0
    away: int = 0
    failed: int = 0
    _rows: dict[str, PendingRequest] = field(default_factory=dict)

    async def __call__(self, question: PendingRequest) -> Answer:
        try:
            answer, asked = verdict_so_far(self.client, self.ledger, question)
        except ReplyPending:
            self.away += 1
            raise
        if answer is not None:
            self.failed += 1
            return answer
        if asked.key not in self._rows and not self.ledger.holds(self.batch, asked.key):
            self.sink.write(request_row(self.client.provider, asked))
            self.requests += 1
            self._rows[asked.key] = asked
            if len(self._rows) >= PART:
                self.flush()
        raise ReplyPending

    def flush(self) -> None:
        self.ledger.add(self.batch, list(self._rows.values()))
        self._rows.clear()

    def summary(self, out: str) -> str:
        """The counts as text."""
        away = f"; {self.away:,} more are in batches at a provider" if self.away else ""
        failed = f"; {self.failed:,} have failed too often to be asked again" if self.failed else ""
        nothing = "" if self.requests or self.away else "; `critic-prm label` finds all replies in the cache"
        return f"{self.requests:,} requests written to {out}{away}{failed}{nothing}"


def request_row(provider: Provider, question: PendingRequest) -> dict[str, object]:
    """A request as one line of a batch file, in its provider's format."""
    return provider.batch_row(custom_id(question.key, question.sample), question.wire)


async def export(
    ledger: Ledger, critic: Critic, client: Client, trajectories: Iterable[Trajectory], samples: Samples, out: str
) -> Export:
    """Write every request that labelling would send now to `out`, keeping those of one trajectory together. Requests that
    depend on their replies are written by the next export, after an import. Nothing is sent."""
    for unfinished in ledger.batches("writing"):
        ledger.drop(unfinished.id)
    batch = ledger.begin(client.provider, "writing")
    with RecordWriter(out) as sink:
        written = client.elsewhere = Export(client, ledger, sink, batch)
        for trajectory in trajectories:
            with suppress(ReplyPending):
                await judgements(critic, [trajectory], samples)
        written.flush()
    # The file is committed only here, so an interrupted export leaves no pending batch.
    if written.requests:
        ledger.note(batch, state="exported", file=str(out))
    else:
        ledger.drop(batch)
    return written


def import_results(
    ledger: Ledger,
    source: str,
    complain: Callable[[object], None],
    provider: Provider | None,
    trust: Sequence[str | Path],
) -> ImportSummary:
    """Import the results in a file into the cache. Results are matched by custom_id, in any order, and may be imported
    repeatedly. A broken or truncated line is reported to `complain` and skipped. `provider` parses replies of a model that
    cannot be opened by name.

    Raises InputError if no result matches a request of this cache, and for a judge that the cache may not name (see
    `trust.Origin`).
    """
    opened: dict[str, Provider] = {}
    origin = Origin(ledger.cache.path, trust)

    def provider_of(name: str) -> Provider:
        if name not in opened:
            opened[name] = provider or open_provider(origin.provider("the judge of a request", name))
        return opened[name]

    summary = ImportSummary()
    lines = _results(source, complain)
    while part := list(islice(lines, PART)):
        store_results(ledger, provider_of, part, lambda provider, usage: 0.0, summary)
    if not summary.new and not summary.again:
        what = (
            f"none of its {summary.unknown:,} results matches a request of this cache ({', '.join(summary.names)}, ...)"
            if summary.unknown
            else "it has no results of a batch"
        )
        raise InputError(source, what, "if it belongs to another cache, name that with --db, or its requests with --requests")
    return summary


def _results(source: str, complain: Callable[[object], None]) -> Iterator[Result]:
    for record in read_records(source, on_error="skip", complain=complain):
        result = read_result(record.data)
        if result is None:
            complain(InputError(record.where, "this is not a result of a batch", "a result has a custom_id and a response"))
        else:
            yield result


def register(ledger: Ledger, source: str, provider: Provider, salt: str) -> None:
    """Register the requests of a file that `export` wrote for another cache, so that its results can be imported. Raises
    InputError if a request does not match its custom_id."""
    batch, lines = ledger.begin(provider, "writing"), _requests(source, salt)
    while part := list(islice(lines, PART)):
        ledger.add(batch, part)
    ledger.note(batch, state="exported", file=Path(source).name)


def _requests(source: str, salt: str) -> Iterator[PendingRequest]:
    for record in read_records(source):
        row = record.data if isinstance(record.data, dict) else {}
        wire, custom = row.get("body") or row.get("params"), str(row.get("custom_id"))
        sample = custom.rpartition("-")[2]
        if not isinstance(wire, dict) or not sample.isdecimal():
            raise InputError(record.where, "this is not a request of a batch", "name what `critic-prm batch export` wrote")
        question = PendingRequest(request_key(wire, int(sample), salt), wire, int(sample), salt)
        if custom_id(question.key, question.sample) != custom:
            raise InputError(
                record.where,
                f"custom_id {custom!r} does not match the request in its line",
                "if the file was exported with a --salt, give the same one",
            )
        yield question


def one_client(clients: Sequence[Client]) -> Client:
    """The client of a critic with exactly one judge. Raises UsageError otherwise, since a file holds requests for one model."""
    if len(clients) != 1:
        raise UsageError(
            f"a file of requests is for one judge, and this critic asks {len(clients) or 'none'}; export for each in turn"
        )
    return clients[0]
