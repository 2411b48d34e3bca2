"""Put the requests that the cache cannot answer into batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import get_args

from critic_prm.engine.batch.ledger import PART, Ledger, Try
from critic_prm.engine.batch.manager import TOO_LARGE, BatchManager
from critic_prm.engine.client import Answer, Client, stored_answer
from critic_prm.engine.entries import PendingRequest, with_doubled_limit
from critic_prm.errors import ConfigError, Failure, ProviderError
from critic_prm.providers.batches import custom_id
from critic_prm.providers.provider import Usage

UNSENT, UNRUN, PASSING = ("unsent", "cancelled"), ("expired", "missing"), ("transient", "throttle", "run", "quota")
"""Outcomes that are not a request's own fault: its batch was refused or cancelled (UNSENT); it was not run in time (UNRUN); the
failure is temporary or concerns the whole run (PASSING)."""

TRIES = 3
"""A request counts as failed after this many batches in which it was not run or failed temporarily."""

PROBES = 3
"""If this many probe requests are refused, the run stops, because all requests would be."""


class ReplyPending(Exception):
    """The reply will arrive later, so the caller's trajectory cannot be finished in this pass."""


class InBatch(ReplyPending):
    """The request is in `batches`, given by their ids."""

    def __init__(self, batches: set[int]) -> None:
        self.batches = batches
        super().__init__()


@dataclass
class BatchBuilder:
    """Miss handler that puts the requests of one client into batches.

    It is the client's `elsewhere`; call `start` before each pass. `most` is the maximum number of requests per batch, None for
    the provider's limit.
    The first request is sent online, so that a parameter that the model does not accept is found within a second, unless the
    cache holds a reply to a request with the same parameters. A request that failed in a batch goes into another one as often
    as the same failure would be retried online.
    """

    client: Client
    manager: BatchManager
    most: int | None = None
    full: list[int] = field(default_factory=list)
    away: set[int] = field(default_factory=set)
    """The batches at the provider that hold requests of this pass."""
    added: int = 0
    held: str = ""
    """The limit of the run that stopped the pass; empty if none."""
    _limit: int = 0
    _probes: int | None = None
    _probed: dict[str, Answer] = field(default_factory=dict)
    _batch: int | None = None
    _rows: dict[str, PendingRequest] = field(default_factory=dict)
    _count: int = 0
    _bytes: int = 0
    _most_usd: float = 0.0
    _committed: tuple[int, float] = (0, 0.0)

    def __post_init__(self) -> None:
        self.ledger, self.api, self.client.elsewhere = self.manager.ledger, self.manager.api, self

    def start(self) -> None:
        """Prepare for a pass over the input. If a batch alone exceeded the account's token queue, halve the limit."""
        self.client.look_again()
        ended = self.manager.batches("ended")
        refused = [batch.requests // 2 for batch in ended if batch.failure == TOO_LARGE and not batch.settled]
        self._limit = max(min([self.most or self.api.most_requests, self.api.most_requests, *refused]), 1)
        self.full, self.away, self.added, self.held = [], set(), 0, ""
        self._committed = self.ledger.committed(self.client.provider)

    async def __call__(self, question: PendingRequest) -> Answer:
        """Return the answer to a request, or add it to a batch. Raises ReplyPending while there is no answer."""
        if question.key in self._probed:
            return self._probed[question.key]
        if question.key in self._rows:
            raise ReplyPending
        try:
            answer, asked = verdict_so_far(self.client, self.ledger, question)
        except InBatch as news:
            self.away |= news.batches
            raise
        if answer is not None:
            return answer
        if asked.key in self._rows:
            raise ReplyPending
        return await self._add(asked)

    def take_full(self) -> list[int]:
        """Return the full batches, which are ready to be sent, and clear the list."""
        ready, self.full = self.full, []
        return ready

    def finish(self) -> list[int]:
        """Close the current batch, full or not, and return all batches that are ready to be sent."""
        if self._batch is not None:
            self._flush()
            self.ledger.note(self._batch, state="ready", most_usd=self._most_usd)
            self.full.append(self._batch)
            self._batch = None
        return self.take_full()

    async def _add(self, question: PendingRequest) -> Answer:
        if self._probes is None:
            like = self.ledger.has_asked_like(self.client.provider, question.wire)
            self._probes = 0 if like else PROBES
        if self._probes and not question.roomier:
            return await self._probe(question)
        line = len(self.api.line(custom_id(question.key, question.sample), question.wire)) + 1
        if line + sum(map(len, self.api.frame)) > self.api.most_bytes:
            message = f"the request alone has {line:,} bytes, and a batch may have {self.api.most_bytes:,}"
            return Answer(question.key, failure=ProviderError(message, "row"))
        most_usd = self.client.money.most(question.wire, batch=True)
        if self.held or (held := self._beyond(most_usd)):
            self.held = self.held or held
            raise ReplyPending
        if self._batch is not None and (self._count >= self._limit or self._bytes + line > self.api.most_bytes):
            self.full = self.finish()
        if self._batch is None:
            self._batch = self.ledger.begin(self.client.provider)
            self._count, self._bytes, self._most_usd = 0, sum(map(len, self.api.frame)), 0.0
        self._rows[question.key] = question
        self._count, self._bytes, self._most_usd = self._count + 1, self._bytes + line, self._most_usd + most_usd
        self._committed = self._committed[0] + 1, self._committed[1] + most_usd
        self.added += 1
        if len(self._rows) >= PART:
            self._flush()
        raise ReplyPending

    async def _probe(self, question: PendingRequest) -> Answer:
        """Send one request online, as a run without batches would. Its reply counts like any other.

        The answer is kept for later passes: a refused, empty or truncated reply is not in the cache, and a run without batches
        would not repeat the request either.
        """
        assert self._probes is not None
        left, self._probes = self._probes, 0
        answer = await self.client.online(question)
        self._probed[question.key] = replace(answer, cached=True, usage=Usage())
        if answer.failure is None:
            return answer
        who = f"{self.client.provider.name}/{self.client.provider.model}"
        if answer.failure.failure != "row" or left == 1:
            raise ConfigError(
                f"{who}: no batch was made, because what was asked online first failed: {answer.failure}"
                " (`critic-prm doctor` shows what the model takes)"
            )
        self._probes = left - 1
        return answer

    def _beyond(self, most_usd: float) -> str:
        """Name the limit of the run that another request might exceed; empty if none."""
        money = self.client.money
        requests, usd = self._committed
        if money.max_requests is not None and requests + money.requests >= money.max_requests:
            return f"--max-requests {money.max_requests}"
        if money.budget_usd is not None and money.stopped:
            return f"--budget-usd {money.budget_usd:g} ({money.stopped})"
        if money.budget_usd is not None and usd + money.spent_online + most_usd > money.budget_usd:
            return f"--budget-usd {money.budget_usd:g} (the next request may cost up to ${most_usd:.4f})"
        return ""

    def _flush(self) -> None:
        assert self._batch is not None
        self.ledger.add(self._batch, list(self._rows.values()))
        self._rows.clear()


def verdict_so_far(client: Client, ledger: Ledger, question: PendingRequest) -> tuple[Answer | None, PendingRequest]:
    """Return the outcome of `question` in batches so far, and the request that it concerns.

    The answer is None if that request has to be sent (again). After a truncated reply, the request is the same one with a
    doubled token limit. Raises InBatch while the request is in a batch.
    """
    asked, before = question, ledger.tries(question.key)
    if client.options.regenerate and _was_cut(client, question.key, before):
        asked = with_doubled_limit(question, client.provider)
        if asked.key != question.key:
            answer = _outcome(client, ledger, asked, ledger.tries(asked.key))
            if answer is not None and answer.reply is None:
                answer = _stored(client, ledger, question.key)  # the larger limit failed: keep the truncated reply
            return answer, asked
    return _outcome(client, ledger, asked, before), asked


def _was_cut(client: Client, key: str, before: list[Try]) -> bool:
    """Whether the reply to `key` was truncated, in a batch or online."""
    if any(one.outcome is None for one in before):
        return False
    last = next((one.outcome for one in reversed(before) if one.outcome not in (*UNSENT, *UNRUN)), "none")
    return last == "length" or (last == "none" and client.cache.attempted(key, "length") is not None)


def _outcome(client: Client, ledger: Ledger, question: PendingRequest, before: list[Try]) -> Answer | None:
    open_in = {one.batch for one in before if one.outcome is None}
    if open_in:
        raise InBatch(open_in)
    outcomes = Counter(one.outcome or "" for one in before if one.outcome not in UNSENT)
    if not outcomes:
        return None
    passing = set(outcomes) <= {*UNRUN, *PASSING}
    enough = TRIES if passing else client.options.regenerate + (0 if question.roomier else 1)
    if "row" not in outcomes and outcomes.total() < enough:
        return None
    last = next(one.outcome for one in reversed(before) if one.outcome not in UNSENT)
    if last in UNRUN:
        message = f"not run in {outcomes[last]} batches ({last})"
        return Answer(question.key, failure=ProviderError(message, "transient"), cached=True)
    return _stored(client, ledger, question.key)


def _stored(client: Client, ledger: Ledger, key: str) -> Answer:
    """Return the incomplete reply or the failure that is stored under `key`."""
    failure, status, detail = ledger.failure_of(key)
    raw = client.cache.attempted(key, failure)
    if raw is not None:
        return stored_answer(client.provider, key, raw)
    # An attempt named after a finish reason has a raw body, so it is not among those left here.
    kind: Failure = next((kind for kind in get_args(Failure) if kind == failure), "transient")
    return Answer(key, failure=ProviderError(detail, kind, status=status, detail=detail), cached=True)
