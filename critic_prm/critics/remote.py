"""Run a local critic (rules or a verifier) on Ray: as a critic on workers, or over tables with Dataset.map_batches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from critic_prm.critics.open import open_critic
from critic_prm.data.critic import Critic, CriticStats
from critic_prm.data.judgement import Judgement, combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.engine.options import JudgeOptions, RayOptions
from critic_prm.engine.ray.workers import Needs, Pool, WorkerLost
from critic_prm.errors import ConfigError, InputError, UsageError

if TYPE_CHECKING:
    import pyarrow

TRIES = 10
"""Give up on a batch after losing this many workers with it: the batch is then assumed to be the cause."""

AHEAD = 2
"""Batches in flight per worker, so that a worker never waits for the driver."""


def connect(name: str, options: JudgeOptions) -> RemoteCritic:
    """Open a local critic, `rules` or a verifier folder, distributed over the workers of a cluster.

    The critic is also opened in this process, for its name in label files and to report errors early.
    """
    ray, own = options.cluster or RayOptions(), JudgeOptions(option=options.option, profile=options.profile)
    pool = Pool(ray, partial(_open, name, own), Needs(gpus=ray.worker_gpus or 0.0))
    return RemoteCritic(open_critic(name, own), pool, AHEAD * ray.workers)


@dataclass(frozen=True)
class RemoteCritic(Critic):
    """Judges on the workers of a cluster. A batch whose worker is lost is sent to another one, at no cost."""

    inner: Critic
    pool: Pool
    parallel_batches: int = 1

    @property
    def batch(self) -> int:
        return self.inner.batch

    @property
    def stochastic(self) -> bool:
        return self.inner.stochastic

    @property
    def card(self) -> Mapping[str, Any]:
        return self.inner.card

    @property
    def stats(self) -> Sequence[CriticStats]:
        return self.inner.stats

    async def judge(self, trajectories: Sequence[Trajectory], sample: int = 0) -> list[Judgement]:
        for _ in range(TRIES):
            try:
                judgements: list[Judgement] = await self.pool.do((list(trajectories), sample))
            except WorkerLost:
                continue
            return judgements
        raise ConfigError(
            f"{TRIES} workers were lost while they judged the trajectories from {trajectories[0].id!r} on;"
            " do they have too little memory? See the logs of Ray"
        )

    async def close(self) -> None:
        await self.pool.close()
        await self.inner.close()


def _open(name: str, options: JudgeOptions) -> Computing:
    try:
        return Computing(open_critic(name, options))
    except InputError as error:
        raise ConfigError(f"a worker cannot open the critic: {error}; it must lie where every node can read it") from error


@dataclass
class Computing:
    """Worker side: judge the batches it receives."""

    critic: Critic

    async def do(self, item: tuple[list[Trajectory], int]) -> list[Judgement]:
        return await self.critic.judge(*item)

    async def close(self) -> None:
        await self.critic.close()


NEEDED = ("problem", "steps")


class Scorer:
    """A callable class for `map_batches(Scorer, fn_constructor_args=[name], batch_format="pyarrow", ...)`.

    `name` is "rules" or a verifier folder that every node can read. Tables need the columns `problem` (text) and `steps` (list
    of text). The result adds `p_correct` (list of numbers in [0, 1], null where unjudged), `first_error` (0-based, -1: none,
    null: unknown) and `status` as in a label file. Use it for local critics only, where repeating the work of a lost worker
    costs nothing. The replies of an LLM judge are paid for and must go through a cache; use `critic-prm label --engine ray`.
    """

    def __init__(self, name: str) -> None:
        self.critic = open_critic(name)
        if self.critic.stochastic:
            raise UsageError(f"{name!r} asks a model for money; shards are scored by verifiers, label with --engine ray")

    def __call__(self, table: pyarrow.Table) -> pyarrow.Table:
        import pyarrow

        if missing := [name for name in NEEDED if name not in table.column_names]:
            raise InputError("this table", f"it has no column {missing[0]!r}", f"it needs {' and '.join(NEEDED)}")
        problems, steps = (table.column(name).to_pylist() for name in NEEDED)
        solutions = [
            Trajectory(str(number), problem, tuple(map(Step, texts)))
            for number, (problem, texts) in enumerate(zip(problems, steps, strict=True))
        ]
        judgements = asyncio.run(self.critic.judge(solutions))
        labels = [combine([one], len(solution.steps)) for one, solution in zip(judgements, solutions, strict=True)]
        for name, kind in (
            ("p_correct", pyarrow.list_(pyarrow.float64())),
            ("first_error", pyarrow.int64()),
            ("status", pyarrow.string()),
        ):
            values = [getattr(label, name) for label in labels]
            column = pyarrow.array([list(value) if isinstance(value, tuple) else value for value in values], kind)
            table = table.append_column(name, column)
        return table
