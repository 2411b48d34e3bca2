"""Show progress as a bar on a terminal or a line every 30 seconds, including what the run is waiting for."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar, get_args

from critic_prm import signals
from critic_prm.data.critic import Critic
from critic_prm.errors import Failure
from critic_prm.label.stats import RunStats
from critic_prm.providers.models import did_you_mean
from critic_prm.terminal import safe_console

if TYPE_CHECKING:
    from critic_prm.engine.client import Client

Result = TypeVar("Result")

EVERY = 30.0
"""Seconds between lines if stderr is not a terminal."""


@asynccontextmanager
async def watched(critic: Critic, tally: RunStats) -> AsyncIterator[None]:
    """Show progress on stderr while a critic works, and close the critic at the end."""
    watching = asyncio.create_task(watch(tally, critic.client))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await critic.close()


def run_with_progress(critic: Critic, work: Callable[[RunStats], Awaitable[Result]]) -> Result:
    """Run the coroutine of a command whose only critic is this one, with progress on stderr; then close the critic."""
    tally = RunStats()

    async def run() -> Result:
        async with watched(critic, tally):
            return await work(tally)

    return signals.run(run())


async def watch(tally: RunStats, client: Client | None) -> None:
    """Show progress on stderr until cancelled."""
    if not sys.stderr.isatty():
        while True:
            await asyncio.sleep(EVERY)
            print(describe(tally, client), file=sys.stderr, flush=True)

    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def picture() -> Table:
        lines = Table.grid(expand=True)
        lines.add_row(ProgressBar(total=tally.total or None, completed=tally.rows, pulse=not tally.total))
        lines.add_row(Text(describe(tally, client), style="dim"))
        return lines

    with Live(picture(), console=safe_console(stderr=True), transient=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(0.25)
            live.update(picture(), refresh=True)


def describe(tally: RunStats, client: Client | None, *, final: bool = False) -> str:
    """One line: rows, rate, time left, statuses, requests in flight, waits, tokens, cost."""
    if tally.waiting and not final:
        return f"{tally.waiting} | {_span(tally.seconds)}"
    rate = tally.rows / tally.seconds if tally.seconds > 0 else 0.0
    done = f"{tally.rows:,}" + (f"/{tally.total:,}" if tally.total and not final else "") + " rows"
    parts = [f"{done} in {_span(tally.seconds)}" if final else f"{done}, {rate:,.0f}/s"]
    if not final and tally.total and rate:
        parts[0] += f", {_span((tally.total - tally.rows) / rate)} left"
    parts.append(", ".join(f"{status} {count:,}" for status, count in tally.labels.most_common()) or "none labelled")
    if client is not None:
        parts += _asking(client, final)
    if tally.stopping:
        parts.append(f"stopping: {client.gate.out} requests are still out" if client else "stopping")
    return " | ".join(parts)


def _asking(client: Client, final: bool) -> list[str]:
    gate, money, counts = client.gate, client.money, client.counts
    parts = [f"{counts['cached']:,} cached, {counts['paid']:,} paid"]
    if not final:
        parts.append(f"{gate.out} of {int(gate.limit)} out")
    failed = {kind: counts[kind] for kind in get_args(Failure) if counts[kind]}
    if failed:
        parts.append("failed requests: " + ", ".join(f"{kind} {count:,}" for kind, count in failed.items()))
    if counts["reasked"]:
        parts.append(f"asked again {counts['reasked']:,}")
    if counts["abandoned"]:
        parts.append(f"{counts['abandoned']:,} requests not waited for, perhaps billed")
    if not final:
        parts += _waits(client)
    if money.usage.input:
        cost = money.cost()
        read = f" ({money.usage.cached / money.usage.input:.0%} from the prompt cache)" if money.usage.cached else ""
        parts.append(f"{_thousands(money.usage.input)} in{read}, {_thousands(money.usage.output)} out")
        hint = did_you_mean(client.provider.name, client.provider.model) if final and cost is None else ""
        of = f" of service tier {money.unpriced!r}" if money.unpriced else ""
        parts.append(f"price{of} unknown{hint}" if cost is None else f"${cost:.4f}")
    return parts


def _waits(client: Client) -> list[str]:
    """What the run is waiting for, and until when."""
    waits = []
    if elsewhere := client.gate.waits():
        waits.append(elsewhere)
    if seconds := client.gate.waiting():
        until = datetime.now() + timedelta(seconds=seconds)
        waits.append(f"waiting {seconds:.0f} s for the rate limit, until {until:%H:%M:%S}")
    if client.gate.pace:
        waits.append(f"paced at {client.gate.pace:.1f} requests a second")
    if client.resting:
        why = f" ({client.luck.last})" if client.luck.last else ""
        waits.append(f"{client.resting} waiting to try again{why}")
    if client.money.waiting:
        waits.append(f"{client.money.waiting} waiting for what is left of the budget")
    return waits


def _thousands(tokens: int) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}{unit} tokens"
    return f"{tokens} tokens"


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{seconds:.1f}s"
