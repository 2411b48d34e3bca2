"""A labelling run as a person sees it: progress on stderr, Ctrl-C that drains, a summary, run.json."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import orjson

from critic_prm.critic import Critic
from critic_prm.engine.client import Client
from critic_prm.engine.progress import describe, watch
from critic_prm.label import Tally, label_into
from critic_prm.records import RecordWriter
from critic_prm.trajectory import Trajectory


def run_labelling(
    trajectories: Iterable[Trajectory],
    critic: Critic,
    out: str,
    *,
    source: str = "",
    samples: int = 1,
    workers: int = 64,
    limit: int | None = None,
) -> int:
    """Label `trajectories` into `out` and report on stderr. Returns the exit code: 0, 3 with failed rows, 130 interrupted."""
    tally = Tally(total=_count(source, limit))
    client: Client | None = getattr(critic, "client", None)

    async def run() -> int:
        stop = asyncio.Event()
        _on_interrupt(lambda: _stop(stop, tally))
        watching = asyncio.create_task(watch(tally, client))
        try:
            with RecordWriter(out) as sink:
                rows = islice(trajectories, limit)
                await label_into(sink, rows, critic, tally, samples=samples, workers=workers, stop=stop)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await critic.close()
            _finish(tally, client, out)
        return 130 if stop.is_set() else 3 if tally.failed else 0

    return asyncio.run(run())


def _stop(stop: asyncio.Event, tally: Tally) -> None:
    if stop.is_set():
        raise KeyboardInterrupt
    stop.set()
    tally.stopping = True
    print("stopping: finishing what is under way; press Ctrl-C again to stop at once", file=sys.stderr)


def _on_interrupt(act: Callable[[], None]) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, act)


def _finish(tally: Tally, client: Client | None, out: str) -> None:
    print(describe(tally, client, final=True), file=sys.stderr)
    if out != "-" and Path(out).parent.is_dir():
        report = orjson.dumps(tally.report(client), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        Path(f"{out}.run.json").write_bytes(report)


def _count(source: str, limit: int | None) -> int | None:
    """How many rows are to come, as far as counting newlines can tell."""
    path = Path(source)
    if not source.endswith((".jsonl", ".ndjson")) or not path.is_file():
        return limit
    with path.open("rb") as stream:
        lines = sum(chunk.count(b"\n") for chunk in iter(lambda: stream.read(1 << 20), b""))
    return min(lines, limit) if limit else lines
