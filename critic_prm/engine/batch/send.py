"""Create each batch exactly once at the provider; after a crash, find the one that may have been created."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from critic_prm.engine.batch.ledger import Batch, Ledger
from critic_prm.errors import BudgetError, ConfigError, CriticPrmError, ProviderError
from critic_prm.providers.addresses import is_near
from critic_prm.providers.batches import BatchAPI, Remote, custom_id

Outcome = TypeVar("Outcome")
Say = Callable[[str], None]
Sleep = Callable[[float], Awaitable[None]]

GRACE, NEAR_GRACE = 60.0, 0.5
"""Seconds after which a create call that was interrupted counts as not received if the provider lists no such batch. NEAR_GRACE
applies to a server on this machine or network."""

PATIENCE = 3600.0
"""Seconds for which the same call may keep failing before the run stops. Running the command again resumes."""

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0


async def send(ledger: Ledger, api: BatchAPI, batch: int, say: Say, sleep: Sleep = asyncio.sleep) -> None:
    """Create a batch that is ready at the provider.

    Raises ConfigError or BudgetError when the provider refuses; the batch is then dropped, unless it may have been created.
    """
    told = ledger.batch(batch)
    with tempfile.TemporaryDirectory(prefix="critic-prm-") as folder:
        path = Path(folder) / f"critic-prm-{told.token[:12]}.jsonl"
        _write(path, ledger, api, batch)
        calls = _Calls(told, say, sleep)

        async def order() -> Remote:
            ledger.note(batch, state="sending", sent=time.time())
            try:
                return await api.create(path, file, told.token)
            except ProviderError as error:
                if not may_pass(error):
                    ledger.note(batch, state="ready")  # the provider refused the call, so no batch was created
                raise

        async def ordered() -> Remote | None:
            return await find(ledger, api, batch, sleep)

        try:
            file = await calls.repeated(lambda: api.upload(path, told.token), "an uploaded file")
            newest = await calls.repeated(api.newest, "a look at its batches")
            ledger.note(batch, file=file, newest=newest)
            remote = await calls.repeated(order, "a new batch", ordered)
        except (ConfigError, BudgetError):
            if ledger.batch(batch).state != "sending":
                ledger.drop(batch)
            raise
    ledger.note(batch, state="running", remote=remote.id, status=remote.status)
    say(f"{ledger.batch(batch).called}: {told.requests:,} requests ordered")


async def recover(ledger: Ledger, api: BatchAPI, batch: Batch, say: Say, sleep: Sleep = asyncio.sleep) -> None:
    """Recover a batch that an earlier run left unfinished.

    A batch that was never sent is dropped; its requests go into a new one. A batch that may have been created is looked for.
    """
    if batch.state in ("gathering", "ready"):
        ledger.drop(batch.id)
        return
    calls = _Calls(batch, say, sleep)
    found = await calls.repeated(lambda: find(ledger, api, batch.id, sleep), "a look at its batches")
    if found is None:
        ledger.drop(batch.id)
        say(f"{batch.called}: the order had not arrived when the run before was ended; its requests are gathered again")
    else:
        ledger.note(batch.id, state="running", remote=found.id, status=found.status)
        say(f"{ledger.batch(batch.id).called}: found again")


async def find(ledger: Ledger, api: BatchAPI, batch: int, sleep: Sleep) -> Remote | None:
    """Find the remote batch of a create call whose outcome is unknown. None if the call cannot have been received.

    An uncertain match is accepted until the batch's results confirm or refute it.
    """
    told = ledger.batch(batch)
    grace = NEAR_GRACE if is_near(told.base_url) else GRACE
    known = {other.remote for other in ledger.batches() if other.remote} | set(told.not_ours.split())
    while True:
        left = told.sent + grace - time.time()
        candidates = await api.find(told.file, told.token, told.newest, told.requests, told.sent)
        candidates = [(remote, sure) for remote, sure in candidates if remote.id not in known]
        if candidates:
            remote, sure = min(candidates, key=lambda one: (not one[1], one[0].made))
            ledger.note(batch, sure=int(sure))
            return remote
        if left <= 0:
            return None
        await sleep(min(left, 5.0))


def may_pass(error: ProviderError) -> bool:
    """Whether the same call may succeed later."""
    return error.failure in ("throttle", "transient")


def stop_for(error: ProviderError, who: str) -> CriticPrmError:
    """Convert a permanent failure of a call to the error that stops the run."""
    said = f"{who}: {error}; batches that were ordered go on, run the same command again to pick them up"
    return BudgetError(said) if error.failure == "quota" else ConfigError(said)


class _Calls:
    """Retry calls about one batch, with growing pauses, while failures are temporary."""

    def __init__(self, batch: Batch, say: Say, sleep: Sleep) -> None:
        self._batch, self._say, self._sleep = batch, say, sleep

    async def repeated(
        self,
        call: Callable[[], Awaitable[Outcome]],
        what: str,
        done_already: Callable[[], Awaitable[Outcome | None]] | None = None,
    ) -> Outcome:
        """Return the result of `call`. If a failed call may have taken effect, `done_already` checks before the next try."""
        pause, until = FIRST_WAIT, time.monotonic() + PATIENCE
        while True:
            try:
                return await call()
            except ProviderError as error:
                failed = error
            if not may_pass(failed):
                raise stop_for(failed, self._batch.called)
            wait = failed.retry_after if failed.retry_after is not None else pause
            if time.monotonic() + wait > until:
                raise stop_for(failed, self._batch.called)
            self._say(f"{self._batch.called}: waiting {wait:.1f} s for {what} ({failed})")
            await self._sleep(wait)
            pause = min(2 * pause, LONGEST_WAIT)
            if done_already is not None and failed.failure == "transient":
                found = await self.repeated(done_already, "a look at its batches")
                if found is not None:
                    return found


def _write(path: Path, ledger: Ledger, api: BatchAPI, batch: int) -> None:
    head, joint, tail = api.frame
    with path.open("wb") as stream:
        stream.write(head)
        for place, question in enumerate(ledger.questions(batch)):
            stream.write((joint if place else b"") + api.line(custom_id(question.key, question.sample), question.wire))
        stream.write(tail)
