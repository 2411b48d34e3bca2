"""Run an evaluation with progress on stderr and save predictions as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack

from critic_prm import signals
from critic_prm.data.critic import Critic
from critic_prm.data.records.reading import RecordWriter
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.client import Client
from critic_prm.evaluate.run import Evaluation, evaluate
from critic_prm.label.progress import watch
from critic_prm.label.run import RunStats


def run_evaluation(
    critic: Critic,
    benchmark: Iterable[tuple[str, Trajectory]],
    *,
    samples: int = 1,
    workers: int = 64,
    threshold: float | None = None,
    oracle: bool = False,
    replicates: int = 2000,
    seed: int = 0,
    save: str | None = None,
    quiet: bool = False,
) -> Evaluation:
    """Evaluate a critic, with progress on stderr unless `quiet`, and close it.

    After an error, predictions made so far are in `save`, and paid replies are in the cache.
    """
    tally = RunStats()
    client: Client | None = critic.client

    async def run() -> Evaluation:
        watching = asyncio.create_task(asyncio.sleep(0) if quiet else watch(tally, client))
        try:
            with ExitStack() as stack:
                sink = stack.enter_context(RecordWriter(save)) if save else None
                return await evaluate(
                    critic,
                    benchmark,
                    samples=samples,
                    workers=workers,
                    threshold=threshold,
                    oracle=oracle,
                    replicates=replicates,
                    seed=seed,
                    tally=tally,
                    each=sink.write if sink else None,
                )
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await critic.close()

    return signals.run(run())
