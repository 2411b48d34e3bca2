"""Poll the batches of one judge, import the results of those that ended, and stop the run where needed."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from dataclasses import dataclass, field

from critic_prm.engine.batch.import_results import ImportSummary, Spend, take
from critic_prm.engine.batch.ledger import Batch, Ledger
from critic_prm.engine.batch.results import result_in
from critic_prm.engine.batch.send import FIRST_WAIT, LONGEST_WAIT, PATIENCE, Say, Sleep, find, may_pass, recover, stop_for
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, ProviderError
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.batches import BatchAPI, Remote
from critic_prm.providers.provider import Provider

ID = re.compile(r"[A-Za-z0-9_-]{1,200}")
"""What the ids of batches look like."""

TOO_MANY = ("token_limit_exceeded", "enqueued_token_limit_exceeded")
"""Codes with which OpenAI fails an accepted batch because the account's limit of enqueued tokens for the model is exceeded."""

NO_MONEY = ("billing_hard_limit_reached", "insufficient_quota", "billing_error", "billing_limit_reached")

TOO_LARGE, CROWDED, REFUSED = "too many tokens", "queue full", "refused"
"""Values of `Batch.failure`: the batch alone exceeds the token limit; it does so together with others; it is invalid."""


@dataclass
class BatchManager:
    """Poll and import the batches of `provider`. `seen` holds the last known remote state of each, by its local id."""

    ledger: Ledger
    provider: Provider
    spend: Spend
    say: Say
    sleep: Sleep = asyncio.sleep
    seen: dict[int, Remote] = field(default_factory=dict)
    taken: ImportSummary = field(default_factory=ImportSummary)
    _failing: float | None = None

    def __post_init__(self) -> None:
        self.api: BatchAPI = self.provider.batches()

    def batches(self, *states: str) -> list[Batch]:
        """Return this judge's batches at this address that are in one of `states`."""
        who = (self.provider.name, self.provider.model, without_secrets(self.provider.base_url))
        return [batch for batch in self.ledger.batches(*states) if (batch.provider, batch.model, batch.base_url) == who]

    async def recover(self) -> None:
        """Recover the batches that an earlier run left unfinished."""
        for batch in self.batches("gathering", "ready", "sending"):
            await recover(self.ledger, self.api, batch, self.say, self.sleep)

    async def collect(self) -> set[int]:
        """Poll all running batches, import those that ended, and return their ids.

        An error that must stop the run is raised after all batches were handled.
        """
        ended: set[int] = set()
        stops: list[CriticPrmError] = []
        for batch in self.batches("running"):
            remote = await self.look(batch)
            if remote is not None and remote.state != "running":
                try:
                    if await self.take_in(batch, remote):
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

    async def look(self, batch: Batch) -> Remote | None:
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

    async def take_in(self, batch: Batch, remote: Remote) -> bool:
        """Import the results of a batch that ended.

        Returns False if the remote batch turns out to be someone else's and ours may still be running. Raises ConfigError or
        BudgetError for a failure that would affect every other batch, too.
        """
        if remote.state == "failed":
            self._failed(batch, remote)
            return True
        if not batch.sure and not await self._is_ours(batch, remote):
            return await self._disown(batch)
        before, self.taken.stopping = Counter(self.taken.outcomes), None
        pause, until = FIRST_WAIT, time.monotonic() + PATIENCE
        while True:
            try:
                await take(self.ledger, self.provider, batch.id, self.api.results(remote), self.spend, self.taken)
                break
            except ProviderError as error:
                if error.status == 404:
                    self.say(f"{batch.called}: its results are no longer there; what is missing will be asked again")
                    break
                if not may_pass(error) or time.monotonic() > until:
                    raise stop_for(error, batch.called) from error
                self.say(f"{batch.called}: its results could not be fetched ({error}); again in {pause:.0f} s")
                await self.sleep(pause if error.retry_after is None else error.retry_after)
                pause = min(2 * pause, LONGEST_WAIT)
        self.ledger.end(batch.id, "cancelled" if remote.state == "cancelled" else "missing", status=remote.status)
        self._tell(batch, remote, self.taken.outcomes - before)
        if self.taken.stopping is not None:
            raise stop_for(self.taken.stopping, batch.called)
        return True

    def _tell(self, batch: Batch, remote: Remote, new: Counter[str]) -> None:
        open_still = self.ledger.counts(batch.id)
        new.update({name: count for name, count in open_still.items() if name in ("missing", "cancelled") and name not in new})
        said = ", ".join(f"{count:,} {name}" for name, count in new.most_common()) or "nothing new"
        self.say(f"{batch.called}: {remote.status}: {said}")

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
        raise error(f"{batch.called}: {remote.status}: {remote.failure}; nothing of it was run, and nothing is lost")

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
        found = await find(self.ledger, self.api, batch.id, self.sleep)
        if found is None:
            self.ledger.drop(batch.id)
            return True
        self.ledger.note(batch.id, state="running", remote=found.id, status=found.status)
        return False


def _id_of(batch: Batch) -> str:
    """The provider's id of a batch, which becomes a part of an address. Raises ConfigError for one that is no id: a cache may
    come from somebody else."""
    if ID.fullmatch(batch.remote) is None:
        raise ConfigError(
            f"batch {batch.id} has the id {batch.remote[:80]!r} in the cache, which no provider gave it; give it up with"
            f" `critic-prm batch forget {batch.id}`: its requests are ordered anew"
        )
    return batch.remote


def _unknown(batch: Batch) -> ConfigError:
    return ConfigError(
        f"{batch.called} is not known to this key: another key, project or workspace ordered it, or it was deleted there;"
        f" set the key that ordered it, or give it up with `critic-prm batch forget {batch.id}`: its requests are ordered anew"
    )
