"""Count what a run does, and show it: a bar on a terminal or a line every 30 seconds, with what the run is waiting for."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, get_args

from critic_prm.data.judgement import Label
from critic_prm.errors import Failure
from critic_prm.providers.models import did_you_mean
from critic_prm.terminal import safe_console, verbosity

if TYPE_CHECKING:
    from pathlib import Path

    from critic_prm.engine.client import Client
    from critic_prm.label.reasons import Reasons

EVERY = 30.0
"""Seconds between lines if stderr is not a terminal."""

TICK = 1.0
"""Seconds after which new rows are in the file for `tail -f`, and a first failure is reported."""

SOON = 5.0
"""Seconds after which a run that is still going names the file with its finished rows."""


REPLIES = ("cached", "shared", "paid", "incomplete", "reasked", "missing", "abandoned")
"""The reply counts of a client that are written to run.json."""


class Readable(Protocol):
    """An output whose rows can be read before it is complete, such as a RecordWriter."""

    @property
    def readable(self) -> Path | None:
        """The file with the rows so far; None if they cannot be read yet."""
        ...

    def flush(self) -> None:
        """Write all rows so far to the file."""
        ...


@dataclass
class RunStats:
    """Statistics of a run so far, for the progress line, the summary and run.json."""

    total: int | None = None
    rows: int = 0
    skipped: int = 0
    judgements: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    how: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.time)
    stopping: bool = False
    waiting: str = ""
    """What the whole run is waiting for, as text."""
    reasons: Reasons | None = None
    """Why rows got no label; None while all have one."""
    clients: Sequence[Client] = ()
    """All clients of the run, whose first failure is reported."""
    output: Readable | None = None
    """The output that is being written."""
    said: set[str] = field(default_factory=set)
    """What was reported already."""

    def add(self, labelled: Label, id: str = "") -> None:
        self.rows += 1
        self.labels[labelled.status] += 1
        if labelled.status != "ok":
            from critic_prm.label.reasons import Reasons

            self.reasons = self.reasons or Reasons()
            self.reasons.add(id, labelled)
        self.judgements.update(judgement.status for judgement in labelled.judgements)
        self.how.update(word for judgement in labelled.judgements for word in judgement.how)

    @property
    def failed(self) -> int:
        """Rows without a usable label, including skipped rows."""
        return self.rows - self.labels["ok"] + self.skipped

    @property
    def seconds(self) -> float:
        return time.time() - self.started

    def report(self, client: Client | None) -> dict[str, Any]:
        """The run as JSON: rows and judgements by status, requests, tokens, cost (null: unknown), seconds."""
        began = datetime.fromtimestamp(self.started, UTC)
        report: dict[str, Any] = {
            "rows": self.rows,
            "rows_skipped": self.skipped,
            "rows_in_input": self.total,
            "labels": dict(self.labels),
            "judgements": dict(self.judgements),
            "how": dict(self.how),
            "reasons": self.reasons.report() if self.reasons else [],
            "started_at": began.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows / self.seconds, 3) if self.seconds > 0 else None,
        }
        if client is not None:
            usage, cost, counts = client.money.usage, client.money.cost(), client.counts
            report |= {
                "requests": client.money.requests,
                "replies": {name: counts[name] for name in REPLIES},
                "failures": {name: counts[name] for name in get_args(Failure)},
                "connections": {"ceiling": client.gate.most, "limit": int(client.gate.limit)},
                "tokens": {
                    "input": usage.input,
                    "cached": usage.cached,
                    "written": usage.written,
                    "output": usage.output,
                    "reasoning": usage.reasoning,
                },
                "cost_usd": cost,
                "cost_usd_per_label": cost / self.labels["ok"] if cost is not None and self.labels["ok"] else None,
            }
        return report


async def watch(tally: RunStats, client: Client | None) -> None:
    """Show progress on stderr until cancelled; nothing with --quiet. Finished rows are written to the output's file."""
    while verbosity() == "quiet":
        await asyncio.sleep(TICK)
        news(tally)
    if not sys.stderr.isatty():
        shown = time.monotonic()
        while True:
            await asyncio.sleep(min(TICK, EVERY))
            lines = news(tally)
            if time.monotonic() - shown >= EVERY:
                shown = time.monotonic()
                lines.append(describe(tally, client))
            for line in lines:
                print(line, file=sys.stderr, flush=True)

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
            for line in news(tally):
                live.console.print(Text(line), soft_wrap=True)
            live.update(picture(), refresh=True)


def news(tally: RunStats) -> list[str]:
    """Lines to print once while a run goes on: the first failure of each judge that has not answered yet, and the file with
    the finished rows. That file is brought up to date."""
    lines = []
    for client in tally.clients:
        judge = f"{client.provider.name}/{client.provider.model}"
        if client.luck.last is not None and not client.luck.successes and judge not in tally.said:
            tally.said.add(judge)
            lines.append(f"{judge}: {client.luck.last}; trying again")
    if tally.output is not None:
        tally.output.flush()
        path = tally.output.readable
        if path is not None and tally.rows and tally.seconds >= SOON and str(path) not in tally.said:
            tally.said.add(str(path))
            near = min(str(path), os.path.relpath(path), key=len)
            lines.append(f"finished rows so far: tail -f {shlex.quote(near)}")
    return lines


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
        parts.append(f"stopping: {client.gate.out} requests are still in flight" if client else "stopping")
    return " | ".join(parts)


def _asking(client: Client, final: bool) -> list[str]:
    gate, money, counts = client.gate, client.money, client.counts
    parts = [f"{counts['cached']:,} cached, {counts['paid']:,} paid"]
    if not final:
        parts.append(f"{gate.out} of {int(gate.limit)} in flight")
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
