"""Send the batches of one judge, poll them, and import the results of those that ended into the cache, each once."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from critic_prm.engine.batch.ledger import PART, Batch, Ledger
from critic_prm.engine.cache import Attempt, Entry
from critic_prm.engine.entries import PendingRequest, fresh_reply, to_attempt, to_entry
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, ProviderError
from critic_prm.providers.addresses import is_near, without_secrets
from critic_prm.providers.batches import BatchAPI, Remote, Result, custom_id, result_in
from critic_prm.providers.failures import without_echoes
from critic_prm.providers.provider import Provider, Usage

Outcome = TypeVar("Outcome")
Say = Callable[[str], None]
Sleep = Callable[[float], Awaitable[None]]

GRACE, NEAR_GRACE = 60.0, 0.5
"""Seconds after which a create call that was interrupted counts as not received if the provider lists no such batch. NEAR_GRACE
applies to a server on this machine or network."""

PATIENCE = 3600.0
"""Seconds for which the same call may keep failing before the run stops. Running the command again resumes."""

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0

FIRST_FEW = 3


@dataclass
class ImportSummary:
    """Counts of imported results."""

    outcomes: Counter[str] = field(default_factory=Counter)
    """New outcomes by name: "ok", finish reasons, failures, "expired", "cancelled"."""
    again: int = 0
    """Results that had been imported before."""
    unknown: int = 0
    """Results of requests that are not in this cache."""
    names: list[str] = field(default_factory=list)
    """The custom ids of the first FIRST_FEW unknown results."""
    stopping: ProviderError | None = None
    """The last failure that concerns the whole run, if any."""

    @property
    def new(self) -> int:
        """Number of new results."""
        return self.outcomes.total()


Spend = Callable[[Provider, Usage], float]

"""Adds a reply's usage to the budget and returns its cost in US dollars."""


def store_results(
    ledger: Ledger,
    provider_of: Callable[[str], Provider],
    results: Sequence[Result],
    spend: Spend,
    summary: ImportSummary,
    batch: int | None = None,
) -> None:
    """Store a few results in one transaction. Without `batch` they come from a file and may belong to any batch or to none."""
    asked = ledger.asked(result.custom for result in results)
    keys = [question.key for question, _ in asked.values()]
    there, still_open = ledger.cache.known(keys), ledger.open_keys(batch, keys)
    part = ImportedPart()
    for result in results:
        if result.custom not in asked:
            if ledger.answered(result.custom):
                summary.again += 1
            else:
                summary.unknown += 1
                summary.names += [result.custom] if len(summary.names) < FIRST_FEW else []
            continue
        question, judge = asked[result.custom]
        key, from_file = question.key, batch is None
        if key in there or key in part.entries or (key not in still_open and not from_file):
            part.outcomes.setdefault(key, "ok")
            summary.again += 1
            continue
        provider = provider_of(judge)
        row, usage, error = _row(provider, question, result)
        if not isinstance(row, Entry) and (key not in still_open or key in part.outcomes):
            summary.again += 1  # this failure is known; only a complete reply would replace it
            continue
        part.usd += spend(provider, usage)
        if error is not None and error.failure in ("run", "quota"):
            summary.stopping = error
        summary.outcomes[part.put(key, row, result.unrun)] += 1
    ledger.record(batch, list(part.entries.values()), list(part.attempts.values()), part.outcomes, part.usd)


@dataclass
class ImportedPart:
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
    clean = without_echoes(error, question.wire, provider.secrets)
    clean.detail = str(clean)  # the text in the label row, identical to that of an online failure
    return to_attempt(provider, question.key, clean), Usage(), clean


ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
"""What the ids of batches look like."""

TOO_MANY = ("token_limit_exceeded", "enqueued_token_limit_exceeded")
"""Codes with which OpenAI fails an accepted batch because the account's limit of enqueued tokens for the model is exceeded."""

NO_MONEY = ("billing_hard_limit_reached", "insufficient_quota", "billing_error", "billing_limit_reached")

TOO_LARGE, CROWDED, REFUSED = "too many tokens", "queue full", "refused"
"""Values of `Batch.failure`: the batch alone exceeds the token limit; it does so together with others; it is invalid."""


@dataclass
class BatchManager:
    """Send, poll and import the batches of `provider`. `seen` holds the last known remote state of each, by its local id."""

    ledger: Ledger
    provider: Provider
    spend: Spend
    say: Say
    sleep: Sleep = asyncio.sleep
    seen: dict[int, Remote] = field(default_factory=dict)
    summary: ImportSummary = field(default_factory=ImportSummary)
    _failing: float | None = None

    def __post_init__(self) -> None:
        self.api: BatchAPI = self.provider.batches()

    def batches(self, *states: str) -> list[Batch]:
        """Return this judge's batches at this address that are in one of `states`."""
        who = (self.provider.name, self.provider.model, without_secrets(self.provider.base_url))
        return [batch for batch in self.ledger.batches(*states) if (batch.provider, batch.model, batch.base_url) == who]

    async def send(self, number: int) -> None:
        """Create a batch that is ready at the provider.

        Raises ConfigError or BudgetError when the provider refuses; the batch is then dropped, unless it may have been created.
        """
        batch = self.ledger.batch(number)
        with tempfile.TemporaryDirectory(prefix="critic-prm-") as folder:
            path = Path(folder) / f"critic-prm-{batch.token[:12]}.jsonl"
            self._write(path, number)

            async def create() -> Remote:
                self.ledger.note(number, state="sending", sent=time.time())
                try:
                    return await self.api.create(path, file, batch.token)
                except ProviderError as error:
                    if not may_pass(error):
                        self.ledger.note(number, state="ready")  # the provider refused the call, so no batch was created
                    raise

            try:
                file = await self._repeated(batch, lambda: self.api.upload(path, batch.token), "an uploaded file")
                newest = await self._repeated(batch, self.api.newest, "a look at its batches")
                self.ledger.note(number, file=file, newest=newest)
                remote = await self._repeated(batch, create, "a new batch", partial(self._find, number))
            except (ConfigError, BudgetError):
                if self.ledger.batch(number).state != "sending":
                    self.ledger.drop(number)
                raise
        self._runs(number, remote, f"{batch.requests:,} requests submitted")

    async def recover(self) -> None:
        """Recover the batches that an earlier run left unfinished.

        A batch that was never sent is dropped; its requests go into a new one. One that may have been created is looked for.
        """
        for batch in self.batches("gathering", "ready"):
            self.ledger.drop(batch.id)
        for batch in self.batches("sending"):
            remote = await self._repeated(batch, partial(self._find, batch.id), "a look at its batches")
            if remote is not None:
                self._runs(batch.id, remote, "found again")
                continue
            self.ledger.drop(batch.id)
            self.say(
                f"{batch.called}: the order had not arrived when the run before was ended; its requests are gathered again"
            )

    async def collect(self) -> set[int]:
        """Poll all running batches, import those that ended, and return their ids.

        An error that must stop the run is raised after all batches were handled.
        """
        ended: set[int] = set()
        stops: list[CriticPrmError] = []
        for batch in self.batches("running"):
            remote = await self.poll(batch)
            if remote is not None and remote.state != "running":
                try:
                    if await self.import_batch(batch, remote):
                        ended.add(batch.id)
                except ProviderError as error:
                    if not may_pass(error):
                        stops.append(stop_for(error, batch.called))
                    self.say(f"{batch.called}: {error}; it is looked at again later")
                except CriticPrmError as error:
                    stops.append(error)
        if stops:
            raise stops[0]
        return ended

    async def poll(self, batch: Batch) -> Remote | None:
        """Return the remote state of a batch. None while the provider does not answer; after an hour of that, raise."""
        try:
            remote = self.seen[batch.id] = await self.api.look(_id_of(batch))
        except ProviderError as error:
            if error.status == 404:
                raise _unknown(batch) from error
            now = time.monotonic()
            self._failing = self._failing or now
            if not may_pass(error) or now - self._failing > PATIENCE:
                raise stop_for(error, batch.called) from error
            return None
        self._failing = None
        if remote.status != batch.status:
            self.ledger.note(batch.id, status=remote.status)
        return remote

    async def cancel(self, batch: Batch) -> Remote:
        """Cancel a batch at its provider. Raises ConfigError or BudgetError when that fails."""
        try:
            return await self.api.cancel(_id_of(batch))
        except ProviderError as error:
            raise (_unknown(batch) if error.status == 404 else stop_for(error, batch.called)) from error

    async def __aenter__(self) -> BatchManager:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.api.close()

    async def import_batch(self, batch: Batch, remote: Remote) -> bool:
        """Import the results of a batch that ended.

        Returns False if the remote batch turns out to be someone else's and ours may still be running. Raises ConfigError or
        BudgetError for a failure that would affect every other batch, too.
        """
        if remote.state == "failed":
            self._failed(batch, remote)
            return True
        if not batch.sure and not await self._is_ours(batch, remote):
            return await self._disown(batch)
        before, self.summary.stopping = Counter(self.summary.outcomes), None
        await self._repeated(batch, partial(self._fetch, batch, remote), "its results")
        self.ledger.end(batch.id, "cancelled" if remote.state == "cancelled" else "missing", status=remote.status)
        self._tell(batch, remote, self.summary.outcomes - before)
        if self.summary.stopping is not None:
            raise stop_for(self.summary.stopping, batch.called)
        return True

    async def _fetch(self, batch: Batch, remote: Remote) -> None:
        """Import all results of a batch. When it is repeated after an interruption, imported results are skipped."""
        part: list[Result] = []
        try:
            async for line in self.api.results(remote):
                if (result := result_in(line)) is not None:
                    part.append(result)
                if len(part) >= PART:
                    self._store(batch, part)
                    part = []
        except ProviderError as error:
            if error.status != 404:
                raise
            self.say(f"{batch.called}: its results are no longer there; missing replies will be requested again")
        self._store(batch, part)

    def _store(self, batch: Batch, part: Sequence[Result]) -> None:
        store_results(self.ledger, lambda _: self.provider, part, self.spend, self.summary, batch.id)

    def _tell(self, batch: Batch, remote: Remote, new: Counter[str]) -> None:
        open_still = self.ledger.counts(batch.id)
        new.update({name: count for name, count in open_still.items() if name in ("missing", "cancelled") and name not in new})
        outcomes = ", ".join(f"{count:,} {name}" for name, count in new.most_common()) or "nothing new"
        self.say(f"{batch.called}: {remote.status}: {outcomes}")

    def _beside(self, batch: Batch) -> list[Batch]:
        """Return the batches that were in the provider's queue when `batch` was accepted."""
        others = [other for other in self.batches("running", "ended") if other.id != batch.id and not other.failure]
        return [other for other in others if other.state == "running" or other.ended > batch.sent]

    def _failed(self, batch: Batch, remote: Remote) -> None:
        if any(code in TOO_MANY for code in remote.failure_codes):
            alone = not self._beside(batch)
            self.ledger.end(batch.id, "unsent", status=remote.status, failure=TOO_LARGE if alone else CROWDED)
            if alone and batch.requests == 1:
                raise ConfigError(f"{batch.called}: one request is more than may wait at this provider: {remote.failure}")
            how = "in smaller batches" if alone else "when others are done"
            self.say(
                f"{batch.called}: {remote.status}: {remote.failure}; nothing of it was run, its requests go out again {how}"
            )
            return
        self.ledger.end(batch.id, "unsent", status=remote.status, failure=REFUSED)
        error = BudgetError if any(code in NO_MONEY for code in remote.failure_codes) else ConfigError
        raise error(f"{batch.called}: {remote.status}: {remote.failure}; none of its requests was run, and nothing is lost")

    async def _is_ours(self, batch: Batch, remote: Remote) -> bool:
        async for line in self.api.results(remote):
            result = result_in(line)
            asked = self.ledger.asked([result.custom]) if result else {}
            return any(self.ledger.holds(batch.id, question.key) for question, _ in asked.values()) or bool(
                result and self.ledger.answered(result.custom)
            )
        return False

    async def _disown(self, batch: Batch) -> bool:
        """Give up a remote batch that only matched ours in size, and look for ours, which may never have been created."""
        self.say(f"{batch.called}: that one is somebody else's; looking for ours")
        self.ledger.note(batch.id, state="sending", not_ours=f"{batch.not_ours} {batch.remote}".strip(), remote="", sure=1)
        remote = await self._find(batch.id)
        if remote is None:
            self.ledger.drop(batch.id)
            return True
        self._runs(batch.id, remote)
        return False

    def _runs(self, number: int, remote: Remote, message: str = "") -> None:
        """Record which remote batch this one is."""
        self.ledger.note(number, state="running", remote=remote.id, status=remote.status)
        if message:
            self.say(f"{self.ledger.batch(number).called}: {message}")

    def _write(self, path: Path, number: int) -> None:
        head, joint, tail = self.api.frame
        with path.open("wb") as stream:
            stream.write(head)
            for place, question in enumerate(self.ledger.questions(number)):
                line = self.api.line(custom_id(question.key, question.sample), question.wire)
                stream.write((joint if place else b"") + line)
            stream.write(tail)

    async def _find(self, number: int) -> Remote | None:
        """Find the remote batch of a create call whose outcome is unknown. None if the call cannot have been received.

        An uncertain match is accepted until the batch's results confirm or refute it.
        """
        batch = self.ledger.batch(number)
        grace = NEAR_GRACE if is_near(batch.base_url) else GRACE
        known = {other.remote for other in self.ledger.batches() if other.remote} | set(batch.not_ours.split())
        while True:
            left = batch.sent + grace - time.time()
            candidates = await self.api.find(batch.file, batch.token, batch.newest, batch.requests, batch.sent)
            candidates = [(remote, sure) for remote, sure in candidates if remote.id not in known]
            if candidates:
                remote, sure = min(candidates, key=lambda one: (not one[1], one[0].made))
                self.ledger.note(number, sure=int(sure))
                return remote
            if left <= 0:
                return None
            await self.sleep(min(left, 5.0))

    async def _repeated(
        self,
        batch: Batch,
        call: Callable[[], Awaitable[Outcome]],
        what: str,
        done_already: Callable[[], Awaitable[Outcome | None]] | None = None,
    ) -> Outcome:
        """Return the result of a call about a batch, which is repeated with growing pauses while its failures are temporary. If
        a failed call may have taken effect, `done_already` checks before the next try."""
        pause, until = FIRST_WAIT, time.monotonic() + PATIENCE
        while True:
            try:
                return await call()
            except ProviderError as error:
                failed = error
            wait = failed.retry_after if failed.retry_after is not None else pause
            if not may_pass(failed) or time.monotonic() + wait > until:
                raise stop_for(failed, batch.called) from failed
            self.say(f"{batch.called}: waiting {wait:.1f} s for {what} ({failed})")
            await self.sleep(wait)
            pause = min(2 * pause, LONGEST_WAIT)
            if done_already is not None and failed.failure == "transient":
                found = await self._repeated(batch, done_already, "a look at its batches")
                if found is not None:
                    return found


def may_pass(error: ProviderError) -> bool:
    """Whether the same call may succeed later."""
    return error.failure in ("throttle", "transient")


def stop_for(error: ProviderError, who: str) -> CriticPrmError:
    """Convert a permanent failure of a call to the error that stops the run."""
    message = f"{who}: {error}; batches that were ordered go on, run the same command again to pick them up"
    return BudgetError(message) if error.failure == "quota" else ConfigError(message)


def _id_of(batch: Batch) -> str:
    """The provider's id of a batch, which becomes a part of an address. Raises ConfigError for an invalid one, because a cache
    may come from somebody else."""
    if ID.fullmatch(batch.remote) is None:
        raise ConfigError(
            f"batch {batch.id} has the id {batch.remote[:80]!r} in the cache, which no provider assigned; stop tracking it with"
            f" `critic-prm batch forget {batch.id}`: its requests are sent again"
        )
    return batch.remote


def _unknown(batch: Batch) -> ConfigError:
    return ConfigError(
        f"{batch.called} is not known to this key: another key, project or workspace submitted it, or it was deleted there;"
        f" set that key, or stop tracking it with `critic-prm batch forget {batch.id}`: its requests are sent again"
    )
