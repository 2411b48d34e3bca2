"""Score tables of solutions shard by shard with Dataset.map_batches of Ray Data, without the driver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from critic_prm.critics.open import open_critic
from critic_prm.data.judgement import combine
from critic_prm.data.trajectory import Step, Trajectory
from critic_prm.errors import InputError, UsageError

if TYPE_CHECKING:
    import pyarrow

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
