"""Import batch results into the cache: complete replies as replies, all others as attempts, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from critic_prm.engine.batch.ledger import PART, Ledger
from critic_prm.engine.batch.results import result_in
from critic_prm.engine.cache import Attempt, Entry
from critic_prm.engine.entries import PendingRequest, fresh_reply, to_attempt, to_entry
from critic_prm.errors import ProviderError
from critic_prm.providers.batches import Result
from critic_prm.providers.http import without_echoes
from critic_prm.providers.provider import Provider, Usage

FIRST_FEW = 3


@dataclass
class ImportSummary:
    """Counts of imported results."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """New outcomes by name: "ok", finish reasons, failures, "expired", "cancelled"."""
    again: int = 0
    """Results that had been imported before."""
    strangers: int = 0
    """Results of requests that are not in this cache."""
    names: list[str] = field(default_factory=list)
    """The custom ids of the first FIRST_FEW unknown results."""
    stopping: ProviderError | None = None
    """The last failure that concerns the whole run, if any."""
    usd: float = 0.0
    """Cost of the new results in US dollars."""

    @property
    def new(self) -> int:
        """Number of new results."""
        return self.outcomes.total()


Spend = Callable[[Provider, Usage], float]

"""Adds a reply's usage to the budget and returns its cost in US dollars."""


async def take(
    ledger: Ledger, provider: Provider, batch: int, lines: AsyncIterator[bytes], spend: Spend, taken: ImportSummary
) -> None:
    """Import all results of a batch. After an interruption, start again with the same lines: imported results are skipped."""
    part: list[Result] = []
    async for line in lines:
        result = result_in(line)
        if result is not None:
            part.append(result)
        if len(part) >= PART:
            store(ledger, lambda _: provider, part, spend, taken, batch)
            part = []
    store(ledger, lambda _: provider, part, spend, taken, batch)


def store(
    ledger: Ledger,
    provider_of: Callable[[str], Provider],
    results: Sequence[Result],
    spend: Spend,
    taken: ImportSummary,
    batch: int | None = None,
) -> None:
    """Store a few results in one transaction. Without `batch` they come from a file and may belong to any batch or to none."""
    asked = ledger.asked(result.custom for result in results)
    keys = [question.key for question, _ in asked.values()]
    there, still_open = ledger.cache.known(keys), ledger.open_keys(batch, keys)
    part = _Part()
    for result in results:
        if (found := asked.get(result.custom)) is None:
            if ledger.answered(result.custom):
                taken.again += 1
            else:
                taken.strangers += 1
                taken.names += [result.custom] if len(taken.names) < FIRST_FEW else []
            continue
        question, named = found
        key, from_file = question.key, batch is None
        if key in there or key in part.entries or (key not in still_open and not from_file):
            part.outcomes.setdefault(key, "ok")
            taken.again += 1
            continue
        provider = provider_of(named)
        row, usage, error = _row(provider, question, result)
        if not isinstance(row, Entry) and (key not in still_open or key in part.outcomes):
            taken.again += 1  # this failure is known; only a complete reply would replace it
            continue
        part.usd += spend(provider, usage)
        if error is not None and error.failure in ("run", "quota"):
            taken.stopping = error
        taken.outcomes[part.put(key, row, result.unrun)] += 1
    ledger.record(batch, list(part.entries.values()), list(part.attempts.values()), part.outcomes, part.usd)
    taken.usd += part.usd


@dataclass
class _Part:
    """Rows to be stored in one transaction."""

    entries: dict[str, Entry] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)
    usd: float = 0.0

    def put(self, key: str, row: Entry | Attempt | None, unrun: str) -> str:
        """Add a row and return the name of its outcome."""
        if isinstance(row, Entry):
            self.entries[key], self.outcomes[key] = row, "ok"
        elif row is None:
            self.outcomes[key] = unrun
        else:
            self.attempts[key], self.outcomes[key] = row, row.failure
        return self.outcomes[key]


def _row(
    provider: Provider, question: PendingRequest, result: Result
) -> tuple[Entry | Attempt | None, Usage, ProviderError | None]:
    """Return the cache row, the usage and the error of a result; no row and no error for a request that was not run."""
    error = result.error
    if result.raw is not None:
        try:
            reply = fresh_reply(provider, result.raw)
            return to_entry(provider, question, reply, 0.0), reply.usage, None
        except ProviderError as problem:
            error = problem
    if error is None:
        return None, Usage(), None
    clean = without_echoes(error, question.wire, getattr(provider, "secrets", ()))
    clean.detail = str(clean)  # the text in the label row, identical to that of an online failure
    return to_attempt(provider, question.key, clean), Usage(), clean
