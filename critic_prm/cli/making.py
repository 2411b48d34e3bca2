"""Generate rows from items with a policy, in input order, with progress, a summary and run.json."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from critic_prm.cli.running import Closing, run_watched
from critic_prm.data.judgement import Status
from critic_prm.data.records.reading import RecordWriter
from critic_prm.engine.client import Client
from critic_prm.engine.ordered_map import ordered_map
from critic_prm.label.run import RunStats

Item = TypeVar("Item")
Made = tuple[Status, Sequence[dict[str, Any]]]
"""The status and the rows of an item; the status is "ok" even if no row is kept."""


def run_making(
    items: Iterable[Item],
    work: Callable[[Item], Awaitable[Made]],
    out: str,
    client: Client | None,
    close: Callable[[], Awaitable[None]],
    accounts: Sequence[Closing] = (),
    workers: int = 64,
    skipped: Sequence[object] = (),
) -> int:
    """Apply `work` to every item and write the rows to `out`.

    Returns the exit code: 0, or 3 if items failed; items that the reader put into `skipped` count as failed. Raises the error
    that stopped the run; rows finished by then are in `out`.
    """
    tally = RunStats()

    async def one(part: Sequence[Item]) -> list[Made]:
        return [await work(item) for item in part]

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        crew = (lambda: max(workers, client.gate.most)) if client is not None else (lambda: workers)
        async for _, (status, rows) in ordered_map(items, one, workers=crew, stop=stop):
            tally.rows += 1
            tally.labels[status] += 1
            for row in rows:
                sink.write(row)
        tally.skipped = len(skipped)

    return run_watched(body, out, tally, client, close, accounts)
