"""Label trajectories with a critic, in input order, and collect run statistics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Protocol

from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, Label, Prior, combine
from critic_prm.data.label_rows import label_row, without_labels
from critic_prm.data.trajectory import Trajectory
from critic_prm.engine.concurrency import gather_all, ordered_map
from critic_prm.label.sampling import ONE_SAMPLE, LabelOptions, Samples
from critic_prm.label.stats import RunStats

WINDOW = 4096
"""Maximum number of trajectories in flight or waiting for a slower one before them."""


async def label(
    trajectories: Iterable[Trajectory],
    critic: Critic,
    *,
    samples: int | Samples = 1,
    prior: Prior = "none",
    workers: int | Callable[[], int] = 64,
    stop: asyncio.Event | None = None,
) -> AsyncIterator[tuple[Trajectory, Label]]:
    """Yield each trajectory with its label, in input order, with memory use independent of the input size.

    `samples` is the number of judgements per trajectory, or a rule that sets it; a deterministic critic gives one. `prior` is
    added to their votes. `workers` is the number of trajectories in flight; if it is a function, it is called again as labels
    are produced, so the number may change. Setting `stop` lets the trajectories in flight finish and skips the rest.
    ConfigError, BudgetError and input errors are raised after all preceding labels.
    """
    policy = samples if isinstance(samples, Samples) else Samples(samples, samples)

    async def work(part: Sequence[Trajectory]) -> list[Label]:
        rows = await judgements(critic, part, policy)
        return [combine(row, len(trajectory.steps), prior) for row, trajectory in zip(rows, part, strict=True)]

    def crew() -> int:
        if critic.batch > 1:
            # A local critic does not wait for the network, so one batch at a time is enough unless it runs on other machines.
            return critic.parallel_batches
        return workers if isinstance(workers, int) else workers()

    pairs = ordered_map(trajectories, work, workers=crew, batch=critic.batch, window=WINDOW, stop=stop)
    async for trajectory, labelled in pairs:
        yield trajectory, labelled


async def judgements(critic: Critic, part: Sequence[Trajectory], policy: Samples) -> Sequence[Sequence[Judgement]]:
    """All judgements of each trajectory of `part` that `policy` requires."""
    if policy.rule == "all" or not critic.stochastic:
        rounds = await _judge(critic, part, range(policy.most if critic.stochastic else 1))
        return list(zip(*rounds, strict=True))
    return [await _until_decided(critic, trajectory, policy) for trajectory in part]


async def _judge(critic: Critic, part: Sequence[Trajectory], samples: range) -> list[list[Judgement]]:
    """The judgements of `part`, one list per sample, requested concurrently."""
    if len(samples) == 1:
        return [await critic.judge(part, samples[0])]
    return await gather_all(critic.judge(part, sample) for sample in samples)


async def _until_decided(critic: Critic, trajectory: Trajectory, policy: Samples) -> list[Judgement]:
    judgements: list[Judgement] = []
    while more := policy.more(judgements):
        wave = range(len(judgements), len(judgements) + more)
        judgements += [row[0] for row in await _judge(critic, [trajectory], wave)]
    return judgements


class RowSink(Protocol):
    """Destination of label rows, such as a RecordWriter."""

    def write(self, row: dict[str, Any]) -> None: ...


async def label_into(
    sink: RowSink,
    trajectories: Iterable[Trajectory],
    critic: Critic,
    tally: RunStats,
    options: LabelOptions = ONE_SAMPLE,
    *,
    workers: int | Callable[[], int] = 64,
    stop: asyncio.Event | None = None,
    stats: Sequence[CriticStats] = (),
) -> None:
    """Label trajectories, write the rows of a label file, and count them in `tally` and `stats`. Labels in the input are
    replaced."""
    samples, prior = options.samples, options.prior
    card = critic.card if prior == "none" else {**critic.card, "prior": prior}
    clean = (without_labels(trajectory) for trajectory in trajectories)
    async for trajectory, labelled in label(clean, critic, samples=samples, prior=prior, workers=workers, stop=stop):
        sink.write(label_row(trajectory, labelled, card))
        tally.add(labelled)
        for account in stats:
            account.add(labelled)
