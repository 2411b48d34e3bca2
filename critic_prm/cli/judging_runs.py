"""Evaluate or attack pairs of judge and style one after the other, with progress on stderr."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from critic_prm import signals
from critic_prm.cli.running import open_judges
from critic_prm.data.critic import Critic
from critic_prm.engine.options import JudgeOptions
from critic_prm.evaluate.attacks import Resistance, attack, attacks
from critic_prm.evaluate.benchmarks.benchmark import Part, read_benchmarks
from critic_prm.evaluate.judges import JudgeCost, JudgeScore, score_judge, side_by_side
from critic_prm.evaluate.run import Evaluation, evaluate
from critic_prm.label.progress import watch
from critic_prm.label.run import RunStats
from critic_prm.label.sampling import Samples
from critic_prm.metrics.scorecard import Comparison

Pair = tuple[str, str]
Compared = Sequence[tuple[JudgeScore, JudgeScore, Comparison]]


@dataclass(frozen=True, slots=True)
class Run:
    """Settings shared by all pairs of judge and style."""

    judging: JudgeOptions
    parts: Sequence[Part]
    limit: int | None
    samples: int
    replicates: int
    seed: int
    consensus: str = "majority"

    def open(self, judge: str, style: str) -> Critic:
        """Open one judge, or the consensus of several judges joined by +."""
        judging = replace(self.judging, style=style)
        return open_judges(judge.split("+"), judging, self.consensus, Samples(self.samples, self.samples))[0]


def evaluated(pairs: Sequence[Pair], run: Run) -> tuple[list[JudgeScore], Compared]:
    """Score each pair, and compare every two of them."""
    worths = []
    for judge, style in pairs:
        bill = JudgeCost()
        _say(judge, style)
        worths.append(score_judge(judge, style, signals.run(_evaluate(judge, style, run, bill)), bill, run.judging.prices))
    return worths, side_by_side(worths, run.replicates, run.seed)


def attacked(pairs: Sequence[Pair], run: Run) -> list[tuple[Pair, Resistance]]:
    """Run the packaged attacks against each pair."""
    found = []
    for judge, style in pairs:
        _say(judge, style)
        found.append(((judge, style), signals.run(_attack(judge, style, run))))
    return found


def attacked_to_json(found: Sequence[tuple[Pair, Resistance]]) -> dict[str, Any]:
    """Convert the attack results to a JSON object."""
    return {"judges": [{"judge": judge, "style": style, **asdict(one)} for (judge, style), one in found]}


async def _evaluate(judge: str, style: str, run: Run, bill: JudgeCost) -> Evaluation:
    critic = run.open(judge, style)
    tally = RunStats()
    watching = asyncio.create_task(watch(tally, critic.client))

    def each(row: Mapping[str, Any]) -> None:
        bill.add(row)

    try:
        return await evaluate(
            critic,
            read_benchmarks(run.parts, run.limit),
            samples=run.samples,
            workers=run.judging.max_connections,
            replicates=run.replicates,
            seed=run.seed,
            tally=tally,
            each=each,
        )
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await critic.close()


async def _attack(judge: str, style: str, run: Run) -> Resistance:
    critic = run.open(judge, style)
    tally = RunStats()
    watching = asyncio.create_task(watch(tally, critic.client))
    try:
        return await attack(
            critic,
            (solution for _, solution in read_benchmarks(run.parts, run.limit)),
            attacks(),
            workers=run.judging.max_connections,
            replicates=run.replicates,
            seed=run.seed,
            tally=tally,
        )
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await critic.close()


def _say(judge: str, style: str) -> None:
    print(f"{judge} with {style}", file=sys.stderr, flush=True)
