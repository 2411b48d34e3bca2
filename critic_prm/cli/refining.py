"""Run the refinement of solutions with progress, a summary and run.json."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from critic_prm.data.records.reading import RecordWriter
    from critic_prm.data.trajectory import Trajectory
    from critic_prm.engine.options import JudgeOptions
    from critic_prm.search.refine import Refined, Refining
    from critic_prm.search.rewriting import LLMMender


def run_refining(
    trajectories: Iterable[Trajectory],
    policy: LLMMender,
    critic: str,
    judging: JudgeOptions,
    *,
    settings: Refining,
    by: str,
    seed: int,
    out: str,
    limit: int | None,
    skipped: Sequence[object] = (),
) -> int:
    """Refine every solution.

    Returns the exit code: 0, or 3 if a solution could not be judged or rewritten, or if the reader put rows into `skipped`.
    """
    import typer

    from critic_prm.cli.running import clients_of, run_watched
    from critic_prm.critics.open import open_critic
    from critic_prm.data.aggregate import open_aggregation
    from critic_prm.engine.ordered_map import ordered_map
    from critic_prm.generate.policy.answers import Grader
    from critic_prm.label.run import RunStats
    from critic_prm.search.refine import refine, refined_row
    from critic_prm.search.refine_stats import RefineStats

    open_aggregation(by)
    opened = open_critic(critic, judging)
    client, grader, account, tally = policy.policy.client, Grader(), RefineStats(), RunStats()

    async def work(part: Sequence[Trajectory]) -> list[Refined]:
        return [await refine(one, policy, opened, grader, settings=settings, by=by, seed=seed) for one in part]

    async def body(sink: RecordWriter, stop: asyncio.Event) -> None:
        rows = islice(trajectories, limit)
        async for _, found in ordered_map(rows, work, workers=lambda: judging.max_connections, window=1024, stop=stop):
            tally.rows += 1
            tally.labels[found.why if found.why in ("not judged", "policy failed") else "ok"] += 1
            account.add(found)
            sink.write(refined_row(found))
        tally.skipped = len(skipped)

    async def close() -> None:
        await asyncio.gather(grader.close(), policy.close(), opened.close())

    code = run_watched(body, out, tally, client, close, [account], [client, *clients_of(opened)])
    if grader.note:
        typer.echo(grader.note, err=True)
    return code
