"""Poll the batches of one judge, and import the results of those that ended into the cache, each once."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from critic_prm.engine.batch.ledger import PART, Batch, Ledger
from critic_prm.engine.batch.submit import FIRST_WAIT, LONGEST_WAIT, PATIENCE, Say, Sleep, find, may_pass, recover, stop_for
from critic_prm.engine.cache import Attempt, Entry
from critic_prm.engine.entries import PendingRequest, fresh_reply, to_attempt, to_entry
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, ProviderError
from critic_prm.providers.addresses import without_secrets
from critic_prm.providers.batches import BatchAPI, Remote, Result
from critic_prm.providers.http import failed, without_echoes
from critic_prm.providers.provider import Provider, Usage, reading_answer

UNRUN = {"batch_expired": "expired", "batch_cancelled": "cancelled", "expired": "expired", "canceled": "cancelled"}
"""The names that each API gives to a request that was never run."""

STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP statuses of Anthropic's error types; errors of single requests in a batch come without one."""


def result_in(line: bytes) -> Result | None:
    """Parse a line of a result file. None if it is not a result. Raises ProviderError if the line is cut off or damaged."""
    try:
        return read_result(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise ProviderError(f"the results break off or are damaged: {error}", "transient") from error


def read_result(row: Any) -> Result | None:
    """Parse a decoded line of a result file. None if it is not a result."""
    if not isinstance(row, dict) or not isinstance(custom := row.get("custom_id"), str):
        return None
    try:
        with reading_answer():
            if isinstance(result := row.get("result"), dict):
                return _anthropic(custom, result)
            if "response" in row or "error" in row:
                return _openai(custom, row.get("response"), row.get("error"))
    except ProviderError as error:
        return Result(custom, error=error)
    return None


def _anthropic(custom: str, result: dict[str, Any]) -> Result:
    kind = result.get("type")
    if kind == "succeeded" and isinstance(message := result.get("message"), dict):
        return Result(custom, message)
    if kind in UNRUN:
        return Result(custom, unrun=UNRUN[kind])
    body = result.get("error") or {}
    inner = body.get("error") if isinstance(body, dict) else None
    details = inner if isinstance(inner, dict) else body if isinstance(body, dict) else {}
    return Result(custom, error=failed(STATUS.get(str(details.get("type")), 500), {}, {"error": details}))


def _openai(custom: str, response: Any, error: Any) -> Result:
    """Parse an OpenAI result. `error` is null, an object, a nested object (vLLM) or a string; then `response` may be null."""
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if isinstance(error, dict) and error.get("code") in UNRUN:
        return Result(custom, unrun=UNRUN[error["code"]])
    response = response if isinstance(response, dict) else {}
    status, body = response.get("status_code"), response.get("body")
    if status == 200 and isinstance(body, dict) and not error and not (body.get("error") and "choices" not in body):
        return Result(custom, body)
    if isinstance(body, dict) and body.get("error"):
        error = body["error"]
    if not error:
        return Result(custom, error=ProviderError(f"the result has no body (status {status})", "transient", detail="no body"))
    code = error.get("code") if isinstance(error, dict) else None
    status = status if isinstance(status, int) and status != 200 else code if isinstance(code, int) else 500
    return Result(custom, error=failed(status, {}, {"error": error}))


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
    usd: float = 0.0
    """Cost of the new results in US dollars."""

    @property
    def new(self) -> int:
        """Number of new results."""
        return self.outcomes.total()


Spend = Callable[[Provider, Usage], float]

"""Adds a reply's usage to the budget and returns its cost in US dollars."""


async def import_results(
    ledger: Ledger, provider: Provider, batch: int, lines: AsyncIterator[bytes], spend: Spend, summary: ImportSummary
) -> None:
    """Import all results of a batch. After an interruption, start again with the same lines: imported results are skipped."""
    part: list[Result] = []
    async for line in lines:
        result = result_in(line)
        if result is not None:
            part.append(result)
        if len(part) >= PART:
            store_results(ledger, lambda _: provider, part, spend, summary, batch)
            part = []
    store_results(ledger, lambda _: provider, part, spend, summary, batch)


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
    summary.usd += part.usd


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
    """Poll and import the batches of `provider`. `seen` holds the last known remote state of each, by its local id."""

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
        pause, until = FIRST_WAIT, time.monotonic() + PATIENCE
        while True:
            try:
                await import_results(self.ledger, self.provider, batch.id, self.api.results(remote), self.spend, self.summary)
                break
            except ProviderError as error:
                if error.status == 404:
                    self.say(f"{batch.called}: its results are no longer there; missing replies will be requested again")
                    break
                if not may_pass(error) or time.monotonic() > until:
                    raise stop_for(error, batch.called) from error
                self.say(f"{batch.called}: its results could not be fetched ({error}); again in {pause:.0f} s")
                await self.sleep(pause if error.retry_after is None else error.retry_after)
                pause = min(2 * pause, LONGEST_WAIT)
        self.ledger.end(batch.id, "cancelled" if remote.state == "cancelled" else "missing", status=remote.status)
        self._tell(batch, remote, self.summary.outcomes - before)
        if self.summary.stopping is not None:
            raise stop_for(self.summary.stopping, batch.called)
        return True

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
        remote = await find(self.ledger, self.api, batch.id, self.sleep)
        if remote is None:
            self.ledger.drop(batch.id)
            return True
        self.ledger.note(batch.id, state="running", remote=remote.id, status=remote.status)
        return False


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
