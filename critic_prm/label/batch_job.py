"""Label through batch APIs in rounds: send what can be asked now, then what depends on the replies.

The job ends when the cache holds every reply that labelling needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from critic_prm.data.critic import Critic
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.batch.builder import BatchBuilder, ReplyPending
from critic_prm.engine.batch.ledger import Ledger
from critic_prm.engine.batch.manager import LONGEST_WAIT, BatchManager, Say
from critic_prm.engine.client import Client
from critic_prm.errors import BudgetError, ConfigError, Interrupted, Pending
from critic_prm.label.run import Samples, judgements
from critic_prm.providers.provider import Provider, Usage

FIRST_POLL = 0.25
"""Seconds until the first poll of a batch; each later interval is 1.5 times as long, up to a minute."""


@dataclass
class Job:
    """One labelling job in batches.

    `clients` are those of `critic`. `most` limits the requests per batch; None uses the provider's limit. `say` is called with
    messages, `show` with what the job is waiting for ("" for nothing).
    """

    critic: Critic
    clients: Sequence[Client]
    ledger: Ledger
    samples: Samples
    say: Say
    show: Say
    stop: asyncio.Event
    most: int | None = None
    _judges: list[BatchBuilder] = field(default_factory=list)
    _reported: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Raises UsageError for a provider without a batch API, ConfigError for a missing key."""
        for client in self.clients:
            manager = BatchManager(self.ledger, client.provider, _spend(client), self.say, self._sleep)
            self._judges.append(BatchBuilder(client, manager, self.most))

    async def run(self, trajectories: Callable[[], Iterable[Trajectory]], *, wait: bool) -> None:
        """Send batches until labelling finds every reply in the cache.

        Raises Pending if it would have to wait and `wait` is false, ConfigError or BudgetError if it cannot go on, and
        Interrupted.
        """
        for judge in self._judges:
            await judge.manager.recover()
        await self._collect()
        while True:
            await self._gather(trajectories())
            waiting = {batch for judge in self._judges for batch in judge.away}
            if not waiting:
                self._stop_if_held()
                if not any(judge.added for judge in self._judges):
                    return self._count()
            self._check_reachable(waiting)
            self._report_unneeded(waiting)
            if not wait:
                raise self._pending(waiting)
            await self._wait(waiting)

    def _count(self) -> None:
        """Count the replies obtained through batches as paid. Labelling reads them from the cache like any other reply, and
        they must be counted only once."""
        for judge in self._judges:
            whole = judge.manager.summary.outcomes["ok"]
            judge.client.counts.update(paid=whole, incomplete=judge.manager.summary.new - whole)
            judge.client.counts["cached"] = -whole

    def settle(self) -> None:
        """Mark the job as finished, so that a later run retries what failed."""
        for judge in self._judges:
            self.ledger.settle(judge.client.provider)

    async def close(self) -> None:
        for judge in self._judges:
            await judge.manager.api.close()
        self.ledger.close()

    async def _gather(self, trajectories: Iterable[Trajectory]) -> None:
        """Put every request that can be made now into a batch, and send each batch as soon as it is full."""
        for judge in self._judges:
            judge.start()
        for place, trajectory in enumerate(trajectories):
            with suppress(ReplyPending):
                await judgements(self.critic, [trajectory], self.samples)
            for judge in self._judges:
                await self._send(judge, judge.take_full())
            if any(judge.held for judge in self._judges):
                break
            if place % 64 == 0:
                await asyncio.sleep(0)
                self._check_stopped()
        for judge in self._judges:
            await self._send(judge, judge.finish())

    async def _send(self, judge: BatchBuilder, batches: Iterable[int]) -> None:
        for batch in batches:
            await judge.manager.send(batch)
            judge.away.add(batch)

    async def _collect(self) -> set[int]:
        return {batch for judge in self._judges for batch in await judge.manager.collect()}

    async def _wait(self, waiting: set[int]) -> None:
        """Wait until all these batches have ended, polling at growing intervals."""
        left, pause = set(waiting), FIRST_POLL
        while left:
            self.show(self._waiting_text(left))
            await self._sleep(pause)
            pause = min(1.5 * pause, LONGEST_WAIT)
            left -= await self._collect()
        self.show("")
        for batch in self.ledger.batches("ended"):
            if batch.id in waiting and self.ledger.counts(batch.id).get("cancelled"):
                raise BudgetError(f"{batch.called} was cancelled; run the same command again to order the rest of it")

    def _waiting_text(self, left: Iterable[int]) -> str:
        texts = []
        for number in sorted(left):
            batch = self.ledger.batch(number)
            seen = next((judge.manager.seen[number] for judge in self._judges if number in judge.manager.seen), None)
            counts = f", {seen.done:,} done, {seen.failed:,} failed" if seen and seen.done + seen.failed else ""
            texts.append(f"{batch.called}: {batch.requests:,} requests, {batch.status}{counts}")
        more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
        return "waiting for " + "; ".join(texts[:3]) + more

    async def _sleep(self, seconds: float) -> None:
        """Sleep; raises Interrupted if the run is to stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()
        self._check_stopped()

    def _check_stopped(self) -> None:
        if self.stop.is_set():
            raise Interrupted

    def _stop_if_held(self) -> None:
        for judge in self._judges:
            if held := judge.held:
                requests, usd = self.ledger.committed(judge.client.provider)
                raise BudgetError(
                    f"stopped by {held}, with {requests:,} requests in batches, ${usd:.4f}; run again with a larger limit to"
                    " go on, nothing is paid twice"
                )

    def _check_reachable(self, waiting: set[int]) -> None:
        mine = {batch.id for judge in self._judges for batch in judge.manager.batches()}
        for number in waiting - mine:
            batch = self.ledger.batch(number)
            raise ConfigError(
                f"{batch.called} at {batch.base_url or 'its own address'} has requests of this command; name that judge and"
                f" --base-url to wait for it, or stop tracking it with `critic-prm batch forget {number}`"
            )

    def _report_unneeded(self, waiting: set[int]) -> None:
        """Report running batches with requests that this command does not need."""
        for judge in self._judges:
            for batch in judge.manager.batches("running"):
                if batch.id not in waiting | self._reported:
                    self._reported.add(batch.id)
                    self.say(
                        f"{batch.called} holds {batch.requests:,} requests that this command does not send (another input,"
                        f" prompt or option); its replies will be kept; `critic-prm batch cancel {batch.id}` ends it"
                    )

    def _pending(self, waiting: set[int]) -> Pending:
        requests = sum(self.ledger.batch(batch).requests for batch in waiting)
        what = "1 batch" if len(waiting) == 1 else f"{len(waiting)} batches"
        return Pending(
            f"{requests:,} requests are with the provider in {what} (`critic-prm batch status`); run the same command again to"
            " pick them up, or with --wait to wait for them"
        )


def _spend(client: Client) -> Callable[[Provider, Usage], float]:
    return lambda provider, usage: client.money.spend(usage, batch=True)
